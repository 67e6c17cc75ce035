// Fleet: queues with pause and resume, workers to drain, schedules, webhook deliveries.
import { html, address, Ago, bounded, exact, go, may, megabytes, now, number, route, span, useApi, useRef, useState } from './core.js'
import { act, confirmed, Empty, Failure, Frame, Head, inline, Name, useSample } from './parts.js'
import { useTables } from './list.js'
import { Schedules } from './schedules.js'
import { Sent } from './webhooks.js'

const rate = perMinute => (perMinute ? number(perMinute < 10 ? perMinute : Math.round(perMinute)) : html`<span class="faint">0</span>`)

// --- Queues --------------------------------------------------------------------------------

const age = queue => (queue.oldest_queued_at ? -Date.parse(queue.oldest_queued_at) : -Infinity)
const COLUMNS = [
  { name: 'name', title: 'Queue', value: queue => queue.name },
  { name: 'queued', title: 'Queued' }, { name: 'running', title: 'Running' }, { name: 'scheduled', title: 'Scheduled' },
  { name: 'waiting', title: 'Waiting', value: queue => queue.suspended, help: 'Jobs that wait for a signal, an answer or a child job' },
  { name: 'blocked', title: 'Blocked', help: 'Jobs that wait for earlier steps of their flow' },
  { name: 'oldest', title: 'Oldest queued', value: age, isTime: true },
  { name: 'in', title: 'In/min', value: queue => queue.submitted_per_minute, help: 'Jobs submitted in the last minute' },
  { name: 'out', title: 'Out/min', value: queue => queue.ended_per_minute, help: 'Jobs that ended in the last minute' },
  { name: 'completed', title: 'Completed', value: queue => queue.totals.completed }, { name: 'failed', title: 'Failed', value: queue => queue.totals.failed },
].map(column => ({ value: queue => queue[column.name], ...column }))
const HELD = ['queued', 'running', 'scheduled', 'suspended', 'blocked']
const holds = queue => HELD.some(name => queue[name])

/** Return the column and direction of `sort` in the address: `queued`, `-queued`; by name if it is unknown. */
function order(sort = '') {
  const column = COLUMNS.find(one => one.name === sort.replace(/^-/, '')) ?? COLUMNS[0]
  return { column, isDown: sort === `-${column.name}` }
}

function sorted(queues, { column, isDown }) {
  const compare = (one, other) => {
    const [a, b] = [column.value(one), column.value(other)]
    return a < b ? -1 : a > b ? 1 : 0
  }
  return [...queues].sort((one, other) => (isDown ? compare(other, one) : compare(one, other)) || (one.name < other.name ? -1 : 1))
}

/**
 * Return the rows in their order, and whether the order or the filter has changed since.
 *
 * Rows stay where they are while their numbers change, so that nothing moves under the pointer.
 */
function useOrder(queues, sort, isBusy) {
  const kept = useRef({ key: null, names: [] })
  const [, again] = useState(0)
  const wanted = sorted(isBusy ? queues.filter(holds) : queues, order(sort)).map(queue => queue.name)
  const key = `${sort} ${isBusy}`
  if (kept.current.key !== key) kept.current = { key, names: wanted }
  const known = new Set(kept.current.names)
  kept.current.names.push(...wanted.filter(name => !known.has(name)))
  const found = new Map(queues.map(queue => [queue.name, queue]))
  const rows = kept.current.names.map(name => found.get(name)).filter(Boolean)
  const isOld = rows.length !== wanted.length || rows.some((queue, at) => queue.name !== wanted[at])
  const renew = () => {
    kept.current = { key: null, names: [] }
    again(count => count + 1)
  }
  return { rows, isOld, renew }
}

function Column({ column, sort }) {
  const { column: chosen, isDown } = order(sort)
  const isChosen = chosen === column
  const isText = column.name === 'name'
  // A number is looked for from the top, a name from the beginning.
  const next = isChosen ? (isDown ? column.name : `-${column.name}`) : isText ? '' : `-${column.name}`
  const choose = () => go(address('fleet', { ...route.value.query, sort: next === 'name' ? '' : next }), { replace: true })
  return html`<th scope="col" class=${isText || column.isTime ? 'sorts' : 'number sorts'} aria-sort=${isChosen ? (isDown ? 'descending' : 'ascending') : undefined} title=${column.help}>
    <button onClick=${choose}>${column.title}<span class="way" aria-hidden="true">${isChosen ? (isDown ? '▾' : '▴') : ''}</span></button></th>`
}

/** The declared limits of a queue, and which of them holds jobs back now. */
function Limits({ queue }) {
  const limits = [queue.concurrency && `${number(queue.concurrency)} at once`, queue.per_worker && `${number(queue.per_worker)} per worker`, queue.rate && `${number(queue.rate.limit)} per ${queue.rate.per_seconds} s`].filter(Boolean)
  const isFull = queue.concurrency && queue.running >= queue.concurrency
  const until = queue.limited_until && Date.parse(queue.limited_until) > now.value ? Date.parse(queue.limited_until) : null
  return html`${limits.join(', ') || '–'}${isFull ? html`<div class="limit">limit reached: ${number(queue.concurrency)} running</div>` : ''}${until ? html`<div class="limit" title=${exact(queue.limited_until)}>rate limit: next in ${span(until - now.value)}</div>` : ''}`
}

function Queues({ data, error, reload, current }) {
  const { sort, busy } = route.value.query
  const { rows, isOld, renew } = useOrder(data?.items ?? [], sort, busy === '1')
  const set = async (queue, verb) => {
    if (verb === 'pause' && !(await confirmed(`Pause the queue ${bounded(queue.name, 80)}?`, 'Running jobs continue. No other job of this queue starts until you resume it. This affects all tenants.', 'Pause the queue', { danger: true }))) return
    await act(`/v1/queues/${queue.name.split('/').map(encodeURIComponent).join('/')}/${verb}`, `The queue is ${verb}d.`, reload)
  }
  return html`<div class="head section"><h2>Queues</h2><div class="actions"><button class=${isOld ? '' : 'ghost'} onClick=${renew}>Sort again</button>
      <button aria-pressed=${busy === '1'} onClick=${() => go(address('fleet', { ...route.value.query, busy: busy === '1' ? '' : '1' }), { replace: true })}>Only queues with jobs</button></div></div><${Failure} error=${error} retry=${reload} />
    ${data && !rows.length && html`<p class="faint">${busy === '1' ? 'No queue has unfinished jobs.' : 'No queue is declared or in use.'}</p>`}
    ${rows.length > 0 && html`<${Frame} label="Queues"><table class="queues"><thead><tr>${COLUMNS.slice(0, 9).map(column => html`<${Column} key=${column.name} column=${column} sort=${sort} />`)}<th scope="col">Limits</th>
      ${COLUMNS.slice(9).map(column => html`<${Column} key=${column.name} column=${column} sort=${sort} />`)}<th scope="col"><span class="unseen">Actions</span></th></tr></thead>
      <tbody>${rows.map(queue => html`<tr key=${queue.name} ...${current(`queue ${queue.name}`)}><td><a href=${address('jobs', { queue: queue.name })}><${Name} text=${queue.name} most=${60} /></a>
        ${queue.paused && html` <span class="state waiting">paused</span>`}</td>
        ${['queued', 'running', 'scheduled', 'suspended', 'blocked'].map(name => html`<td class="number">${queue[name] ? number(queue[name]) : html`<span class="faint">0</span>`}</td>`)}
        <td class="time"><${Ago} at=${queue.oldest_queued_at} /></td>
        <td class="number">${rate(queue.submitted_per_minute)}</td><td class="number">${rate(queue.ended_per_minute)}</td>
        <td class="faint limits"><${Limits} queue=${queue} /></td>
        <td class="number">${number(queue.totals.completed)}</td><td class="number">${number(queue.totals.failed)}</td>
        <td>${may('queues:admin') && html`<button onClick=${() => set(queue, queue.paused ? 'resume' : 'pause')}>${queue.paused ? 'Resume' : 'Pause'}</button>`}</td></tr>`)}</tbody></table></${Frame}>`}`
}

// --- Workers -------------------------------------------------------------------------------

const SLOW = 0.1

/** How late an event loop runs; from a tenth of a second on, a handler blocks it or the CPU is busy. */
function Lag({ seconds }) {
  if (seconds === null) return '–'
  return html`<span class=${seconds < SLOW ? '' : 'bad-text'}>${span(seconds * 1000)}</span>`
}

function Workers({ data, error, reload, current }) {
  const drain = async worker => {
    const question = 'The worker finishes its jobs and claims no others until you resume it or it is restarted.'
    if (!worker.draining && !(await confirmed(`Drain the worker ${bounded(worker.id, 40)}?`, question, 'Drain the worker', { danger: true }))) return
    await act(`/v1/workers/${encodeURIComponent(worker.id)}/${worker.draining ? 'resume' : 'drain'}`, worker.draining ? 'The worker claims jobs again.' : 'The worker claims no more jobs.', reload)
  }
  return html`<h2 class="section">Workers</h2><${Failure} error=${error} retry=${reload} />
    ${data && !data.items.length && html`<${Empty} title="No worker is running" level="h3" command="backburner worker --app backburner.demo:app">Jobs wait until you start one:</${Empty}>`}
    ${data?.items.length > 0 && html`<${Frame} label="Workers"><table><thead><tr><th scope="col">Worker</th><th scope="col">Host</th><th scope="col" class="number">PID</th><th scope="col" class="number">Running</th><th scope="col" class="number">Slots</th><th scope="col" class="number">Loop lag</th><th scope="col" class="number">Memory</th><th scope="col">Queues</th><th scope="col">Started</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
      <tbody>${data.items.map(worker => html`<tr key=${worker.id} ...${current(`worker ${worker.id}`)}><td class="mono">${bounded(worker.id, 40)}${worker.draining && html` <span class="state waiting">draining</span>`}</td><td><${Name} text=${worker.host} /></td><td class="number">${worker.pid}</td>
        <td class="number">${worker.running === null ? '–' : html`<a href=${`/ui/jobs?state=running&worker=${encodeURIComponent(worker.id)}`}>${number(worker.running)}</a>`}</td><td class="number">${number(worker.slots)}</td>
        <td class="number" title="Maximum delay of the event loop in the last ten seconds"><${Lag} seconds=${worker.event_loop_lag_seconds} /></td>
        <td class="number">${megabytes(worker.memory_bytes)}</td>
        <td>${inline(worker.queues.join(', '), 200)}</td><td class="time"><${Ago} at=${worker.started_at} /></td>
        <td>${may('queues:admin') && html`<button onClick=${() => drain(worker)}>${worker.draining ? 'Resume' : 'Drain'}</button>`}</td></tr>`)}</tbody></table></${Frame}>`}`
}

export function Fleet() {
  const queues = useApi('/v1/queues', { live: 2000 })
  const workers = useApi('/v1/workers', { live: 5000 })
  const schedules = useApi('/v1/schedules', { live: 10_000, exact: true })
  // All at once: a table that arrives later would push those below it down.
  const sample = useSample()
  const isRead = sample !== undefined && [queues, workers, schedules].every(one => one.data || one.error)
  const current = useTables()
  return html`<${Head} title="Fleet" />${isRead ? html`<${Queues} ...${queues} current=${current} /><${Workers} ...${workers} current=${current} /><${Schedules} ...${schedules} current=${current} sample=${sample} /><${Sent} current=${current} sample=${sample} />`
    : html`<p class="faint">Loading…</p>`}`
}
