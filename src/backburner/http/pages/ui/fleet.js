// Fleet: queues with pause and resume, workers and schedules.
import { html, Ago, api, bounded, may, number, say, sayProblem, useApi } from './core.js'
import { confirmed, Empty, Failure, Frame, Head, inline, Name } from './parts.js'

function Queues() {
  const { data, error, reload } = useApi('/v1/queues', { live: 2000 })
  const set = async (queue, verb) => {
    if (verb === 'pause' && !(await confirmed(`Pause the queue ${bounded(queue.name, 80)}?`, 'Jobs that run go on. No other job of it starts until it is resumed. It concerns all tenants.', 'Pause the queue', { danger: true }))) return
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
      <th scope="col" class="number">Blocked</th><th scope="col">Oldest waits since</th><th scope="col">Limits</th><th scope="col" class="number">Done</th><th scope="col" class="number">Failed</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
      <tbody>${data.items.map(queue => html`<tr key=${queue.name}><td><a href=${`/ui/jobs?queue=${encodeURIComponent(queue.name)}`}><${Name} text=${queue.name} most=${60} /></a>
        ${queue.paused && html` <span class="state waiting">paused</span>`}</td>
        ${['queued', 'running', 'scheduled', 'blocked'].map(name => html`<td class="number">${number(queue[name])}</td>`)}
        <td class="time"><${Ago} at=${queue.oldest_queued_at} /></td>
        <td class="faint">${[queue.concurrency && `${queue.concurrency} at once`, queue.rate && `${queue.rate.limit} per ${queue.rate.per_seconds} s`].filter(Boolean).join(', ') || '–'}</td>
        <td class="number">${number(queue.totals.completed)}</td><td class="number">${number(queue.totals.failed)}</td>
        <td>${may('queues:admin') && html`<button onClick=${() => set(queue, queue.paused ? 'resume' : 'pause')}>${queue.paused ? 'Resume' : 'Pause'}</button>`}</td></tr>`)}</tbody></table></${Frame}>`}`
}

function Workers() {
  const { data, error } = useApi('/v1/workers', { live: 5000 })
  return html`<h2 class="section">Workers</h2><${Failure} error=${error} />
    ${data && !data.items.length && html`<${Empty} title="No worker runs" command="backburner worker --app backburner.demo:app">Jobs wait until one is started.</${Empty}>`}
    ${data?.items.length > 0 && html`<${Frame} label="Workers"><table><thead><tr><th scope="col">Worker</th><th scope="col">Host</th><th scope="col" class="number">Process</th><th scope="col" class="number">Slots</th><th scope="col">Queues</th><th scope="col">Started</th></tr></thead>
      <tbody>${data.items.map(worker => html`<tr key=${worker.id}><td class="mono">${bounded(worker.id, 40)}</td><td><${Name} text=${worker.host} /></td><td class="number">${worker.pid}</td><td class="number">${worker.slots}</td>
        <td>${inline(worker.queues.join(', '), 200)}</td><td class="time"><${Ago} at=${worker.started_at} /></td></tr>`)}</tbody></table></${Frame}>`}`
}

function Schedules() {
  const { data, error } = useApi('/v1/schedules', { live: 10_000 })
  return html`<h2 class="section">Schedules</h2><${Failure} error=${error} />
    ${data && !data.items.length && html`<p class="faint">No application has declared a schedule.</p>`}
    ${data?.items.length > 0 && html`<${Frame} label="Schedules"><table><thead><tr><th scope="col">Schedule</th><th scope="col">Capability</th><th scope="col">Cron</th><th scope="col">Next</th><th scope="col">Last</th></tr></thead>
      <tbody>${data.items.map(one => html`<tr key=${one.name}><td><${Name} text=${one.name} /></td><td><${Name} text=${one.capability} /></td><td class="mono">${bounded(one.cron, 60)} <span class="faint">${one.timezone}</span></td>
        <td class="time"><${Ago} at=${one.next_at} /></td><td class="time"><${Ago} at=${one.last_at} /></td></tr>`)}</tbody></table></${Frame}>`}`
}

export const Fleet = () => html`<${Head} title="Fleet" /><${Queues} /><${Workers} /><${Schedules} />`
