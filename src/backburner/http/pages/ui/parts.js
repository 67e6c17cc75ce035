// Elements that several views use.
import { effect, html, me, signal, useApi, useEffect, useLayoutEffect, useRef, useState, api, bounded, say, sayProblem, visible } from './core.js'

// --- Icons: drawn here, so that no font is needed --------------------------------------

const PATHS = {
  blocked: 'M5 8h6M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11',
  scheduled: 'M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11M8 5v3l2 1.5',
  queued: 'M3 5h10M3 8h10M3 11h10',
  waiting: 'M6 6a2 2 0 1 1 2.8 1.8c-.6.3-.8.6-.8 1.2M8 11.5v.1',
  running: 'M5.5 3.5v9l7-4.5z',
  succeeded: 'M3 8.5l3.2 3.2L13 5',
  failed: 'M4 4l8 8M12 4l-8 8',
  cancelled: 'M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11M4.2 4.2l7.6 7.6',
  overview: 'M2.5 13.5h11M4 11V7M8 11V3M12 11V6',
  jobs: 'M3 4h10M3 8h10M3 12h6',
  incidents: 'M8 2.5L14 13H2zM8 6.5v3M8 11.3v.1',
  fleet: 'M2.5 3.5h11v3.5h-11zM2.5 9h11v3.5h-11zM5 5.2v.1M5 10.8v.1',
  cost: 'M8 2v12M11 4.5C10 3.5 5.5 3.3 5.5 5.8S11 7.7 11 10.2 6 12.7 5 11.5',
  lanes: 'M2 5h9M8.5 2.5L11 5 8.5 7.5M5 11h9M11.5 8.5L14 11l-2.5 2.5',
  playground: 'M3 3h10v10H3zM5.5 6l2 2-2 2M8.5 10.5h2.5',
  keys: 'M10 6a3 3 0 1 0-2.6 3L9 10.5V12h1.5v1.5H13V11L9.9 7.9',
  copy: 'M5.5 5.5h7v8h-7zM3.5 10.5v-8h7',
  pause: 'M5.5 3.5v9M10.5 3.5v9',
  retry: 'M13 8a5 5 0 1 1-1.6-3.7M13 2.5V5h-2.5',
  flows: 'M4 4.5a1.5 1.5 0 1 0 0 .1M4 11.5a1.5 1.5 0 1 0 0 .1M12 8a1.5 1.5 0 1 0 0 .1M5.5 4.5L10.5 7.5M5.5 11.5L10.5 8.5',
}

export const Icon = ({ name }) =>
  html`<svg class="icon" width="16" height="16" viewBox="0 0 16 16" aria-hidden="true" focusable="false"><path d=${PATHS[name] || PATHS.jobs} /></svg>`

export const STATES = ['blocked', 'scheduled', 'waiting', 'queued', 'running', 'succeeded', 'failed', 'cancelled']
export const LIVE = new Set(['blocked', 'scheduled', 'queued', 'running', 'waiting'])

export const State = ({ of }) =>
  html`<span class=${`state ${of}`}><${Icon} name=${of} />${of}</span>`

// --- Texts of users: always text, always bounded -----------------------------------------

const STEP = 20_000
const MOST = 1_000_000

/** A long text: the first part, and more on request. */
export function Text({ text, label, start = STEP }) {
  const [shown, show] = useState(start)
  const most = Math.min(text.length, MOST)
  return html`<div class="text">
    <pre tabindex="0" role="region" aria-label=${label} dir="ltr">${bounded(text, shown)}</pre>
    ${shown < most && html`<p><button onClick=${() => show(Math.min(most, shown * 10))}>
      Show more (${Math.min(most, shown * 10).toLocaleString('en-GB')} of ${text.length.toLocaleString('en-GB')} characters)</button></p>`}
    ${shown >= MOST && text.length > MOST && html`<p class="faint">The rest is not shown here: download it.</p>`}
  </div>`
}

/** A name of somebody's: one line, no control characters. */
export const Name = ({ text, most = 120 }) => html`<bdi title=${visible(text ?? '')}>${bounded(String(text ?? '–'), most)}</bdi>`

export function pretty(value) {
  return typeof value === 'string' ? value : JSON.stringify(value, null, 2) ?? ''
}

/** A short JSON value in one line. */
export const inline = (value, most = 200) => bounded(typeof value === 'string' ? value : JSON.stringify(value) ?? '', most)

// --- Actions -----------------------------------------------------------------------------

export function Copy({ text, label = 'Copy', name }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text)
      say(`Copied ${name || 'to the clipboard'}.`)
    } catch {
      say('The browser does not allow copying here. Select the text and copy it.', 'error')
    }
  }
  return html`<button class="quiet" onClick=${copy} aria-label=${label ? undefined : `Copy ${name}`} title=${`Copy ${name || ''}`}><${Icon} name="copy" /> ${label}</button>`
}

/** Send a request that changes something; say what came of it and read again. */
export async function act(path, done, reload, { method = 'POST', body = method === 'DELETE' ? undefined : {} } = {}) {
  try {
    const answer = await api(path, { method, body })
    say(done, 'info', answer?.id && answer.capability ? ['Show the job', `/ui/jobs/${answer.id}`] : null)
    reload()
    return true
  } catch (problem) {
    sayProblem(problem)
    return false
  }
}

const question = signal(null)

/** Ask before something that cannot be undone; resolves to whether to do it. */
export const confirmed = (title, text, action, { danger = false } = {}) =>
  new Promise(done => (question.value = { title, text, action, danger, done }))

// Nobody else may answer it: neither after a logout, nor with another login.
effect(() => {
  if (!me.value) question.value = null
})

export function Confirmation() {
  const dialog = useRef(null)
  const asked = question.value
  useEffect(() => {
    if (!asked) return
    dialog.current.showModal()
    // Enter must not do at once what cannot be undone.
    dialog.current.querySelector(`.actions button:${asked.danger ? 'first' : 'last'}-child`).focus()
  }, [asked])
  if (!asked) return null
  const answer = yes => {
    dialog.current.close()
    question.value = null
    asked.done(yes)
  }
  return html`<dialog ref=${dialog} aria-labelledby="question" onCancel=${event => (event.preventDefault(), answer(false))}>
    <h2 id="question">${asked.title}</h2>
    <p>${asked.text}</p>
    <div class="actions end">
      <button onClick=${() => answer(false)}>Go back</button>
      <button class=${asked.danger ? 'danger' : 'primary'} onClick=${() => answer(true)}>${asked.action}</button>
    </div>
  </dialog>`
}

// --- What a view shows when it has nothing -------------------------------------------------

const USUAL = ['http://127.0.0.1:8765', 'http://localhost:8765']
const LOCAL = /\bbackburner (worker|serve|keys|doctor)\b/

/** Return a command so that it reaches this server: with its address, unless that is the default. */
export const reaching = command =>
  USUAL.includes(location.origin) || LOCAL.test(command) || / --url |^curl /.test(command) ? command : `${command} --url ${location.origin}`

/** A command to copy that can be run as it is; if it needs a key, a line says where it reads it. */
export const Command = ({ text }) => html`<div class="command"><code>${reaching(text).split(' ').flatMap((word, at) => [at ? ' ' : '', html`<span class="word">${word}</span>`])}</code><${Copy} text=${reaching(text)} name="the command" /></div>
  ${me.value?.needs_login && !LOCAL.test(text) && html`<p class="key-note">Set the environment variable <code>BACKBURNER_API_KEY</code> to an API key first.</p>`}`

export const Empty = ({ title, children, command, level = 'h2' }) => html`<div class="empty">
  <${level}>${title}</${level}>
  <p>${children}</p>
  ${command && html`<${Command} text=${command} />`}
</div>`

/** Return the smallest value that a JSON schema accepts, as far as that is simple. */
export function least(schema, root = schema) {
  if (schema?.$ref) return least(root.$defs?.[schema.$ref.split('/').at(-1)], root)
  if (!schema || schema === true) return null
  if ('default' in schema) return schema.default
  if ('const' in schema) return schema.const
  const choices = schema.enum ?? schema.examples
  if (choices?.length) return choices[0]
  if (schema.anyOf || schema.allOf) return least((schema.anyOf ?? schema.allOf)[0], root)
  const type = [schema.type].flat()[0]
  if (type === 'object' || schema.properties) return Object.fromEntries((schema.required ?? []).map(name => [name, least(schema.properties?.[name], root)]))
  if (type === 'array') return schema.minItems ? [least(schema.items, root)] : []
  if (type === 'string') return 'text'
  if (type === 'integer' || type === 'number') return schema.minimum ?? 1
  return type === 'boolean' ? false : null
}

/**
 * Return a capability of this server to try: `{name, input}` with JSON for a shell.
 *
 * null: it has none; undefined: not known yet; false: it could not be read.
 */
export function useSample() {
  const isSeen = Boolean(me.value?.scopes.includes('jobs:read'))
  const { data, error } = useApi(isSeen ? '/v1/capabilities' : null)
  if (!data) return isSeen ? (error ? false : undefined) : null
  const usable = data.items.filter(one => !one.name.startsWith('backburner.') && one.name !== 'webhook.deliver')
  const one = usable.find(each => each.name === 'demo.echo') ?? usable[0]
  if (!one) return null
  const input = one.name === 'demo.echo' ? { hello: 'world' } : least(one.input_schema)
  return { name: one.name, input: JSON.stringify(input).replaceAll("'", "'\\''") }
}

export const Failure = ({ error, retry }) =>
  error && html`<div class="notice bad" role="alert">
    <p dir="ltr"><strong>${bounded(error.message, 1000)}</strong>${error.errors?.slice(0, 20).map(one => html` <span>${bounded(one.path, 200)}: ${bounded(one.message, 500)}.</span>`)}</p>
    ${retry && html`<button onClick=${retry}>Try again</button>`}
  </div>`

export const Meter = ({ value, most, label }) => html`<progress value=${value} max=${most} aria-label=${label}></progress>`

/** How much of a whole is in each state: one bar, and its numbers as text. */
export function Shares({ counts, label }) {
  const present = STATES.filter(state => counts[state])
  const total = present.reduce((sum, state) => sum + counts[state], 0)
  let from = 0
  return html`<div class="shares"><svg viewBox="0 0 1000 8" preserveAspectRatio="none" role="img" aria-label=${label}>
    <rect class="back" width="1000" height="8" />
    ${BAR.filter(state => counts[state]).map(state => {
      const x = from
      from += (1000 * counts[state]) / total
      return html`<rect key=${state} class=${`fill ${state}`} x=${x} width=${from - x} height="8" />`
    })}</svg></div>`
}
const BAR = ['succeeded', 'failed', 'cancelled', 'running', 'waiting', 'queued', 'scheduled', 'blocked']

/** A title with what can be done beside it. */
export function Head({ title, children }) {
  const heading = useRef(null)
  // A title that follows another one, when a view has read its data, has its focus too.
  useLayoutEffect(() => {
    if (document.activeElement === document.body) heading.current.focus({ preventScroll: true })
  }, [])
  return html`<div class="head"><h1 tabindex="-1" ref=${heading}>${title}</h1><div class="actions">${children}</div></div>`
}

/** A table in a frame that scrolls by itself: the page never gets wider. */
export const Frame = ({ label, children }) => html`<div class="frame" tabindex="0" role="region" aria-label=${label}>${children}</div>`
