// A text box for `field:value` words that completes the word at the cursor.
import { html, useRef, useState, bounded, HIDDEN } from './core.js'

const MOST = 12

/** Split a text into words; one may contain spaces in quotes. */
export const words = text => text.match(/\w+:[^\s"]*"(?:\\.|[^"\\])*"|\S+/g) || []

/** Read `field:value`; the value, or the end of it, may be in quotes, with the escapes of JSON. */
export function readWord(word) {
  const [, field, plain, quoted = ''] = word.match(/^(\w+):([^"]*)(?:"((?:\\.|[^"\\])*)"?)?$/) || []
  if (!field) return null
  try {
    return { field, value: plain + JSON.parse(`"${quoted}"`) }
  } catch {
    return { field, value: plain + quoted }
  }
}

/** Write a word that `readWord` reads, without characters that an input would drop or that change its direction. */
export function writeWord(field, value) {
  if (!/[\s"]/.test(value) && value.search(HIDDEN) < 0) return `${field}:${value}`
  const escaped = one => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`
  return `${field}:${JSON.stringify(value).replace(HIDDEN, escaped)}`
}

/** Split a text around the word that the cursor is in or after. */
function wordAt(text, cursor) {
  const start = cursor - text.slice(0, cursor).match(/(?:\w+:[^\s"]*"(?:\\.|[^"\\])*|\S*)$/)[0].length
  const rest = text.slice(cursor).match(/^\S*/)[0]
  return { before: text.slice(0, start), word: text.slice(start, cursor), after: text.slice(cursor + rest.length) }
}

/**
 * Return what completes a word: `[{label, text}]`.
 *
 * `fields` has the values of each field, as far as they are known; of the fields in
 * `lists` there may be several, separated by commas.
 */
export function completions(word, fields, lists = []) {
  const { field, value } = readWord(word) ?? {}
  if (!field) return Object.keys(fields).filter(name => name.startsWith(word)).map(name => ({ label: `${name}:`, text: `${name}:` }))
  const given = lists.includes(field) ? value.split(',') : [value]
  const last = given.pop().toLowerCase()
  const known = (fields[field] ?? []).filter(one => !given.includes(one))
  // What begins with the text comes before what contains it.
  const begins = known.filter(one => one.toLowerCase().startsWith(last))
  const contains = known.filter(one => !begins.includes(one) && one.toLowerCase().includes(last))
  return [...begins, ...contains].slice(0, MOST).map(one => ({ label: one, text: writeWord(field, [...given, one].join(',')) }))
}

const CARET = new Set(['ArrowLeft', 'ArrowRight', 'Home', 'End'])

/** The box; its element is `box.current`. `ask` is called once the values of fields are needed. */
export function Completed({ box, fields, lists, ask, ...attributes }) {
  // The word that is completed; null: the list is closed.
  const [word, setWord] = useState(null)
  const [chosen, choose] = useState(null)
  const list = useRef(null)
  const possible = word === null ? [] : completions(word, fields, lists)
  const found = possible.length === 1 && possible[0].text === word ? [] : possible
  const at = found.findIndex(one => one.text === chosen)
  const isOpen = found.length > 0
  const close = () => (setWord(null), choose(null))
  const look = () => {
    setWord(wordAt(box.current.value, box.current.selectionStart).word)
    choose(null)
  }
  const accept = one => {
    const { before, after } = wordAt(box.current.value, box.current.selectionStart)
    // A field goes on with its value; after a value comes the next word.
    const isField = !readWord(one.text).value
    const start = `${before}${one.text}${isField ? '' : ' '}`
    box.current.value = start + (isField ? after : after.trimStart())
    box.current.setSelectionRange(start.length, start.length)
    isField ? look() : close()
  }
  const move = step => {
    if (!isOpen) return look()
    const next = at < 0 ? (step > 0 ? 0 : found.length - 1) : (at + step + found.length) % found.length
    choose(found[next].text)
    list.current.children[next].scrollIntoView({ block: 'nearest' })
  }
  const press = event => {
    if (event.isComposing) return
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (CARET.has(event.key)) close() // the caret leaves the word
    if (step) move(step)
    else if (event.key === 'Enter' && at >= 0) accept(found[at])
    else if (event.key === 'Escape' && isOpen) close()
    else return event.key === 'Enter' && close()
    event.preventDefault()
  }
  return html`<span class="completed"><input ref=${box} ...${attributes} role="combobox" aria-autocomplete="list" aria-haspopup="listbox" aria-expanded=${isOpen}
      aria-controls=${isOpen ? 'completions' : undefined} aria-activedescendant=${at >= 0 ? `completion-${at}` : undefined}
      autocomplete="off" spellcheck=${false} onFocus=${ask} onInput=${look} onKeyDown=${press} onClick=${close} onBlur=${close} />
    ${isOpen && html`<ul id="completions" ref=${list} role="listbox" aria-label="Completions">${found.map((one, place) => html`<li key=${one.text} id=${`completion-${place}`} role="option" aria-selected=${place === at}
      onMouseDown=${event => (event.preventDefault(), accept(one))}><bdi>${bounded(one.label, 80)}</bdi></li>`)}</ul>`}</span>`
}
