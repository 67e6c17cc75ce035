// The timeline of a job: every wait with its reason, every attempt, its steps and model calls.
import { html, useEffect, useRef, useState, Ago, api, exact, money, now, number, reconnected, span, throttled, useApi, useEvents } from './core.js'
import { Failure, Icon, inline, LIVE, Name, State } from './parts.js'

/** How many parts are shown, and how many steps and calls of each attempt. */
const PARTS = 60
const WITHIN = 50
const STEPS = 500
const CALLS = 200
const POLL_MS = 2000 // a stored step has no event

/** How many changes are read at once, and at most. */
const PAGE = 500
const MOST_CHANGES = 10_000

/**
 * Read the changes of a job's state: all at first, then only those that follow.
 *
 * Returns `{items, isCut, error, reload}`; `isCut`: more follow, which are not read (yet).
 */
export function useChanges(path, isMine) {
  const [state, set] = useState({ items: [], isCut: false, error: null })
  const items = useRef([])
  // One request at a time: the next one begins after the last change of this one.
  const busy = useRef(false)
  const again = useRef(false)
  const isOver = useRef(false)
  const read = useRef(null)
  read.current ??= async () => {
    again.current = busy.current
    if (busy.current) return
    busy.current = true
    try {
      for (let more = true; more && items.current.length < MOST_CHANGES && !isOver.current; ) {
        const page = await api(`${path}/history?changes=true&limit=${PAGE}&after=${items.current.at(-1)?.n ?? 0}`)
        items.current = [...items.current, ...page.items]
        more = page.more
        set({ items: items.current, isCut: more, error: null })
      }
    } catch (error) {
      set(was => ({ ...was, error }))
    }
    busy.current = false
    if (again.current && !isOver.current) read.current()
  }
  const soon = useRef(null)
  soon.current ??= throttled(() => read.current(), 300)
  useEffect(() => void read.current(), [reconnected.value])
  useEffect(() => () => {
    isOver.current = true
    soon.current.stop()
  }, [])
  useEvents(event => isMine(event) && soon.current())
  return { ...state, reload: read.current }
}

const ENDS = { succeeded: 'good', failed: 'bad', cancelled: 'bad', retrying: 'bad', stalled: 'bad' }

/** What happens to a job while its state stays: a line of its own, which ends nothing. */
const NOTES = {
  forked: ({ from, steps }) => `Forked from ${from}, with the results of ${steps} ${steps === 1 ? 'step' : 'steps'}`,
  changed: ({ priority }) => `Priority changed to ${priority}`,
  'step.changed': ({ step, unread }) => `Step ${step} has no stored result that matches its request; ${unread} stored ${unread === 1 ? 'result has' : 'results have'} not been used`,
}

/**
 * Turn events into segments: `{kind, label, from, to, note}`.
 *
 * With `isCut` more events follow: nothing is known of what is after the last one.
 */
export function segments(events, job, isCut = false) {
  const found = []
  let open = null
  for (const event of events) {
    const name = event.type.slice(4)
    if (NOTES[name]) {
      found.push({ kind: 'note', label: NOTES[name](event.data), from: event.at, to: event.at, n: event.n })
      continue
    }
    if (open) {
      open.to = event.at
      if (open.kind === 'running') {
        open.tone = ENDS[name] || ''
        open.note = event.data.error ? `${event.data.error.code}: ${event.data.error.message}` : name === 'succeeded' ? '' : name
      }
    }
    const next = segment(name, event)
    open = next && { ...next, from: event.at, n: event.n }
    if (open) found.push(open)
  }
  if (open && isCut) open.to = open.from
  else if (open && !LIVE.has(job.state)) open.to = job.finished_at
  return found
}

const WAITS = {
  sleep: 'Sleeps', lane: 'Waits for the model’s rate limit', signal: 'Waits for a signal',
  question: 'Waits for an answer', job: 'Waits for another job',
}

function segment(name, { data }) {
  const error = data.error?.message
  switch (name) {
    case 'blocked': return { kind: 'blocked', label: 'Waits for earlier steps' }
    case 'queued': return { kind: 'queued', label: data.outcome === 'handed_back' ? 'Queued again: its worker stopped' : data.generation ? `Queued again by retry ${data.generation}` : 'Waits for a worker' }
    case 'scheduled': return { kind: 'scheduled', label: error ? `Waits: ${error}` : WAITS[data.wait?.reason] || 'Waits for its start time' }
    case 'waiting': return { kind: 'scheduled', label: `${WAITS[data.wait?.reason] || 'Waits'}${data.wait?.name ? `: ${data.wait.name}` : ''}` }
    case 'signalled': return { kind: 'queued', label: 'Queued again: its wait has ended' }
    case 'throttled': return { kind: 'scheduled', label: `Rate limited${data.lane ? ` on ${data.lane}` : ''}: ${error || 'the provider asked to wait'}` }
    case 'retrying': return { kind: 'scheduled', label: 'Waits before the next attempt' }
    case 'stalled': return { kind: 'queued', label: 'Queued again: its worker was lost' }
    case 'started': return { kind: 'running', label: `Attempt ${data.attempt}`, note: '' }
  }
  return null
}

/** The kinds of steps that are waits: these are parts of their own. */
const PAUSES = new Set(['sleep', 'run', 'draft'])

/** Return the steps and model calls of a run, in order: `{key, label, detail, from, to, kind}`. */
export function within(run, steps, calls) {
  const found = []
  for (const step of steps) {
    const isOpen = step.state !== 'stored'
    // The call of a model that was answered is among the calls.
    if (step.run !== run || PAUSES.has(step.kind) || (step.kind !== 'step' && !isOpen)) continue
    const at = Date.parse(step.stored_at)
    const name = step.kind === 'step' ? step.name : 'model call'
    const detail = step.state === 'in_doubt' ? 'its worker was lost before it ended' : ''
    found.push({
      key: `s ${step.kind} ${step.name} ${at}`, label: name, detail, kind: isOpen ? (detail ? 'bad' : 'running') : 'good',
      from: isOpen ? at : at - (step.duration_ms ?? 0), to: isOpen && !detail ? null : at, took: step.duration_ms,
    })
  }
  for (const [n, call] of calls.entries()) {
    if (call.run !== run) continue
    const at = Date.parse(call.at)
    found.push({
      key: `c ${n}`, label: call.model, kind: 'call', from: at - (call.duration_ms ?? 0), to: at, took: call.duration_ms,
      detail: `${number(call.input_tokens)} + ${number(call.output_tokens)} tokens, ${money(call.cost_usd)}`,
    })
  }
  return found.sort((one, other) => one.from - other.from)
}

/** How an attempt ended. */
const Ended = ({ tone }) =>
  tone === 'good' ? html`<${State} of="succeeded" />` : tone === 'bad' ? html`<${State} of="failed" />` : html`<span class="state running ended"><${Icon} name="running" />ran</span>`

/** A bar on the line of the whole job; all numbers are milliseconds. */
function Track({ from, to, start, whole, kind }) {
  const x = Math.min(996, Math.max(0, ((from - start) / whole) * 1000))
  const width = Math.min(1000 - x, Math.max(4, ((to - from) / whole) * 1000))
  return html`<svg class="track" viewBox="0 0 1000 5" preserveAspectRatio="none" aria-hidden="true">
    <rect class="back" width="1000" height="5" rx="2" /><rect class=${kind} x=${x} width=${width} height="5" rx="2" /></svg>`
}

function Part({ one, start, whole }) {
  const to = one.to ?? now.value
  const isKnown = one.to === null || one.took !== null
  return html`<li class="within"><span class="kind">${one.kind === 'call' ? 'model' : 'step'}</span>
    <span class="what"><${Name} text=${one.label} most=${80} />${one.detail && html`<span class=${one.kind === 'bad' ? 'bad-text' : 'faint'}>${one.detail}</span>`}</span>
    <span class="span" title=${exact(one.from)}>${isKnown ? span(to - one.from) : '–'}</span>
    <${Track} from=${one.from} to=${to} start=${start} whole=${whole} kind=${one.kind} /></li>`
}

export function Timeline({ changes, job }) {
  const path = `/v1/jobs/${encodeURIComponent(job.id)}`
  const isMine = event => event.job_id === job.id
  const steps = useApi(`${path}/steps?content=false&limit=${STEPS}`, { live: POLL_MS, when: isMine })
  const calls = useApi(job.usage || job.state === 'running' ? `${path}/calls?limit=${CALLS}` : null, { live: POLL_MS, when: isMine })
  useEffect(() => {
    if (job.state !== 'running') return
    const timer = setInterval(() => document.hidden || (steps.reload(), calls.reload()), POLL_MS)
    return () => clearInterval(timer)
  }, [job.state])
  const parts = segments(changes.items, job, changes.isCut)
  const failure = html`<${Failure} error=${changes.error} retry=${changes.reload} />`
  if (!parts.length) return changes.error ? failure : html`<p class="faint">Nothing has happened yet.</p>`
  const shown = parts.length > PARTS ? [...parts.slice(0, PARTS / 3), ...parts.slice((-PARTS * 2) / 3)] : parts
  const at = text => (text ? Date.parse(text) : now.value)
  const start = at(shown[0].from)
  const end = Math.max(...shown.map(part => at(part.to)))
  const whole = Math.max(1, end - start)
  const hasMore = steps.data?.more || calls.data?.next_cursor
  return html`${failure}${changes.isCut && html`<p class="faint">The timeline ends after the first ${number(changes.items.length)} changes of state. Events lists all of them.</p>`}
    ${hasMore && html`<p class="faint">The timeline includes the first ${STEPS} steps and the first ${CALLS} model calls.</p>`}
    ${shown.length < parts.length && html`<p class="faint">${number(parts.length - shown.length)} entries in the middle are not shown.</p>`}
    <ol class="timeline">${shown.map(part => {
      if (part.kind === 'note') return html`<li class="within" key=${part.n}><span class="kind">note</span><span class="what">${inline(part.label, 240)}</span><span class="span"><${Ago} at=${part.from} /></span></li>`
      const inner = part.kind === 'running' ? within(part.n, steps.data?.items ?? [], calls.data?.items ?? []) : []
      const kind = part.kind === 'running' ? part.tone || 'running' : part.kind === 'scheduled' ? 'wait' : ''
      return html`<li key=${part.n}>${part.kind === 'running' && part.to ? html`<${Ended} tone=${part.tone} />` : html`<${State} of=${part.kind} />`}
        <span class="what"><span title=${`${exact(part.from)} to ${exact(part.to)}`}>${inline(part.label, 160)}</span>
          ${part.note && html`<span class=${part.tone === 'bad' ? 'bad-text' : 'faint'} dir="ltr">${inline(part.note, 200)}</span>`}</span>
        <span class="span">${span(at(part.to) - at(part.from))}</span>
        <${Track} from=${at(part.from)} to=${at(part.to)} start=${start} whole=${whole} kind=${kind} /></li>
        ${inner.slice(0, WITHIN).map(one => html`<${Part} key=${`${part.n} ${one.key}`} one=${one} start=${start} whole=${whole} />`)}
        ${inner.length > WITHIN && html`<li class="within" key=${`${part.n} more`}><span class="what faint">${number(inner.length - WITHIN)} more: see Steps</span></li>`}`
    })}</ol>`
}
