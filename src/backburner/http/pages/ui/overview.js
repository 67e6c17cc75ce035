// Overview: how much waits, runs and fails, rates and cost over time, and what needs attention.
import { html, useEffect, useRef, useState, AGE, Ago, api, may, money, number, now, reconnected, span, useApi, useKeys } from './core.js'
import { Failure, Head, inline, Name } from './parts.js'
import { NoJobs } from './jobs.js'
import { projected } from './cost.js'

const COUNTED = ['queued', 'running', 'scheduled', 'failed']
const MINUTES = 30
const RECENT = 5
const NEAR = 0.8

/** A count of jobs; links to the list that it counts. */
function Count({ state }) {
  const { data } = useApi(`/v1/jobs/count?state=${state}`, { live: 2000 })
  return html`<a class=${`tile ${state === 'failed' && data?.count ? 'alarm' : ''}`} href=${`/ui/jobs?state=${state}`}>
    <b>${data ? `${number(data.count)}${data.capped ? '+' : ''}` : '…'}</b><span>${state}</span></a>`
}

// --- Minutes: read whole once, then only the newest ------------------------------------------

/**
 * Return figures by minute, the oldest first: `{at, submitted, succeeded, failed, tokens, cost}`.
 *
 * Every ten seconds the two newest minutes are read again, so that a page that is left
 * open costs the server little.
 */
function useMinutes(everyone) {
  const [known, set] = useState(null)
  const minute = Math.floor(now.value / 60_000)
  const first = useRef(null)
  const tick = Math.floor(now.value / 10_000)
  useEffect(() => {
    const from = first.current === reconnected.value ? minute - 1 : minute - MINUTES + 1
    const since = new Date(from * 60_000).toISOString()
    Promise.all([`/v1/activity?since=${since}`, `/v1/usage?by=minute&limit=100&since=${since}${everyone}`].map(path => api(path, { age: AGE }))).then(([jobs, usage]) => {
      const read = {}
      const at = text => Math.floor(Date.parse(text) / 60_000)
      for (let one = from; one <= minute; one++) read[one] = { submitted: 0, succeeded: 0, failed: 0, tokens: 0, cost: 0 }
      for (const one of jobs.items) if (read[at(one.at)]) Object.assign(read[at(one.at)], { submitted: one.submitted, succeeded: one.succeeded, failed: one.failed })
      for (const one of usage.items) if (read[at(one.key)]) Object.assign(read[at(one.key)], { tokens: one.input_tokens + one.output_tokens, cost: Number(one.priced_cost_usd) })
      first.current = reconnected.value
      set(was => ({ ...was, ...read }))
    }, () => {})
  }, [tick, reconnected.value])
  if (!known) return null
  return Array.from({ length: MINUTES }, (_, place) => {
    const at = minute - MINUTES + 1 + place
    return { at: at * 60_000, submitted: 0, succeeded: 0, failed: 0, tokens: 0, cost: 0, ...known[at] }
  })
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
  return html`<figure class="card chart"><figcaption><strong>${title}</strong><span title="Average of the last five minutes">${parts.map(([name, kind]) => html`<span class=${`mark ${kind}`}>${name} ${write(rate(name))}</span>`)}</span></figcaption>
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
  const minutes = useMinutes(everyone)
  if (!minutes) return html`<div class="charts"></div>`
  return html`<div class="charts"><${Chart} title="Jobs ended per minute" minutes=${minutes} parts=${[['succeeded', 'good'], ['failed', 'bad']]} write=${rounded} />
    <${Chart} title="Jobs submitted per minute" minutes=${minutes} parts=${[['submitted', 'settled']]} write=${rounded} />
    <${Chart} title="Tokens per minute" minutes=${minutes} parts=${[['tokens', 'settled']]} write=${rounded} />
    <${Chart} title="Cost per minute" minutes=${minutes} parts=${[['cost', 'settled']]} write=${money} /></div>`
}

// --- What needs attention --------------------------------------------------------------------

function Attention({ oldest, groups, queues, workers, budgets, questions, webhooks }) {
  const items = []
  const waited = oldest && now.value - Date.parse(oldest.created_at)
  if (workers && !workers.length) items.push(['No worker', html`No worker is running. Jobs wait until you start one. <a href="/ui/fleet">Fleet</a>`])
  if (waited > 60_000) items.push(['Long wait', html`The oldest queued job has waited <a href=${`/ui/jobs/${oldest.id}`}>${span(waited)}</a>.`])
  for (const group of groups.slice(0, 5))
    items.push([inline(group.code, 60), html`${number(group.count)} ${group.count === 1 ? 'job' : 'jobs'} of <${Name} text=${group.capability} most=${50} />, last <${Ago} at=${group.last_at} />${group.message ? html`: <bdi class="faint">${inline(group.message, 120)}</bdi>` : '.'} <a href="/ui/incidents">Incidents</a>`])
  for (const queue of queues.filter(one => one.paused).slice(0, 5)) items.push(['Paused', html`The queue <${Name} text=${queue.name} most=${50} /> is paused. <a href="/ui/fleet">Fleet</a>`])
  for (const one of budgets.filter(one => Number(one.limit) > 0 && Number(one.left) <= (1 - NEAR) * Number(one.limit)).slice(0, 3)) {
    const end = projected(one, now.value)
    items.push(['Budget', html`The budget of ${one.scope} <${Name} text=${one.of} most=${40} /> is ${end.state === 'used up' ? 'used up' : `${Math.round(100 * (1 - Number(one.left) / Number(one.limit)))} % used`}. <a href="/ui/cost">Cost</a>`])
  }
  if (questions?.length) items.push(['Questions', html`${questions.length === 1 ? 'A job waits' : `${questions.length}${questions.length > 9 ? '+' : ''} jobs wait`} for an answer. <a href="/ui/questions">Questions</a>`])
  if (webhooks?.length) items.push(['Webhooks', html`${webhooks.length}${webhooks.length > 9 ? '+' : ''} ${webhooks.length === 1 ? 'delivery has' : 'deliveries have'} failed. <a href=${may('queues:read') ? '/ui/fleet' : '/ui/webhooks'}>Webhook deliveries</a>`])
  return html`<div class="card attend"><h2>Needs attention</h2>${items.length ? html`<ul class="attention">${items.map(([what, text], place) => html`<li key=${`${place} ${what}`}><span class="bad-text">${what}</span><span>${text}</span></li>`)}</ul>` : html`<p class="faint">Nothing needs attention: no job has failed permanently, no queued job has waited for more than a minute, no queue is paused and no budget is nearly used up.</p>`}</div>`
}

export function Overview() {
  const oldest = useApi('/v1/jobs?state=queued&sort=oldest&limit=1', { live: 2000 })
  const groups = useApi(may('dead-letters:read') ? '/v1/dead-letters?limit=5' : null, { live: 5000 })
  const queues = useApi(may('queues:read') ? '/v1/queues' : null, { live: 3000 })
  const workers = useApi(may('queues:read') ? '/v1/workers' : null, { live: 10_000 })
  const budgets = useApi('/v1/budgets', { live: 10_000 })
  const questions = useApi('/v1/questions?limit=10', { live: 10_000 })
  const webhooks = useApi('/v1/jobs?capability=webhook.deliver&state=failed&limit=10', { live: 10_000 })
  const any = useApi('/v1/jobs?limit=1', { live: 5000 })
  useKeys({ r: [() => any.reload(), 'Refresh'] })
  if (any.data && !any.data.items.length) return html`<${Head} title="Overview" /><${NoJobs} />`
  return html`<${Head} title="Overview" /><${Failure} error=${any.error} retry=${any.reload} />
    <div class="tiles five">${COUNTED.map(state => html`<${Count} key=${state} state=${state} />`)}
      <div class="tile"><b>${oldest.data ? (oldest.data.items[0] ? span(now.value - Date.parse(oldest.data.items[0].created_at)) : '–') : '…'}</b><span>wait of the oldest queued job</span></div></div>
    <${Charts} everyone=${may('usage:read') ? '&everyone=true' : ''} />
    <${Attention} oldest=${oldest.data?.items[0]} groups=${groups.data?.items ?? []} queues=${queues.data?.items ?? []} workers=${workers.data?.items} budgets=${budgets.data?.items ?? []}
      questions=${questions.data?.items} webhooks=${webhooks.data?.items} />`
}
