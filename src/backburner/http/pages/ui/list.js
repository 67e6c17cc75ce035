// Lists that change while somebody looks at them, and rows that keys move through.
import { AGE, api, inOrder, number, reconnected, throttled, useEffect, useEvents, useKeys, useRef, useState, html } from './core.js'

const PAGE = 50

/** Merge a page into the rows that are shown: each stays in its place. */
function merged(rows, page, idOf, timeOf) {
  const found = new Map(page.items.map(row => [idOf(row), row]))
  const shown = new Set(rows.map(idOf))
  const isPart = Boolean(page.next_cursor || page.more)
  // Of a part, the newest first, only what is newer than its last row can be missed.
  const last = page.items.at(-1)
  const end = last && timeOf(last)
  const isGone = row => !isPart || timeOf(row) > end
  // Rows that come up from behind, because others left, are not new.
  const oldest = rows.map(timeOf).reduce((one, other) => (other < one ? other : one))
  const others = page.items.filter(row => !shown.has(idOf(row)))
  const fresh = others.filter(row => !isPart || !(timeOf(row) <= oldest)).length
  return {
    rows: rows.map(row => found.get(idOf(row)) ?? (isGone(row) ? { ...row, isGone: true } : row)),
    fresh,
    behind: others.length - fresh,
  }
}

/**
 * Read a list and keep it: `{rows, next, fresh, behind, error, isRead, show, reload}`.
 *
 * Rows that are shown change in place; others, new (`fresh`) or from behind, are only
 * counted until `show()`. What left is `isGone`. The latest `timeOf` comes first.
 */
export function useList(path, { live = 2000, when = () => true, idOf = row => row.id, timeOf = row => row.created_at, read = api }) {
  const [list, set] = useState({ path: null, rows: [], next: null, fresh: 0, behind: 0, error: null })
  const current = useRef(path)
  current.current = path
  const order = useRef(null)
  order.current ??= inOrder()
  const heard = useRef(-Infinity)
  const load = useRef(null)
  load.current ??= async ({ replace = false, age = 0 } = {}) => {
    const wanted = current.current
    const begun = performance.now()
    const isNext = order.current()
    try {
      const page = await read(wanted, { age })
      if (wanted !== current.current || !isNext()) return
      set(was => {
        const next = { path: wanted, next: page.next_cursor, fresh: 0, behind: 0, error: null }
        if (replace || was.path !== wanted || !was.rows.length) return { ...next, rows: page.items }
        // The next page begins after the rows that are shown, not after those that moved up.
        return { ...next, ...merged(was.rows, page, idOf, timeOf), next: was.next ?? page.next_cursor }
      })
      // The answer may be older than what has happened: it is read once more.
      if (age && heard.current > begun - age * 1000) soon.current()
    } catch (error) {
      if (wanted === current.current && isNext()) set(was => ({ ...was, path: wanted, rows: was.path === wanted ? was.rows : [], error }))
    }
  }
  const soon = useRef(null)
  soon.current ??= throttled(() => load.current({ age: live > AGE * 1000 ? AGE : 0 }), live)
  useEffect(() => {
    load.current()
    return () => soon.current.stop()
  }, [path, reconnected.value])
  useEvents(event => {
    if (!when(event)) return
    heard.current = performance.now()
    soon.current()
  })
  return { ...list, isRead: list.path === path, reload: () => load.current(), show: () => load.current({ replace: true }) }
}

const many = count => (count >= PAGE ? `${PAGE} or more` : number(count))

/** Show what is new; it stands in a line that is there anyway, so that nothing moves. */
export const Fresh = ({ list }) =>
  (list.fresh > 0 || list.behind > 0) && html`<button class="fresh" onClick=${list.show}>Show ${list.fresh ? `${many(list.fresh)} new` : `${many(list.behind)} more`}</button>`

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
