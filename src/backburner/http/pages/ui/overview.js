// Overview: how much waits, runs and fails, what it costs, and what needs attention.
import { html, Ago, may, money, number, now, span, useApi } from './core.js'
import { Empty, Failure, Head, inline, Name } from './parts.js'

const COUNTED = ['queued', 'running', 'scheduled', 'failed']
const MINUTES = 5

/** A count of jobs; links to the list that it counts. */
function Count({ state, since }) {
  const { data } = useApi(`/v1/jobs/count?state=${state}${since ? `&since=${since}` : ''}`, { live: 2000 })
  const href = `/ui/jobs?state=${state}${since ? `&since=${MINUTES}m` : ''}`
  return html`<a class=${`tile ${state === 'failed' && data?.count ? 'alarm' : ''}`} href=${href}>
    <b>${data ? `${number(data.count)}${data.capped ? '+' : ''}` : '…'}</b><span>${state}${since ? ` in ${MINUTES} minutes` : ''}</span></a>`
}

function Attention({ oldest, groups, queues }) {
  const items = []
  if (oldest && now.value - Date.parse(oldest.created_at) > 60_000)
    items.push(html`<li>The oldest queued job has waited <a href=${`/ui/jobs/${oldest.id}`}>${span(now.value - Date.parse(oldest.created_at))}</a>.</li>`)
  for (const group of groups.slice(0, 5))
    items.push(html`<li><span class="bad-text">${inline(group.code, 60)}</span><span>${number(group.count)} jobs of <${Name} text=${group.capability} most=${50} />, last <${Ago} at=${group.last_at} />. <a href="/ui/incidents">Incidents</a></span></li>`)
  for (const queue of queues.filter(one => one.paused).slice(0, 5))
    items.push(html`<li>The queue <${Name} text=${queue.name} most=${50} /> is paused. <a href="/ui/fleet">Fleet</a></li>`)
  return html`<div class="card"><h2>Needs attention</h2>${items.length ? html`<ul class="attention">${items}</ul>` : html`<p class="faint">Nothing: no job has failed for good, nothing waits long, no queue is paused.</p>`}</div>`
}

export function Overview() {
  // Full minutes, so that the address, and with it the request, changes once a minute.
  const minute = Math.floor(now.value / 60_000)
  const since = new Date((minute - MINUTES) * 60_000).toISOString()
  const oldest = useApi('/v1/jobs?state=queued&sort=oldest&limit=1', { live: 2000 })
  const groups = useApi('/v1/dead-letters?limit=5', { live: 5000 })
  const queues = useApi(may('queues:read') ? '/v1/queues' : null, { live: 3000 })
  const everyone = may('usage:read') ? '&everyone=true' : ''
  const usage = useApi(`/v1/usage?by=model&since=${since}${everyone}`, { live: 5000 })
  const any = useApi('/v1/jobs?limit=1', { live: 5000 })
  const spent = usage.data?.total
  if (any.data && !any.data.items.length) return html`<${Head} title="Overview" /><${Empty} title="There are no jobs yet" command=${`backburner submit demo.echo '{"hello": "world"}'`}>Submit one, and its numbers appear here.</${Empty}>`
  return html`<${Head} title="Overview" /><${Failure} error=${any.error} retry=${any.reload} />
    <div class="tiles">${COUNTED.map(state => html`<${Count} key=${state} state=${state} />`)}
      <${Count} state="succeeded" since=${since} />
      <div class="tile"><b>${oldest.data ? (oldest.data.items[0] ? span(now.value - Date.parse(oldest.data.items[0].created_at)) : '–') : '…'}</b><span>oldest queued job</span></div>
      <div class="tile"><b>${spent ? number(Math.round((spent.input_tokens + spent.output_tokens) / MINUTES)) : '…'}</b><span>tokens a minute</span></div>
      <div class="tile"><b>${spent ? money(Number(spent.priced_cost_usd) / MINUTES) : '…'}</b><span>cost a minute</span></div></div>
    <${Attention} oldest=${oldest.data?.items[0]} groups=${groups.data?.items ?? []} queues=${queues.data?.items ?? []} />`
}
