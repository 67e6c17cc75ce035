// Webhooks: deliveries with replay, and the endpoints that they go to.
import { html, useRef, useState, address, Ago, api, bounded, may, me, say, sayProblem, useApi } from './core.js'
import { act, confirmed, Empty, Failure, Frame, Head, Icon, inline, Name, State, useSample } from './parts.js'
import { Fresh, useList, useTables } from './list.js'

const CAPABILITY = 'webhook.deliver'
const SHOWN = { failed: 'failed', pending: 'queued,scheduled,running', delivered: 'succeeded' }
const PLACES = { job: 'jobs', flow: 'flows', batch: 'batches' }

/** Return what a delivery tells of: its id and the address of its page. */
export function subjectOf(delivery) {
  const id = delivery.tags.find(tag => tag.startsWith('delivery:'))?.slice(9)
  const place = PLACES[id?.split('_')[0]]
  return { id, href: place && `/ui/${place}/${encodeURIComponent(id)}` }
}

const isOwn = job => job.user === me.value.user || !me.value.needs_login

const PAGE = 20
const MOST_READS = 10
const NONE = []
const LEFT = { failed: 'no longer failed', pending: 'ended', delivered: 'sent again' }

/** Read a page; a search for few among many goes on where it stopped, up to a limit. */
async function readPage(path, { age = 0 } = {}) {
  const query = new URLSearchParams(path.split('?')[1])
  const items = []
  for (let reads = 1; ; reads++) {
    query.set('limit', PAGE - items.length)
    const page = await api(`/v1/jobs?${query}`, { age })
    items.push(...page.items)
    if (!page.next_cursor || items.length >= PAGE || reads >= (age ? 1 : MOST_READS)) return { items, next_cursor: page.next_cursor }
    query.set('cursor', page.next_cursor)
  }
}

function NoDeliveries({ kind, isPartly, sample }) {
  const what = `${isPartly ? 'Among the jobs that were searched, no' : 'No'} delivery ${{ failed: 'has failed', delivered: 'has succeeded', pending: 'is pending' }[kind]}`
  return html`<${Empty} title=${what} level="h3" command=${sample && may('jobs:write') ? `backburner submit ${sample.name} '${sample.input}' --callback https://example.com/hooks` : undefined}>A job that is submitted with a callback sends a webhook when it ends.</${Empty}>`
}

/** Deliveries; what is below them, `children`, comes when they are read, so that nothing moves. */
function Deliveries({ current, sample, children }) {
  const [kind, choose] = useState('failed')
  // The cursors of the pages up to the one that is shown.
  const [cursors, setCursors] = useState(NONE)
  const path = `/v1/jobs${address('', { capability: CAPABILITY, state: SHOWN[kind], cursor: cursors.at(-1) }).slice(4)}`
  const list = useList(path, { live: 3000, when: event => Boolean(event.job_id) && event.type !== 'job.output.delta', read: readPage })
  const replay = async job => {
    const target = job.state === 'failed' ? `/v1/dead-letters/${job.id}/retry` : `/v1/deliveries/${job.id}/replay`
    await act(target, 'The webhook is sent again with the same webhook-id.', list.reload)
  }
  const mayReplay = job => !job.isGone && (job.state === 'failed' ? may('dead-letters:retry') : job.state === 'succeeded' && may('jobs:write') && isOwn(job))
  const { rows } = list
  const isRead = list.isRead && sample !== undefined
  const isShown = useRef(false)
  isShown.current ||= isRead
  return html`<div class="head section"><h2>Webhook deliveries</h2><div class="actions"><a href=${address('jobs', { capability: CAPABILITY, state: SHOWN[kind] })}>All in Jobs</a></div></div>
    <div class="chips" role="group" aria-label="Which deliveries">${Object.keys(SHOWN).map(name => html`<button aria-pressed=${kind === name} onClick=${() => (setCursors(NONE), choose(name))}>${name}</button>`)}${list.isRead && !cursors.length && html`<${Fresh} list=${list} />`}</div>
    <${Failure} error=${list.error} retry=${list.reload} />
    ${!rows.length && !list.error && !isRead && html`<p class="faint">Loading…</p>`}
    ${!rows.length && !list.error && isRead && html`<${NoDeliveries} kind=${kind} sample=${sample} isPartly=${Boolean(list.next || cursors.length)} />`}
    ${rows.length > 0 && html`<div class=${list.isRead ? '' : 'stale'} aria-busy=${!list.isRead}><${Frame} label="Webhook deliveries"><table><thead><tr><th scope="col">Delivery</th><th scope="col">State</th><th scope="col">About</th><th scope="col" class="number">Attempts</th><th scope="col">Last error</th><th scope="col">Created</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
      <tbody>${rows.map(job => {
        const { id, href } = subjectOf(job)
        return html`<tr key=${job.id} ...${current(`delivery ${job.id}`)}><td class="mono"><a href=${`/ui/jobs/${job.id}`}>${bounded(job.id, 40)}</a></td><td>${job.isGone ? html`<span class="faint">${LEFT[kind]}</span>` : html`<${State} of=${job.state} />`}</td><td class="mono">${href ? html`<a href=${href}>${bounded(id, 40)}</a>` : bounded(id ?? '–', 40)}</td>
          <td class="number">${job.attempt} of ${job.max_attempts}</td><td dir="ltr" class="bad-text wrap">${job.error && !job.isGone ? inline(`${job.error.code}: ${job.error.message}`, 160) : ''}</td><td class="time"><${Ago} at=${job.created_at} /></td>
          <td>${mayReplay(job) && html`<button onClick=${() => replay(job)}><${Icon} name="retry" /> Replay</button>`}</td></tr>`
      })}</tbody></table></${Frame}></div>`}
    ${(cursors.length > 0 || (list.isRead && list.next)) && html`<div class="pager"><button disabled=${!cursors.length} onClick=${() => setCursors(cursors.slice(0, -1))}>Previous page</button>
      <button disabled=${!list.isRead || !list.next} onClick=${() => setCursors([...cursors, list.next])}>Next page</button></div>`}${isShown.current && children}`
}

function Endpoints({ current }) {
  const { data, error, reload } = useApi('/v1/endpoints?limit=50', { live: 10_000 })
  const set = async (one, verb) => {
    if (verb === 'disable' && !(await confirmed('Disable this endpoint?', 'Nothing is sent to this endpoint until you enable it. Deliveries fail meanwhile and can be replayed later.', 'Disable the endpoint', { danger: true }))) return
    try {
      await api(`/v1/endpoints/${one.id}/${verb}`, { method: 'POST', body: {} })
      say(`The endpoint is ${verb}d.`)
      reload()
    } catch (problem) {
      sayProblem(problem)
    }
  }
  const items = data?.items ?? []
  return html`<h2 class="section">Endpoints</h2><${Failure} error=${error} retry=${reload} />
    ${data && !items.length && html`<${Empty} title="You have no endpoints" level="h3" command=${may('webhooks:write') ? 'backburner webhooks create https://example.com/hooks' : undefined}>An endpoint is a URL that receives webhooks. It is created with the first callback to it, or with this command:</${Empty}>`}
    ${items.length > 0 && html`<${Frame} label="Endpoints"><table><thead><tr><th scope="col">URL</th><th scope="col">State</th><th scope="col">Created</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
    <tbody>${items.map(one => html`<tr key=${one.id} ...${current(`endpoint ${one.id}`)}><td class="mono" dir="ltr"><${Name} text=${one.url} most=${80} /></td><td>${one.disabled_at ? html`<span class="state waiting"><${Icon} name="pause" />disabled${one.disabled_reason ? `: ${bounded(one.disabled_reason, 80)}` : ''}</span>` : html`<span class="state succeeded"><${Icon} name="succeeded" />enabled</span>`}</td><td class="time"><${Ago} at=${one.created_at} /></td>
      <td>${may('webhooks:write') && html`<button onClick=${() => set(one, one.disabled_at ? 'enable' : 'disable')}>${one.disabled_at ? 'Enable' : 'Disable'}</button>`}</td></tr>`)}</tbody></table></${Frame}>`}`
}

/** What the role may see of deliveries and endpoints; `sample` is what `useSample` returns. */
export function Sent({ current, sample }) {
  const endpoints = may('webhooks:read') && html`<${Endpoints} current=${current} />`
  return may('jobs:read') ? html`<${Deliveries} current=${current} sample=${sample}>${endpoints}</${Deliveries}>` : endpoints
}

/** The view of who may not see the fleet. */
export function Webhooks() {
  return html`<${Head} title="Webhooks" /><${Sent} current=${useTables()} sample=${useSample()} />`
}
