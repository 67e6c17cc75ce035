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

export function Content({ path, label, name, hidden }) {
  const [isOpen, open] = useState(!hidden)
  const [state, set] = useState(null)
  useEffect(() => {
    if (isOpen) readSome(path).then(set, error => set({ error }))
  }, [path, isOpen])
  if (!isOpen) return html`<p class="faint">This ${label} belongs to another user. <button onClick=${() => open(true)}>Show the ${label}</button></p>`
  if (!state) return html`<p class="faint">Loading…</p>`
  if (state.error) return html`<${Failure} error=${state.error} />`
  let text = state.text
  if (state.isWhole && text.length < 200_000) {
    try {
      text = pretty(JSON.parse(text))
    } catch {
      // It is shown as it is.
    }
  }
  return html`<${Text} text=${text} label=${label} />
    <div class="actions"><${Copy} text=${text} name=${`the ${label}`} /> <a href=${path} download=${name}>Download</a>
      ${state.size > 0 && html`<span class="faint">${number(state.size)} bytes${state.isWhole ? '' : '; only the first part is shown'}</span>`}</div>`
}
