// Inputs and outputs: never more than is asked for.
import { html, number, request, useEffect, useRef, useState } from './core.js'
import { Copy, Failure, pretty, Text } from './parts.js'

const CONTENT_MOST = 2_000_000

/** Read at most `CONTENT_MOST` characters of an address. */
export async function readSome(path) {
  const response = await request(path)
  if (!response.ok) throw new Error((await response.json().catch(() => ({}))).detail || `The content cannot be read (status ${response.status}). Try again.`)
  const size = Number(response.headers.get('content-length') || 0)
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  for (;;) {
    const { value, done } = await reader.read()
    if (done) return { text, size, isWhole: true }
    text += value
    if (text.length > CONTENT_MOST) {
      await reader.cancel()
      return { text: text.slice(0, CONTENT_MOST), size, isWhole: false }
    }
  }
}

const BLANKS = /("(?:[^"\\]|\\.)*")|\s+/g

/** Indent JSON; it stays as it is if that would change a value, like a large number. */
export function indented(text) {
  try {
    const value = JSON.parse(text)
    return JSON.stringify(value) === text.replace(BLANKS, '$1') ? pretty(value) : text
  } catch {
    return text
  }
}

export function Content({ path, label, name, hidden }) {
  // What was opened is this content only: another path is hidden, and read, by itself.
  const [opened, open] = useState(hidden ? null : path)
  const [state, set] = useState({})
  const [tries, retry] = useState(0)
  const frame = useRef(null)
  const isOpen = !hidden || opened === path
  useEffect(() => {
    if (!isOpen) return
    let isOver = false
    const show = found => isOver || set({ ...found, path })
    readSome(path).then(show, error => show({ error }))
    return () => (isOver = true)
  }, [path, isOpen, tries])
  useEffect(() => {
    // The button that had the focus is gone.
    if (hidden && isOpen) frame.current?.focus()
  }, [isOpen])
  if (!isOpen) return html`<p class="faint">This ${label} belongs to another user. <button onClick=${() => open(path)}>Show the ${label}</button></p>`
  return html`<div ref=${frame} tabindex="-1">${
    state.path !== path ? html`<p class="faint">Loading…</p>`
      : state.error ? html`<${Failure} error=${state.error} retry=${() => retry(tries + 1)} />`
        : html`<${Shown} key=${path} state=${state} path=${path} label=${label} name=${name} />`
  }</div>`
}

function Shown({ state, path, label, name }) {
  const text = state.isWhole && state.text.length < 200_000 ? indented(state.text) : state.text
  return html`<${Text} text=${text} label=${label} />
    <div class="actions"><${Copy} text=${text} name=${`the ${label}`} /> <a href=${path} download=${name}>Download</a>
      ${state.size > 0 && html`<span class="faint">${number(state.size)} bytes${state.isWhole ? '' : '; only the first part is shown'}</span>`}</div>`
}
