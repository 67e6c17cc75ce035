// Inputs and outputs: never more than is asked for.
import { html, number, request, useEffect, useState } from './core.js'
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

/** Indent JSON; it stays as it is if that would change a value, like a large number. `write` is how. */
export function indented(text, write = value => JSON.stringify(value, null, 2)) {
  try {
    const value = JSON.parse(text)
    return JSON.stringify(value) === text.replace(BLANKS, '$1') ? write(value) : text
  } catch {
    return text
  }
}

export function Content({ path, label, name }) {
  const [state, set] = useState({})
  const [tries, retry] = useState(0)
  useEffect(() => {
    let isOver = false
    const show = found => isOver || set({ ...found, path })
    readSome(path).then(show, error => show({ error }))
    return () => (isOver = true)
  }, [path, tries])
  if (state.path !== path) return html`<p class="faint">Loading…</p>`
  return state.error ? html`<${Failure} error=${state.error} retry=${() => retry(tries + 1)} />`
    : html`<${Shown} key=${path} state=${state} path=${path} label=${label} name=${name} />`
}

function Shown({ state, path, label, name }) {
  const text = state.isWhole && state.text.length < 200_000 ? indented(state.text, pretty) : state.text
  return html`<${Text} text=${text} label=${label} />
    <div class="actions"><${Copy} text=${text} name=${`the ${label}`} /> <a href=${path} download=${name}>Download</a>
      ${state.size > 0 && html`<span class="faint">${number(state.size)} bytes${state.isWhole ? '' : '; only the first part is shown'}</span>`}</div>`
}
