// Overview: how much waits, runs and fails, rates and cost over time, what needs attention, what runs longest.
import { html, useEffect, useRef, useState, address, AGE, Ago, api, bounded, exact, may, money, number, now, reconnected, span, useApi, useKeys } from './core.js'
import { Failure, Frame, Head, inline, Name } from './parts.js'
import { NoJobs } from './jobs.js'
import { useTables } from './list.js'
import { projected } from './cost.js'

const COUNTED = ['queued', 'running', 'scheduled', 'failed']
const MINUTES = 30
const RECENT = 5
const NEAR = 0.8
const RUNNING = 8
const LONG_WAIT = 60_000 // ms
const SLOW_LOOP = 1 // s, as in the log

/** A count of jobs; links to the list that it counts. */
function Count({ state }) {
  const { data } = useApi(`/v1/jobs/count?state=${state}`, { live: 2000 })
  return html`<a class=${`tile ${state === 'failed' && data?.count ? 'alarm' : ''}`} href=${`/ui/jobs?state=${state}`}>
    <b>${data ? `${number(data.count)}${data.capped ? '+' : ''}` : '…'}</b><span>${state}</span></a>`
}

// --- Minutes: read whole once, then only the newest ------------------------------------------

const JOBS = { submitted: 0, succeeded: 0, failed: 0 }
const USAGE = { tokens: 0, cost: 0 }
const minuteOf = at => Math.floor((typeof at === 'string' ? Date.parse(at) : at) / 60_000)

/**
 * Return figures by minute, the oldest first, and what could not be read: `{minutes, error}`.
 *
 * Every ten seconds what is not complete yet is read again: the newest two minutes, and
 * those that could not be read before. A page that is left open costs the server little.
 */
function useMinutes(everyone) {
  const [known, set] = useState({ jobs: null, usage: null, error: null })
  const minute = minuteOf(now.value)
  // Up to which minute each is known, and since which reconnect.
  const last = useRef({})
  const tick = Math.floor(now.value / 10_000)
  useEffect(() => {
    const readOne = async (name, path, zero, write) => {
      const { until, connection } = last.current[name] ?? {}
      const oldest = minute - MINUTES + 1
      const from = connection === reconnected.value ? Math.max(oldest, until - 1) : oldest
      const found = await api(`${path}since=${new Date(from * 60_000).toISOString()}`, { age: AGE })
      const read = {}
      for (let one = from; one <= minute; one++) read[one] = zero
      for (const one of found.items) if (read[minuteOf(one.at ?? one.key)]) read[minuteOf(one.at ?? one.key)] = write(one)
      last.current[name] = { until: minute, connection: reconnected.value }
      set(was => ({ ...was, errors: { ...was.errors, [name]: null }, [name]: { ...was[name], ...read } }))
    }
    const fail = name => error => set(was => ({ ...was, errors: { ...was.errors, [name]: error } }))
    readOne('jobs', '/v1/activity?', JOBS, one => one).catch(fail('jobs'))
    readOne('usage', `/v1/usage?by=minute&limit=100${everyone}&`, USAGE, one => ({ tokens: one.input_tokens + one.output_tokens, cost: Number(one.priced_cost_usd) })).catch(fail('usage'))
  }, [tick, reconnected.value])
  const isRead = known.jobs && known.usage
  return { error: known.errors?.jobs ?? known.errors?.usage, minutes: isRead && Array.from({ length: MINUTES }, (_, place) => {
    const at = minute - MINUTES + 1 + place
    return { ...JOBS, ...USAGE, ...known.jobs[at], ...known.usage[at], at: at * 60_000 }
  }) }
}

const clock = at => new Date(at).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' })

/** Stacked bars by minute; the same numbers are a table for screen readers. */
function Chart({ title, minutes, parts, write = number }) {
  const whole = one => parts.reduce((sum, [name]) => sum + one[name], 0)
  const peak = Math.max(...minutes.map(whole))
  const top = peak || 1
  // The minute that has begun counts as far as it has gone.
  const elapsed = RECENT - 1 + (now.value % 60_000) / 60_000
  const rate = name => minutes.slice(-RECENT).reduce((sum, one) => sum + one[name], 0) / elapsed
  return html`<figure class="card chart"><figcaption><strong>${title}</strong><span title="Average of the last five minutes">${parts.map(([name, kind]) => html`<span class=${`mark ${kind}`}>${name} ${write(rate(name))}</span>`)}<span>last 5 min</span></span></figcaption>
    <svg viewBox=${`0 0 ${MINUTES * 4} 40`} preserveAspectRatio="none" aria-hidden="true">${minutes.map((one, place) => {
      let y = 40
      return parts.map(([name, kind]) => {
        const height = (one[name] / top) * 40
        y -= height
        return height > 0 && html`<rect class=${kind} x=${place * 4} y=${y} width="3" height=${height} />`
      })
    })}</svg>
    <div class="axis"><span>${clock(minutes[0].at)}</span><span>${peak ? `peak ${write(peak)} per minute` : 'none'}</span><span>now</span></div>
    <div class="unseen"><table><caption>${title}</caption><thead><tr><th scope="col">Minute</th>${parts.map(([name]) => html`<th scope="col">${name}</th>`)}</tr></thead>
      <tbody>${minutes.map(one => html`<tr><th scope="row">${clock(one.at)}</th>${parts.map(([name]) => html`<td>${write(one[name])}</td>`)}</tr>`)}</tbody></table></div></figure>`
}

const rounded = value => (value >= 10 || Number.isInteger(value) ? number(Math.round(value)) : value.toFixed(1))

function Charts({ everyone }) {
  const { minutes, error } = useMinutes(everyone)
  const problem = html`<${Failure} error=${error && { ...error, message: `The charts are not up to date. ${error.message}` }} />`
  if (!minutes) return html`${problem}<div class="charts"></div>`
  return html`${problem}<div class="charts"><${Chart} title="Jobs ended per minute" minutes=${minutes} parts=${[['succeeded', 'good'], ['failed', 'bad']]} write=${rounded} />
    <${Chart} title="Jobs submitted per minute" minutes=${minutes} parts=${[['submitted', 'settled']]} write=${rounded} />
    <${Chart} title="Tokens per minute" minutes=${minutes} parts=${[['tokens', 'settled']]} write=${rounded} />
    <${Chart} title="Cost per minute" minutes=${minutes} parts=${[['cost', 'settled']]} write=${money} /></div>`
}

// --- What runs longest -----------------------------------------------------------------------

/**
 * The jobs that have run longest, of the 100 that were submitted first.
 *
 * The frame has room for all rows, so that nothing moves.
 */
function Running() {
  const { data, error, reload } = useApi('/v1/jobs?state=running&sort=oldest&limit=100', { live: 3000 })
  const current = useTables()
  const jobs = [...(data?.items ?? [])].sort((one, other) => Date.parse(one.started_at) - Date.parse(other.started_at)).slice(0, RUNNING)
  const ran = job => (now.value - Date.parse(job.started_at) < 1000 ? '< 1 s' : span(now.value - Date.parse(job.started_at)))
  const worker = job => (!job.worker ? '–' : html`<a class="mono" href=${address('jobs', { state: 'running', worker: job.worker })} title=${`Jobs of the worker ${bounded(job.worker, 60)}`}>…${bounded(job.worker.slice(-8), 8)}</a>`)
  return html`<div class="card longest jobs"><div class="head"><h2>Running jobs</h2><span class="faint">${jobs.length > 0 && 'longest first'}</span><div class="actions"><a href="/ui/jobs?state=running">All running jobs</a></div></div>
    <${Failure} error=${error} retry=${reload} />
    <${Frame} label="Running jobs"><table><colgroup><col /><col class="w-done" /><col class="w-ran" /><col class="w-worker optional" /></colgroup>
      <thead><tr><th scope="col">Job</th><th scope="col">Progress</th><th scope="col" class="number">Running for</th><th scope="col" class="optional">Worker</th></tr></thead>
      <tbody>${jobs.map((job, place) => html`<tr key=${place} ...${current(`job ${job.id}`)}><td class="what"><div class="line"><a href=${`/ui/jobs/${job.id}`}><${Name} text=${job.capability} most=${60} /></a><span class="id mono" title=${job.id}>…${job.id.slice(-8)}</span></div></td>
        <td><${Done} of=${job.progress} /></td><td class="number" title=${exact(job.started_at)}>${ran(job)}</td><td class="optional">${worker(job)}</td></tr>`)}</tbody></table>
      ${data && !jobs.length && html`<p class="faint none">No job is running.</p>`}</${Frame}></div>`
}

function Done({ of }) {
  const { done, total, message } = of ?? {}
  if (!total) return html`<span class="faint">${message ? inline(message, 60) : '–'}</span>`
  return html`<span class="line"><progress value=${done} max=${total} aria-label=${`${Math.round((100 * done) / total)} % done`}></progress><span>${Math.round((100 * done) / total)} %</span></span>`
}

// --- What needs attention --------------------------------------------------------------------

const places = (items, write, most = 5) => items.slice(0, most).map(write)

/**
 * What each read says that needs attention: `[what it is, text]`.
 *
 * A read that the role does not allow is not in the list of reads.
 */
const SIGNS = {
  oldest: found => (found && found.waited > LONG_WAIT ? [['Long wait', html`${found.queue ? html`The oldest queued job of the queue <${Name} text=${found.queue} most=${50} />` : 'The oldest queued job'} has waited <a href=${found.href}>${span(found.waited)}</a>.`]] : []),
  groups: found => places(found, group => [inline(group.code, 60), html`${number(group.count)} ${group.count === 1 ? 'job' : 'jobs'} of <${Name} text=${group.capability} most=${50} />, last <${Ago} at=${group.last_at} />${group.message ? html`: <bdi class="faint">${inline(group.message, 120)}</bdi>` : '.'} <a href="/ui/incidents">Incidents</a>`]),
  queues: found => places(found.filter(one => one.paused), queue => ['Paused', html`The queue <${Name} text=${queue.name} most=${50} /> is paused. <a href="/ui/fleet">Fleet</a>`]),
  workers: found => [
    ...(found.length ? [] : [['No worker', html`No worker is running. Jobs wait until you start one. <a href="/ui/fleet">Fleet</a>`]]),
    ...places(found.filter(one => one.draining), one => ['Draining', html`The worker <span class="mono">${bounded(one.id, 40)}</span> claims no more jobs${one.running ? ` and finishes ${number(one.running)}` : ''}. <a href="/ui/fleet">Fleet</a>`]),
    ...places(found.filter(one => one.event_loop_lag_seconds >= SLOW_LOOP), one => ['Slow worker', html`The event loop of the worker <span class="mono">${bounded(one.id, 40)}</span> was late by up to ${span(one.event_loop_lag_seconds * 1000)}: a handler blocks it, or the CPU is busy. <a href="/ui/fleet">Fleet</a>`]),
  ],
  lanes: found => places(found.filter(one => one.state === 'parked'), one => ['Parked lane', html`The lane <${Name} text=${one.name} most=${50} /> starts no calls${one.parked_until ? html`; it opens <${Ago} at=${one.parked_until} />` : ''}${one.waiting ? `; about ${number(one.waiting)} ${one.waiting === 1 ? 'call waits' : 'calls wait'}` : ''}. <a href="/ui/lanes">Lanes</a>`]),
  budgets: found => places(found.filter(one => Number(one.limit) > 0 && Date.parse(one.window_end) > now.value && Number(one.left) <= (1 - NEAR) * Number(one.limit)), one => {
    const { state } = projected(one, now.value)
    return ['Budget', html`The budget of ${one.scope} <${Name} text=${one.of} most=${40} /> is ${state === 'used up' ? 'used up' : `${Math.round(100 * (1 - Number(one.left) / Number(one.limit)))} % used`}. <a href="/ui/cost">Cost</a>`]
  }, 3),
  questions: found => (found.length ? [['Questions', html`${found.length === 1 ? 'A job waits' : `${upToTen(found)} jobs wait`} for an answer. <a href="/ui/questions">Questions</a>`]] : []),
  webhooks: found => (found.length ? [['Webhooks', html`${upToTen(found)} ${found.length === 1 ? 'delivery has' : 'deliveries have'} failed. <a href=${deliveries()}>Webhook deliveries</a>`]] : []),
}
const FINE = {
  groups: 'no job has failed permanently', oldest: 'no queued job has waited for more than a minute', queues: 'no queue is paused', workers: 'all workers claim jobs',
  lanes: 'no lane is parked', budgets: 'no budget is nearly used up', questions: 'no question is open', webhooks: 'no webhook delivery has failed',
}
const WHAT = { groups: 'failures', oldest: 'the oldest queued job', queues: 'queues', workers: 'workers', lanes: 'lanes', budgets: 'budgets', questions: 'questions', webhooks: 'webhook deliveries' }
const upToTen = found => `${found.length}${found.length > 9 ? '+' : ''}`
const listed = words => (words.length > 1 ? `${words.slice(0, -1).join(', ')} and ${words.at(-1)}` : words[0])
/** The view that shows deliveries to this role. */
const deliveries = () => (may('queues:read') ? '/ui/fleet' : may('webhooks:read') ? '/ui/webhooks' : address('jobs', { capability: 'webhook.deliver', state: 'failed' }))

/** What needs attention; says "nothing" only of what was read. `reads` is `{name: {data, error}}`. */
function Attention({ reads }) {
  const names = Object.keys(FINE).filter(name => reads[name])
  const isRead = name => reads[name].data !== undefined && !reads[name].error
  const known = names.filter(name => reads[name].data !== undefined)
  const items = known.flatMap(name => SIGNS[name](reads[name].data))
  const failed = names.filter(name => reads[name].error)
  const isReading = names.some(name => reads[name].data === undefined && !reads[name].error)
  return html`<div class="card attend"><h2>Needs attention</h2>${failed.length > 0 && html`<p class="bad-text" role="alert">Could not read: ${listed(failed.map(name => WHAT[name]))}. ${reads[failed[0]].error.message}</p>`}
    ${isReading ? html`<p class="faint">Loading…</p>` : items.length ? html`<ul class="attention">${items.map(([what, text], place) => html`<li key=${`${place} ${what}`}><span class="bad-text">${what}</span><span>${text}</span></li>`)}</ul>`
      : names.some(isRead) && html`<p class="faint">Nothing needs attention: ${listed(names.filter(isRead).map(name => FINE[name]))}.</p>`}</div>`
}

/**
 * Return how long the oldest queued job has waited: `{waited, queue, href}`, null if none waits.
 *
 * It waits since it was queued, which only queues tell; else since it could start. When a
 * job was retried is not known here.
 */
function waiting(queues, jobs) {
  if (queues) {
    const [first] = queues.filter(one => one.oldest_queued_at).sort((one, other) => Date.parse(one.oldest_queued_at) - Date.parse(other.oldest_queued_at))
    return first ? { waited: now.value - Date.parse(first.oldest_queued_at), queue: first.name, href: address('jobs', { state: 'queued', queue: first.name, sort: 'oldest' }) } : null
  }
  const job = jobs.find(one => !one.generation)
  return job ? { waited: now.value - Math.max(Date.parse(job.created_at), job.run_at ? Date.parse(job.run_at) : 0), href: `/ui/jobs/${job.id}` } : null
}

export function Overview() {
  const seesQueues = may('queues:read')
  const oldest = useApi(seesQueues ? null : '/v1/jobs?state=queued&sort=oldest&limit=20', { live: 2000 })
  const groups = useApi(may('dead-letters:read') ? '/v1/dead-letters?limit=5' : null, { live: 5000 })
  const queues = useApi(seesQueues ? '/v1/queues' : null, { live: 3000 })
  const workers = useApi(seesQueues ? '/v1/workers' : null, { live: 10_000 })
  const lanes = useApi(seesQueues ? '/v1/lanes' : null, { live: 10_000 })
  const budgets = useApi('/v1/budgets', { live: 10_000 })
  const questions = useApi('/v1/questions?limit=10', { live: 10_000 })
  const webhooks = useApi('/v1/jobs?capability=webhook.deliver&state=failed&limit=10', { live: 10_000 })
  const any = useApi('/v1/jobs?limit=1', { live: 5000 })
  useKeys({ r: [() => [any, oldest, groups, queues, workers, lanes, budgets, questions, webhooks].forEach(one => one.reload()), 'Refresh'] })
  if (any.data && !any.data.items.length) return html`<${Head} title="Overview" /><${NoJobs} />`
  const items = one => ({ data: one.data?.items, error: one.error })
  const source = seesQueues ? queues : oldest
  const wait = { data: source.data ? waiting(queues.data?.items, oldest.data?.items) : undefined, error: source.error }
  const reads = {
    oldest: wait, budgets: items(budgets), questions: items(questions),
    // An empty page with a cursor does not say that there is none.
    ...(!(webhooks.data && !webhooks.data.items.length && webhooks.data.next_cursor) && { webhooks: items(webhooks) }),
    ...(may('dead-letters:read') && { groups: items(groups) }),
    ...(seesQueues && { queues: items(queues), workers: items(workers), lanes: items(lanes) }),
  }
  return html`<${Head} title="Overview" /><${Failure} error=${any.error} retry=${any.reload} />
    <div class="tiles five">${COUNTED.map(state => html`<${Count} key=${state} state=${state} />`)}
      <div class="tile"><b>${wait.data === undefined ? '…' : wait.data ? span(wait.data.waited) : '–'}</b><span>wait of the oldest queued job</span></div></div>
    <div class="watch"><${Attention} reads=${reads} /><${Running} /></div>
    <${Charts} everyone=${may('usage:read') ? '&everyone=true' : ''} />`
}
