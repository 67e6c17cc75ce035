// One job: why it waits, what it did, what came of it, and what can be done with it.
import {
  html, useEffect, useRef, useState, address, Ago, api, bounded, exact, go, may, me, money, now, number, route, say, sayProblem, span,
  reconnected, useApi, useEvents, useKeys,
} from './core.js'
import { confirmed, Copy, Failure, Frame, Head, Icon, inline, LIVE, Meter, Name, State, Text } from './parts.js'
import { TEXT_KEPT, useWritten } from './written.js'
import { Content, readSome } from './contents.js'
import { commands } from './copying.js'
import { ForkForm } from './fork.js'
import { lastJobs } from './jobs.js'
import { Timeline, useChanges } from './timeline.js'

const EVENTS_SHOWN = 200
const STEPS_SHOWN = 500

// --- Attempts, steps, events ----------------------------------------------------------------

/** How an error of a run looks: waiting on purpose is none. */
const lookOf = error => (error && error.code !== 'SNOOZED' ? 'bad-text' : 'faint')

const Attempt = ({ attempt }) => html`<div class="attempt">
  <div class="head"><strong>Attempt ${attempt.number}${attempt.generation ? `, retry ${attempt.generation}` : ''}</strong>
    <span class=${lookOf(attempt.error)}>${attempt.outcome || 'running'}</span>
    <span class="faint"><${Ago} at=${attempt.started_at} />, ${span((attempt.finished_at ? Date.parse(attempt.finished_at) : now.value) - Date.parse(attempt.started_at))}, worker <span class="mono">${bounded(attempt.worker, 20)}</span></span></div>
  ${attempt.error && html`<p class=${lookOf(attempt.error)} dir="ltr">${inline(`${attempt.error.code}: ${attempt.error.message}`, 2000)}</p>`}
  ${attempt.trace ? html`<details><summary>Stack trace</summary><${Text} text=${attempt.trace} label="Stack trace" /></details>` : ''}
</div>`

/** The model calls of a job, one by one. */
function Calls({ id, count }) {
  const { data, error, reload } = useApi(`/v1/jobs/${id}/calls?limit=50`, { live: 2000, when: event => event.job_id === id })
  if (!data) return html`<${Failure} error=${error} retry=${reload} />`
  return html`<${Frame} label="Model calls"><table class="wraps"><thead><tr><th scope="col">Call</th><th scope="col" class="number">Tokens</th><th scope="col" class="number">Cost</th></tr></thead>
    <tbody>${data.items.map(call => html`<tr><td><${Name} text=${call.model} most=${60} /><br /><span class="faint"><${Ago} at=${call.at} />${call.duration_ms !== null && `, took ${span(call.duration_ms)}`}${call.late && html`, <span title="The call ended after the job was cancelled or given to another worker">late</span>`}</span></td>
      <td class="number">${number(call.input_tokens)} + ${number(call.output_tokens)}</td><td class="number">${money(call.cost_usd)}</td></tr>`)}</tbody></table></${Frame}>
    ${data.next_cursor && html`<p class="faint">The first ${number(data.items.length)} of ${number(count)} are shown.</p>`}`
}

/** What stands in place of the content of another user's job, until it is asked for. */
const Hidden = ({ reveal }) => html`<p class="faint">The content of this job belongs to another user. <button onClick=${reveal}>Show the content</button></p>`

/**
 * The stored steps; `fork` begins a new job at the one that is chosen, if that is possible.
 *
 * With `reveal` the results are hidden: it shows them.
 */
function Steps({ id, fork, reveal }) {
  const { data, error, reload } = useApi(`/v1/jobs/${id}/steps?limit=${STEPS_SHOWN}${reveal ? '&content=false' : ''}`, { live: 2000, when: event => event.job_id === id })
  if (!data) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<p class="faint">Loading…</p>`
  if (!data.items.length) return html`<${Failure} error=${error} retry=${reload} /><p class="faint">The handler has stored no results of steps or model calls.</p>`
  return html`<${Failure} error=${error} retry=${reload} />${reveal && html`<${Hidden} reveal=${reveal} />`}<${Frame} label="Steps and model calls"><table><thead><tr><th scope="col" class="number">No.</th><th scope="col">Step</th><th scope="col">Kind</th><th scope="col" class="number">Duration</th><th scope="col">Stored</th><th scope="col">Result</th>${fork && html`<th scope="col"><span class="unseen">Actions</span></th>`}</tr></thead>
    <tbody>${data.items.map(step => html`<tr key=${`${step.kind} ${step.name} ${step.stored_at}`}><td class="number">${step.n ?? ''}</td><td><${Name} text=${step.name} most=${60} />${step.state !== 'stored' && html` <span class=${step.state === 'in_doubt' ? 'bad-text' : 'faint'}>${step.state.replace('_', ' ')}</span>`}</td>
      <td>${step.kind}</td><td class="number">${span(step.duration_ms)}</td><td class="time"><${Ago} at=${step.stored_at} /></td>
      <td class="mono" dir="ltr">${step.result !== null ? inline(step.result, 160) : step.state === 'stored' ? html`<span class="faint">${number(step.size)} characters</span>` : ''}</td>
      ${fork && html`<td>${step.n && html`<button onClick=${() => fork(step.n)}>Fork</button>`}</td>`}</tr>`)}</tbody></table></${Frame}>
    ${data.more && html`<p class="faint">The first ${number(data.items.length)} are shown.</p>`}`
}

/** All events, in pages; with `reveal` their data is hidden: it shows them. */
function Events({ id, reveal }) {
  const [after, setAfter] = useState(0)
  const { data, error, reload } = useApi(`/v1/jobs/${id}/history?after=${after}&limit=${EVENTS_SHOWN}`, { live: 1000, when: event => event.job_id === id })
  if (!data) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<p class="faint">Loading…</p>`
  const last = data.items.at(-1)?.n ?? after
  return html`<${Failure} error=${error} retry=${reload} />${reveal && html`<${Hidden} reveal=${reveal} />`}<${Frame} label="Events"><table><thead><tr><th scope="col" class="number">No.</th><th scope="col">Event</th><th scope="col">Time</th><th scope="col">Data</th></tr></thead>
    <tbody>${data.items.map(event => html`<tr key=${event.n}><td class="number">${event.n}</td><td class="mono">${event.type}</td><td class="time">${exact(event.at)}</td>
      <td class="mono" dir="ltr">${reveal ? html`<span class="faint">hidden</span>` : inline(event.data, 240)}</td></tr>`)}</tbody></table></${Frame}>
    <div class="pager">${after > 0 && html`<button onClick=${() => setAfter(Math.max(0, after - EVENTS_SHOWN))}>Previous page</button>`}
      ${data.more && html`<button onClick=${() => setAfter(last)}>Next page</button>`}
      ${data.total > last && html`<button onClick=${() => setAfter(Math.max(0, data.total - EVENTS_SHOWN))}>Last page</button>`}
      <span class="faint">${number(data.items[0]?.n ?? 0)}–${number(last)} of ${number(data.total)} events</span></div>`
}

// --- Webhooks ------------------------------------------------------------------------------------

const DELIVERIES_SHOWN = 50

/** The deliveries that reported the end of this job: they are jobs. */
function Deliveries({ path, id }) {
  const shown = useRef(new Set())
  const isMine = event => event.job_id === id || shown.current.has(event.job_id)
  const { data, error, reload } = useApi(`${path}/deliveries?limit=${DELIVERIES_SHOWN}`, { live: 3000, when: isMine })
  shown.current = new Set((data?.items ?? []).map(one => one.id))
  if (!data) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<p class="faint">Loading…</p>`
  if (!data.items.length) return html`<${Failure} error=${error} retry=${reload} /><p class="faint">No webhook has been sent for this job.</p>`
  return html`<${Failure} error=${error} retry=${reload} /><${Frame} label="Webhook deliveries"><table><thead><tr><th scope="col">State</th><th scope="col">Delivery</th><th scope="col">Submitted</th><th scope="col" class="number">Attempt</th><th scope="col">Error</th></tr></thead>
    <tbody>${data.items.map(one => html`<tr key=${one.id}><td><${State} of=${one.state} /></td><td class="mono"><a href=${`/ui/jobs/${one.id}`} title=${one.id}>…${one.id.slice(-8)}</a></td><td class="time"><${Ago} at=${one.created_at} /></td><td class="number">${one.attempt}/${one.max_attempts}</td>
      <td dir="ltr">${one.error && one.state !== 'succeeded' ? inline(`${one.error.code}: ${one.error.message}`, 160) : ''}</td></tr>`)}</tbody></table></${Frame}>
    ${data.next_cursor && html`<p class="faint">The newest ${number(data.items.length)} are shown.</p>`}`
}

// --- The result of a bulk action -------------------------------------------------------------------

const BULK = 'backburner.bulk'
const jobs = count => `${number(count)} ${count === 1 ? 'job' : 'jobs'}`
const SKIPPED = { cancel: 'ended before the action reached them, or could not be found', retry: 'were not failed when the action reached them, could not be found, or exceeded a budget' }

function BulkResult({ path }) {
  const { data, error, reload } = useApi(`${path}/result`)
  if (!data?.action) return html`<${Failure} error=${error} retry=${reload} />`
  const { action, changed, skipped, stages, stopped } = data
  return html`<div class="card"><h2>Result</h2><p>${jobs(changed)} ${action === 'cancel' ? 'cancelled' : 'retried'}, ${number(skipped)} skipped${skipped ? `: they ${SKIPPED[action]}` : ''}.</p>
    ${stages.length > 0 && html`<ol>${stages.map((one, at) => html`<li>Stage ${at + 1}, ${jobs(one.ids.length)}: ${number(one.succeeded)} succeeded, ${number(one.failed)} failed again</li>`)}</ol>`}
    ${stopped && html`<p class="bad-text">The ${action} stopped${stages.length ? ` after stage ${stages.length}` : ''}: ${inline(stopped, 300)}. The other jobs were not ${action === 'cancel' ? 'cancelled' : 'retried'}.</p>`}</div>`
}

// --- Copy as -------------------------------------------------------------------------------------

/** Copies a command that submits the job again; `isHidden`: the input belongs to another user. */
function CopyAs({ job, path, isHidden }) {
  const menu = useRef(null)
  const copy = async kind => {
    menu.current.open = false
    if (isHidden && !(await confirmed(`Copy the input of another user's job?`, 'The command contains the input, the tags and the metadata of this job.', `Copy as ${kind}`))) return
    try {
      if (!navigator.clipboard) throw new Error('The browser allows copying only on pages that are served over HTTPS or from this machine.')
      const found = await readSome(`${path}/input`)
      if (!found.isWhole) throw new Error('The input is too large to copy: download it instead.')
      await navigator.clipboard.writeText(commands(job, found.text, { origin: location.origin, isKeyed: me.value.needs_login })[kind])
      say(`Copied as ${kind}. Running it submits a new job with the same input.`)
    } catch (error) {
      say(error.message, 'error')
    }
  }
  return html`<details class="menu" ref=${menu}><summary>Copy as…</summary><div>
    ${['curl', 'Python', 'CLI'].map(kind => html`<button class="quiet" onClick=${() => copy(kind)}>${kind}</button>`)}</div></details>`
}

// --- The view --------------------------------------------------------------------------------------

const TABS = ['Timeline', 'Input', 'Output', 'Steps', 'Events', 'Webhooks']

/** Go to the tab beside it by the arrow keys. */
function moveTab(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key]
  if (!step) return
  const tabs = [...event.currentTarget.children]
  const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length]
  next.focus()
  next.click()
}

/** What a job does now, or how it ended: one line that is always there, so that nothing jumps. */
function Now({ job, told, why }) {
  const isLive = LIVE.has(job.state)
  const error = job.error && job.state !== 'succeeded' && job.error.code !== 'SNOOZED' ? job.error : null
  const since = job.started_at ? span((job.finished_at ? Date.parse(job.finished_at) : now.value) - Date.parse(job.started_at)) : null
  const whole = span((job.finished_at ? Date.parse(job.finished_at) : now.value) - Date.parse(job.created_at))
  const last = error && html` Last error: <bdi title=${inline(error.message, 2000)}>${bounded(error.code, 80)}: ${inline(error.message, 300)}</bdi>`
  const look = job.state === 'failed' ? 'bad' : isLive && job.state !== 'running' ? 'warn' : ''
  const isBulk = job.capability === BULK
  const progress = told?.total > 0 && html`${Math.round((100 * told.done) / told.total)} %${told.message ? ` · ${inline(told.message, 200)}` : ''}`
  const said = job.state === 'failed' ? html`<strong>${bounded(error?.code ?? 'failed', 80)}</strong> ${inline(error?.message ?? '', 2000)}`
    : progress && (isBulk || job.state === 'running') ? progress : job.state === 'running' ? html`Running for ${since}.`
      : isLive ? html`<strong>Why it waits:</strong> ${why?.reason ? html`${inline(why.detail, 400)} ${why.until && html`The wait ends <${Ago} at=${why.until} />.`}${why.reason === 'question' && html` <a href="/ui/questions">Questions</a>`}` : 'not known yet.'}${last}`
        : html`${job.state === 'succeeded' ? 'Succeeded' : 'Cancelled'} ${whole} after submission${since ? `, ${since} after its last start` : ''}.${error ? html` <bdi>${inline(error.message, 300)}</bdi>` : ''}`
  return html`<div class=${`notice now ${look} ${job.state === 'failed' ? '' : 'line'}`}><p dir="ltr">${progress && (isBulk || job.state === 'running') && html`<${Meter} value=${told.done} most=${told.total} label="Progress" /> `}${said}</p></div>`
}

/** The text that a job writes, in a box of one height that follows the end of the text. */
function Writing({ text, isLive }) {
  const card = useRef(null)
  const isAtEnd = useRef(true)
  useEffect(() => {
    const box = card.current.querySelector('pre')
    const look = () => (isAtEnd.current = box.scrollTop + box.clientHeight > box.scrollHeight - 20)
    box.addEventListener('scroll', look)
    return () => box.removeEventListener('scroll', look)
  }, [])
  useEffect(() => {
    const box = card.current.querySelector('pre')
    if (isAtEnd.current) box.scrollTop = box.scrollHeight
  }, [text])
  return html`<div class="card writing" ref=${card}><h2>${isLive ? 'Text so far' : 'Text'}</h2>${text.skipped > 0 && html`<p class="faint">The first ${number(text.skipped)} characters are not shown.</p>`}
    <${Text} text=${text.text} label="Text so far" start=${TEXT_KEPT} /></div>`
}

const CHANGEABLE = new Set(['blocked', 'scheduled', 'queued', 'waiting'])
const TIMED = new Set(['scheduled', 'queued'])

/** What `datetime-local` takes: the time of this browser, to the minute. */
const localTime = at => new Date(Date.parse(at) - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 16)

/** A form in a dialog that changes the priority and the start time of a job. */
function ChangeForm({ job: latest, path, close, reload }) {
  // As it was when the form was opened: what somebody enters is not replaced.
  const [job] = useState(latest)
  const dialog = useRef(null)
  const [error, setError] = useState('')
  useEffect(() => dialog.current.showModal(), [])
  const send = async body => {
    try {
      await api(path, { method: 'PATCH', body })
      say('The job is changed.')
      reload()
      dialog.current.close()
    } catch (problem) {
      setError([problem.message, ...problem.errors.map(each => `${each.path}: ${each.message}`)].join(' '))
    }
  }
  const before = job.state === 'scheduled' && job.run_at ? localTime(job.run_at) : ''
  const submit = event => {
    event.preventDefault()
    const { priority, at } = Object.fromEntries(new FormData(event.target))
    send({ priority: Number(priority), ...(at && at !== before ? { run_at: new Date(at).toISOString() } : {}) })
  }
  const isTimed = TIMED.has(job.state) && !job.wait
  return html`<dialog ref=${dialog} aria-labelledby="change-title" onClose=${close}><form onSubmit=${submit} class="form">
    <h2 id="change-title">Change this job</h2>
    <label>Priority (9 runs first) <input name="priority" type="number" min="0" max="9" required defaultValue=${job.priority} /></label>
    ${isTimed && html`<label>Earliest start <input name="at" type="datetime-local" defaultValue=${before} /></label>`}
    ${error && html`<p class="bad-text" role="alert">${error}</p>`}
    <div class="actions end"><button type="button" onClick=${() => dialog.current.close()}>Close</button>
      ${isTimed && job.state === 'scheduled' && html`<button type="button" onClick=${() => send({ run_at: null })}>Start now</button>`}
      <button class="primary">Save</button></div>
  </form></dialog>`
}

export function Job({ id }) {
  const path = `/v1/jobs/${encodeURIComponent(id)}`
  const isMine = event => event.job_id === id && event.type !== 'job.output.delta' && event.type !== 'job.progress'
  const { data: job, error, reload } = useApi(`${path}?content=false`, { live: 300, when: isMine })
  const changes = useChanges(path, isMine)
  const waits = job && LIVE.has(job.state) && job.state !== 'running'
  const why = useApi(waits ? `${path}/waiting` : null, { live: 3000 })
  const [progress, setProgress] = useState(null)
  // After a pause of the stream, the job that is read has newer progress.
  useEffect(() => setProgress(null), [reconnected.value])
  const [isRevealed, setRevealed] = useState(false)
  const [changing, setChanging] = useState(false)
  const [forking, setForking] = useState(null)
  const text = useWritten(id, job?.state)
  useEvents(event => {
    if (event.job_id !== id) return
    if (event.type === 'job.progress') setProgress(event.data)
    // What a former attempt has reported does not hold for this one; a bulk action goes on.
    if (event.type === 'job.started' && job?.capability !== BULK) setProgress({})
  })

  const isLive = job && LIVE.has(job.state)
  // A bulk action that reaches other users belongs to none of them.
  const isOwn = job && (job.user === me.value.user || job.user === 'all users' || !me.value.needs_login)
  const isHidden = job && !isOwn && !isRevealed
  const reveal = isHidden && (() => {
    setRevealed(true)
    // The button that had the focus goes away.
    document.getElementById('panel').focus()
  })
  // Who may change the whole tenant reaches the jobs of all its users.
  const canReach = job && (job.user === me.value.user || !me.value.needs_login || me.value.changes_tenant)
  const act = async (verb, done) => {
    try {
      await api(`${path}/${verb}`, { method: 'POST', body: {} })
      say(done)
      reload()
    } catch (problem) {
      sayProblem(problem)
    }
  }
  const cancel = async () =>
    (await confirmed('Cancel this job?', 'The job ends now; if its handler is running, it is interrupted. A cancelled job cannot be started again.', 'Cancel the job', { danger: true })) &&
    act('cancel', 'The job is cancelled.')
  const retry = () => act('retry', 'The job is queued again.')
  const canRetry = job?.state === 'failed' && may('dead-letters:retry')
  const canChange = job && CHANGEABLE.has(job.state) && may('jobs:write') && canReach
  const canCancel = isLive && may('jobs:write') && canReach
  const canFork = job && !isLive && !job.flow_id && !job.capability.startsWith('backburner.') && may('jobs:write') && (isOwn || may('users:act'))
  useKeys({
    ...(may('dead-letters:retry') && { r: [() => canRetry && retry(), 'Retry the job'] }),
    ...(may('jobs:write') && { f: [() => canFork && setForking(1), 'Fork the job'] }),
    k: [() => go(lastJobs.value), 'Back to the jobs'],
  })

  if (error && !job) return error.status === 404
    ? html`<h1 tabindex="-1">There is no such job</h1><p class="faint">It does not exist, was deleted after its retention time, or belongs to another user.</p><p><a href="/ui/jobs">Show all jobs</a></p>`
    : html`<h1 tabindex="-1">Job</h1><${Failure} error=${error} retry=${reload} />`
  if (!job) return html`<h1 tabindex="-1" class="mono">${bounded(id, 60)}</h1>`
  const told = (isLive && progress) || job.progress
  const tab = TABS.includes(route.value.query.tab) ? route.value.query.tab : TABS[0]
  const setTab = name => go(address(`jobs/${job.id}`, name === TABS[0] ? {} : { tab: name }), { replace: true })
  const attempts = job.attempts || []
  return html`<p class="faint"><a href=${lastJobs.value}>Jobs</a> / <span class="mono">${bounded(job.id, 60)}</span> <${Copy} text=${job.id} label="" name="the id" /></p>
    <${Head} title=${html`<${State} of=${job.state} /> <${Name} text=${job.capability} most=${80} />`}>
      ${canRetry && html`<button class="primary" onClick=${retry}><${Icon} name="retry" /> Retry</button>`}
      ${canChange && html`<button onClick=${() => setChanging(true)}>Change</button>`}
      ${canFork && html`<button onClick=${() => setForking(1)}>Fork</button>`}
      <${CopyAs} job=${job} path=${path} isHidden=${isHidden} />
      ${canCancel && html`<button class="danger" onClick=${cancel}>Cancel</button>`}
    </${Head}>
    <${Failure} error=${error} retry=${reload} />
    ${changing && html`<${ChangeForm} job=${job} path=${path} close=${() => setChanging(false)} reload=${reload} />`}
    ${forking && html`<${ForkForm} job=${job} isOwn=${isOwn} isHidden=${isHidden} start=${forking} close=${() => setForking(null)} />`}
    <${Now} job=${job} told=${told} why=${waits && why.data} />
    <div class="grid"><div><div class="card">
      <div class="tabs" role="tablist" onKeyDown=${moveTab}>${TABS.map(name => html`<button role="tab" id=${`tab-${name}`} aria-selected=${tab === name} tabindex=${tab === name ? 0 : -1} aria-controls="panel" onClick=${() => setTab(name)}>${name}</button>`)}</div>
      <div role="tabpanel" id="panel" tabindex="-1" aria-labelledby=${`tab-${tab}`}>${
        tab === 'Timeline' ? html`<${Timeline} changes=${changes} job=${job} />`
          : tab === 'Input' ? isHidden ? html`<${Hidden} reveal=${reveal} />` : html`<${Content} key="input" path=${`${path}/input`} label="input" name=${`${job.id}-input.json`} />`
            : tab === 'Output' ? job.state !== 'succeeded' ? html`<p class="faint">A job has an output only after it has succeeded.</p>`
              : isHidden ? html`<${Hidden} reveal=${reveal} />` : html`<${Content} key="output" path=${`${path}/result`} label="output" name=${`${job.id}-output.json`} />`
              : tab === 'Steps' ? html`<${Steps} id=${job.id} fork=${canFork && setForking} reveal=${reveal} />`
                : tab === 'Events' ? html`<${Events} id=${job.id} reveal=${reveal} />` : html`<${Deliveries} path=${path} id=${job.id} />`
      }</div></div>
      ${job.capability === BULK && job.state === 'succeeded' && html`<${BulkResult} path=${path} />`}
      ${text.text && (isHidden ? html`<div class="card"><h2>${isLive ? 'Text so far' : 'Text'}</h2><${Hidden} reveal=${reveal} /></div>` : html`<${Writing} text=${text} isLive=${isLive} />`)}
      <div class="card"><h2>Attempts</h2>${attempts.length ? [...attempts].reverse().slice(0, 50).map(one => html`<${Attempt} key=${`${one.generation}.${one.number}.${one.started_at}`} attempt=${one} />`) : html`<p class="faint">No attempt has started.</p>`}
        ${attempts.length > 50 && html`<p class="faint">The latest 50 of ${number(attempts.length)} are shown.</p>`}</div></div>
    <div><div class="card"><h2>Details</h2><dl class="facts">
      <dt>Queue</dt><dd><a href=${`/ui/jobs?queue=${encodeURIComponent(job.queue)}`}><${Name} text=${job.queue} /></a></dd>
      <dt>User</dt><dd><${Name} text=${job.user} /></dd>
      <dt>Priority</dt><dd>${job.priority}</dd>
      <dt>Attempt</dt><dd>${job.attempt} of ${job.max_attempts}${job.generation ? `, manual retries: ${job.generation}` : ''}</dd>
      ${job.crashes > 0 && html`<dt>Lost workers</dt><dd>${job.crashes}</dd>`}
      <dt>Submitted</dt><dd><${Ago} at=${job.created_at} /></dd>
      ${job.run_at && isLive && html`<dt>Earliest start</dt><dd><${Ago} at=${job.run_at} /></dd>`}
      ${job.deadline && html`<dt>Deadline</dt><dd><${Ago} at=${job.deadline} /></dd>`}
      <dt>Started</dt><dd><${Ago} at=${job.started_at} /></dd>
      <dt>Ended</dt><dd><${Ago} at=${job.finished_at} /></dd>
      ${job.tags.length > 0 && html`<dt>Tags</dt><dd>${job.tags.slice(0, 20).map(tag => html`<a class="tag" href=${`/ui/jobs?tag=${encodeURIComponent(tag)}`}><${Name} text=${tag} most=${40} /></a> `)}</dd>`}
      ${Object.entries(job.metadata).map(([name, text]) => html`<dt class="given"><${Name} text=${name} most=${64} /></dt><dd class="given" dir="auto"><a href=${address('jobs', { metadata: `${name}=${text}` })}>${inline(text, 600).trim() || '“”'}</a></dd>`)}
      ${job.flow_id && html`<dt>Flow</dt><dd class="mono"><a href=${`/ui/flows/${encodeURIComponent(job.flow_id)}`}>${bounded(job.flow_id, 60)}</a>${job.step ? `, step ${bounded(job.step, 60)}` : ''}</dd>`}
      ${job.batch_id && html`<dt>Batch</dt><dd class="mono"><a href=${`/ui/batches/${encodeURIComponent(job.batch_id)}`}>${bounded(job.batch_id, 60)}</a></dd>`}
      ${job.forked_from && html`<dt>Forked from</dt><dd class="mono"><a href=${`/ui/jobs/${encodeURIComponent(job.forked_from)}`}>${bounded(job.forked_from, 60)}</a></dd>`}
      ${job.request_id && html`<dt>Request</dt><dd class="mono">${bounded(job.request_id, 64)}</dd>`}
    </dl></div>
    <div class="card"><h2>Models</h2>${job.usage ? html`<dl class="facts">
      <dt>Cost</dt><dd>${money(job.usage.priced_cost_usd)}${job.usage.priced ? '' : html` <span class="faint">and ${job.usage.unpriced_calls} ${job.usage.unpriced_calls === 1 ? 'call' : 'calls'} without a price</span>`}</dd>
      <dt>Calls</dt><dd>${number(job.usage.calls)}</dd>
      <dt>Input</dt><dd>${number(job.usage.input_tokens)} tokens${job.usage.cached_tokens ? html`, <span class="faint">${number(job.usage.cached_tokens)} cached</span>` : ''}</dd>
      <dt>Output</dt><dd>${number(job.usage.output_tokens)} tokens</dd>
      <dt>Models</dt><dd>${inline((job.usage.models || []).join(', '), 200)}</dd></dl><${Calls} id=${job.id} count=${job.usage.calls} />` : html`<p class="faint">This job has called no model.</p>`}</div></div></div>`
}
