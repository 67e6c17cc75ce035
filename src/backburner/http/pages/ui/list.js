// Lists that change while somebody looks at them, and rows that keys move through.
import { api, number, reconnected, throttled, useEffect, useEvents, useKeys, useRef, useState, html } from './core.js'

const PAGE = 50

/**
 * Read a list and keep it: `{rows, next, fresh, error, isRead, show, reload}`.
 *
 * Rows that are shown change in place; new ones are only counted (`fresh`) until `show()`,
 * so that nothing moves under the pointer. A row that the list has no more is `isGone`.
 */
export function useList(path, { live = 2000, when = () => true, idOf = row => row.id, read = api }) {
  const [list, set] = useState({ path: null, rows: [], next: null, fresh: 0, error: null })
  const current = useRef(path)
  current.current = path
  const load = useRef(null)
  load.current ??= async ({ replace = false } = {}) => {
    const wanted = current.current
    try {
      const page = await read(wanted)
      if (wanted !== current.current) return
      set(was => {
        const next = { path: wanted, next: page.next_cursor, fresh: 0, error: null }
        if (replace || was.path !== wanted || !was.rows.length) return { ...next, rows: page.items }
        const found = new Map(page.items.map(row => [idOf(row), row]))
        const shown = new Set(was.rows.map(idOf))
        // What is not on the page may be behind it; only of a whole list it is known.
        const missing = row => (page.next_cursor ? row : { ...row, isGone: true })
        return { ...next, rows: was.rows.map(row => found.get(idOf(row)) ?? missing(row)), fresh: page.items.filter(row => !shown.has(idOf(row))).length }
      })
    } catch (error) {
      if (wanted === current.current) set(was => ({ ...was, path: wanted, rows: was.path === wanted ? was.rows : [], error }))
    }
  }
  const soon = useRef(null)
  soon.current ??= throttled(() => load.current(), live)
  useEffect(() => {
    load.current()
    return () => soon.current.stop()
  }, [path, reconnected.value])
  useEvents(event => when(event) && soon.current())
  return { ...list, isRead: list.path === path, reload: load.current, show: () => load.current({ replace: true }) }
}

/** Show what is new; it stands in a line that is there anyway, so that nothing moves. */
export const Fresh = ({ list }) =>
  list.fresh > 0 && html`<button class="fresh" onClick=${list.show}>Show ${list.fresh >= PAGE ? `${PAGE} or more` : number(list.fresh)} new</button>`

/**
 * Move through rows by j and k, and open one by Enter; returns which one is current.
 *
 * It is the same row wherever it moves, so that a key never acts on another one.
 */
export function useRows(rows, open, name, idOf = row => row.id) {
  const [id, setId] = useState(null)
  const current = rows.findIndex(row => idOf(row) === id)
  const move = step => {
    const next = Math.max(0, Math.min(rows.length - 1, current + step))
    if (!rows.length) return
    setId(idOf(rows[next]))
    document.querySelectorAll('[data-row]')[next]?.scrollIntoView({ block: 'nearest' })
  }
  useKeys({
    j: [() => move(1), `Next ${name}`],
    k: [() => move(-1), `Previous ${name}`],
    ...(open && { Enter: [() => rows[current] && open(rows[current]), `Open the ${name}`] }),
  })
  return current
}

/**
 * Move through the rows of all tables of a view by j and k, and follow a row's first link by Enter.
 *
 * Returns a function that gives the attributes of the row with an id.
 */
export function useTables() {
  const [id, setId] = useState(null)
  const rows = () => [...document.querySelectorAll('tr[data-row]')]
  const at = () => rows().findIndex(row => row.dataset.row === id)
  const move = step => {
    const all = rows()
    const next = all[Math.max(0, Math.min(all.length - 1, at() + step))]
    if (!next) return
    setId(next.dataset.row)
    next.scrollIntoView({ block: 'nearest' })
  }
  useKeys({
    j: [() => move(1), 'Next row'],
    k: [() => move(-1), 'Previous row'],
    Enter: [() => rows()[at()]?.querySelector('a')?.click(), 'Open the row'],
  })
  return own => ({ 'data-row': own, class: own === id ? 'current' : '', 'aria-current': own === id ? 'true' : undefined })
}
