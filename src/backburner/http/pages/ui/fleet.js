// Fleet: queues with pause and resume, workers to drain, schedules, webhook deliveries.
import { html, Ago, api, bounded, may, megabytes, number, say, sayProblem, span, useApi, useEffect, useRef, useState } from './core.js'
import { confirmed, Empty, Failure, Frame, Head, inline, Name, pretty } from './parts.js'
import { Deliveries, Endpoints } from './webhooks.js'

const rate = perMinute => (perMinute ? number(perMinute < 10 ? perMinute : Math.round(perMinute)) : html`<span class="faint">0</span>`)

function Queues({ data, error, reload }) {
  const set = async (queue, verb) => {
    if (verb === 'pause' && !(await confirmed(`Pause the queue ${bounded(queue.name, 80)}?`, 'Running jobs continue. No other job of this queue starts until you resume it. This affects all tenants.', 'Pause the queue', { danger: true }))) return
    try {
      await api(`/v1/queues/${queue.name.split('/').map(encodeURIComponent).join('/')}/${verb}`, { method: 'POST', body: {} })
      say(`The queue is ${verb}d.`)
      reload()
    } catch (problem) {
      sayProblem(problem)
    }
  }
  return html`<h2 class="section">Queues</h2><${Failure} error=${error} retry=${reload} />
    ${data && html`<${Frame} label="Queues"><table><thead><tr><th scope="col">Queue</th><th scope="col" class="number">Queued</th><th scope="col" class="number">Running</th><th scope="col" class="number">Scheduled</th>
      <th scope="col" class="number">Blocked</th><th scope="col">Oldest queued</th><th scope="col" class="number">In/min</th><th scope="col" class="number">Out/min</th><th scope="col">Limits</th><th scope="col" class="number">Completed</th><th scope="col" class="number">Failed</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
      <tbody>${data.items.map(queue => html`<tr key=${queue.name}><td><a href=${`/ui/jobs?queue=${encodeURIComponent(queue.name)}`}><${Name} text=${queue.name} most=${60} /></a>
        ${queue.paused && html` <span class="state waiting">paused</span>`}</td>
        ${['queued', 'running', 'scheduled', 'blocked'].map(name => html`<td class="number">${number(queue[name])}</td>`)}
        <td class="time"><${Ago} at=${queue.oldest_queued_at} /></td>
        <td class="number" title="Jobs submitted in the last minute">${rate(queue.submitted_per_minute)}</td>
        <td class="number" title="Jobs that ended in the last minute">${rate(queue.ended_per_minute)}</td>
        <td class="faint">${[queue.concurrency && `${queue.concurrency} at once`, queue.rate && `${queue.rate.limit} per ${queue.rate.per_seconds} s`].filter(Boolean).join(', ') || '–'}</td>
        <td class="number">${number(queue.totals.completed)}</td><td class="number">${number(queue.totals.failed)}</td>
        <td>${may('queues:admin') && html`<button onClick=${() => set(queue, queue.paused ? 'resume' : 'pause')}>${queue.paused ? 'Resume' : 'Pause'}</button>`}</td></tr>`)}</tbody></table></${Frame}>`}`
}

/** Send a request that changes something; say what came of it and read again. */
async function act(path, done, reload, { method = 'POST', body = method === 'DELETE' ? undefined : {} } = {}) {
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

const SLOW = 0.1

/** How late an event loop runs; from a tenth of a second on, a handler blocks it or the CPU is busy. */
function Lag({ seconds }) {
  if (seconds === null) return '–'
  return html`<span class=${seconds < SLOW ? '' : 'bad-text'}>${span(seconds * 1000)}</span>`
}

function Workers({ data, error, reload }) {
  const drain = async worker => {
    const question = 'The worker finishes its jobs and claims no others until you resume it or it is restarted.'
    if (!worker.draining && !(await confirmed(`Drain the worker ${bounded(worker.id, 40)}?`, question, 'Drain the worker', { danger: true }))) return
    await act(`/v1/workers/${encodeURIComponent(worker.id)}/${worker.draining ? 'resume' : 'drain'}`, worker.draining ? 'The worker claims jobs again.' : 'The worker claims no more jobs.', reload)
  }
  return html`<h2 class="section">Workers</h2><${Failure} error=${error} />
    ${data && !data.items.length && html`<${Empty} title="No worker is running" command="backburner worker --app backburner.demo:app">Jobs wait until you start one:</${Empty}>`}
    ${data?.items.length > 0 && html`<${Frame} label="Workers"><table><thead><tr><th scope="col">Worker</th><th scope="col">Host</th><th scope="col" class="number">PID</th><th scope="col" class="number">Running</th><th scope="col" class="number">Slots</th><th scope="col" class="number">Loop lag</th><th scope="col" class="number">Memory</th><th scope="col">Queues</th><th scope="col">Started</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
      <tbody>${data.items.map(worker => html`<tr key=${worker.id}><td class="mono">${bounded(worker.id, 40)}${worker.draining && html` <span class="state waiting">draining</span>`}</td><td><${Name} text=${worker.host} /></td><td class="number">${worker.pid}</td>
        <td class="number">${worker.running === null ? '–' : html`<a href=${`/ui/jobs?state=running&worker=${encodeURIComponent(worker.id)}`}>${number(worker.running)}</a>`}</td><td class="number">${number(worker.slots)}</td>
        <td class="number" title="Maximum delay of the event loop in the last ten seconds"><${Lag} seconds=${worker.event_loop_lag_seconds} /></td>
        <td class="number">${megabytes(worker.memory_bytes)}</td>
        <td>${inline(worker.queues.join(', '), 200)}</td><td class="time"><${Ago} at=${worker.started_at} /></td>
        <td>${may('queues:admin') && html`<button onClick=${() => drain(worker)}>${worker.draining ? 'Resume' : 'Drain'}</button>`}</td></tr>`)}</tbody></table></${Frame}>`}`
}

const scheduleAt = name => `/v1/schedules/${name.split('/').map(encodeURIComponent).join('/')}`

const MISSED = [['skip', 'skip all'], ['run_once', 'submit one job for all of them'], ['run_all', 'submit one job for each']]

/** A form in a dialog that saves a schedule; `one` is the schedule to change. */
function ScheduleForm({ one, close, reload }) {
  const dialog = useRef(null)
  const [error, setError] = useState('')
  const capabilities = useApi('/v1/capabilities')
  useEffect(() => dialog.current.showModal(), [])
  const submit = async event => {
    event.preventDefault()
    const said = Object.fromEntries(new FormData(event.target))
    let input
    try {
      input = JSON.parse(said.input || 'null')
    } catch {
      return setError('The input is not valid JSON. Put text in quotes: "like this".')
    }
    try {
      const { capability, cron, timezone, missed } = said
      await api(scheduleAt(one?.name ?? said.name), { method: 'PUT', body: { capability, cron, timezone, missed, input } })
      say('The schedule is saved.')
      reload()
      close()
    } catch (problem) {
      setError([problem.message, ...problem.errors.map(each => `${each.path}: ${each.message}`)].join(' '))
    }
  }
  return html`<dialog ref=${dialog} aria-labelledby="schedule-title" onClose=${close}><form onSubmit=${submit} class="form">
    <h2 id="schedule-title">${one ? `Change ${bounded(one.name, 60)}` : 'New schedule'}</h2>
    ${!one && html`<label>Name <input name="name" required maxlength="100" autocomplete="off" /></label>`}
    <label>Capability <input name="capability" list="schedulable" required maxlength="200" autocomplete="off" defaultValue=${one?.capability ?? ''} /></label>
    <datalist id="schedulable">${capabilities.data?.items.map(each => html`<option value=${each.name} />`)}</datalist>
    <label>Cron <input name="cron" class="mono" required maxlength="100" placeholder="0 3 * * *" autocomplete="off" defaultValue=${one?.cron ?? ''} /></label>
    <label>Time zone <input name="timezone" required maxlength="100" autocomplete="off" defaultValue=${one?.timezone ?? 'UTC'} /></label>
    <label>Missed ticks <select name="missed">${MISSED.map(([value, text]) => html`<option value=${value} selected=${value === (one?.missed ?? 'skip')}>${text}</option>`)}</select></label>
    <label>Input (JSON) <textarea name="input" class="mono" rows="4">${one ? pretty(one.input) : '{}'}</textarea></label>
    ${error && html`<p class="bad-text" role="alert">${error}</p>`}
    <div class="actions end"><button type="button" onClick=${() => dialog.current.close()}>Close</button><button class="primary">Save</button></div>
  </form></dialog>`
}

function Schedules({ data, error, reload }) {
  const [edited, edit] = useState(null)
  const maySave = may('queues:admin') && may('jobs:write')
  const remove = async one =>
    (await confirmed(`Delete the schedule ${bounded(one.name, 80)}?`, 'Jobs that the schedule has submitted are not deleted.', 'Delete the schedule', { danger: true })) &&
    act(scheduleAt(one.name), 'The schedule is deleted.', reload, { method: 'DELETE' })
  return html`<div class="head"><h2 class="section">Schedules</h2><div class="actions">${maySave && html`<button onClick=${() => edit({})}>New schedule</button>`}</div></div><${Failure} error=${error} />
    ${edited && html`<${ScheduleForm} one=${edited.name ? edited : null} close=${() => edit(null)} reload=${reload} />`}
    ${data && !data.items.length && html`<p class="faint">No schedule is declared by an application or saved here.</p>`}
    ${data?.items.length > 0 && html`<${Frame} label="Schedules"><table><thead><tr><th scope="col">Schedule</th><th scope="col">Capability</th><th scope="col">Cron</th><th scope="col">Next</th><th scope="col">Last</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
      <tbody>${data.items.map(one => html`<tr key=${one.name}><td><${Name} text=${one.name} />${one.paused && html` <span class="state waiting">paused</span>`}</td><td><${Name} text=${one.capability} /></td><td class="mono">${bounded(one.cron, 60)} <span class="faint">${one.timezone}</span></td>
        <td class="time">${one.paused ? html`<span class="faint">–</span>` : html`<${Ago} at=${one.next_at} />`}</td><td class="time"><${Ago} at=${one.last_at} /></td>
        <td>${may('queues:admin') && html`<div class="actions">
          <button onClick=${() => act(`${scheduleAt(one.name)}/run`, 'The job is submitted.', reload)}>Run now</button>
          <button onClick=${() => act(`${scheduleAt(one.name)}/${one.paused ? 'resume' : 'pause'}`, one.paused ? 'The schedule is resumed.' : 'The schedule is paused.', reload)}>${one.paused ? 'Resume' : 'Pause'}</button>
          ${maySave && !one.declared && html`<button onClick=${() => edit(one)}>Change</button>`}
          ${!one.declared && html`<button class="danger" onClick=${() => remove(one)}>Delete</button>`}</div>`}</td></tr>`)}</tbody></table></${Frame}>`}`
}

export function Fleet() {
  const queues = useApi('/v1/queues', { live: 2000 })
  const workers = useApi('/v1/workers', { live: 5000 })
  const schedules = useApi('/v1/schedules', { live: 10_000 })
  // All at once: a table that arrives later would push those below it down.
  const isRead = [queues, workers, schedules].every(one => one.data || one.error)
  return html`<${Head} title="Fleet" />${isRead ? html`<${Queues} ...${queues} /><${Workers} ...${workers} /><${Schedules} ...${schedules} /><${Deliveries} />${may('webhooks:read') && html`<${Endpoints} />`}`
    : html`<p class="faint">Loading…</p>`}`
}
