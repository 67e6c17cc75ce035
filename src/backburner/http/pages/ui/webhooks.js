// Webhooks: deliveries with replay, and the endpoints that they go to.
import { html, useState, Ago, api, bounded, may, me, say, sayProblem, useApi } from './core.js'
import { confirmed, Failure, Frame, Head, Icon, inline, Name, State } from './parts.js'

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

export function Deliveries() {
  const [kind, choose] = useState('failed')
  const { data, error, reload } = useApi(`/v1/jobs?capability=${CAPABILITY}&state=${SHOWN[kind]}&limit=20`, { live: 3000 })
  const replay = async job => {
    const path = job.state === 'failed' ? `/v1/dead-letters/${job.id}/retry` : `/v1/deliveries/${job.id}/replay`
    try {
      await api(path, { method: 'POST', body: {} })
      say('The webhook is sent again with the same webhook-id.')
      reload()
    } catch (problem) {
      sayProblem(problem)
    }
  }
  const mayReplay = job => (job.state === 'failed' ? may('dead-letters:retry') : job.state === 'succeeded' && may('jobs:write') && isOwn(job))
  const items = data?.items ?? []
  return html`<h2 class="section">Webhook deliveries</h2><div class="chips" role="group" aria-label="Which deliveries">${Object.keys(SHOWN).map(name => html`<button aria-pressed=${kind === name} onClick=${() => choose(name)}>${name}</button>`)}</div>
    <${Failure} error=${error} retry=${reload} />
    ${data && !items.length && html`<p class="faint">No deliveries ${kind === 'failed' ? 'have failed' : kind === 'delivered' ? 'have succeeded' : 'are pending'}. A job that is submitted with a <code>callback</code> sends one when it ends.</p>`}
    ${items.length > 0 && html`<${Frame} label="Webhook deliveries"><table><thead><tr><th scope="col">Delivery</th><th scope="col">State</th><th scope="col">About</th><th scope="col" class="number">Attempts</th><th scope="col">Last error</th><th scope="col">Created</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
      <tbody>${items.map(job => {
        const { id, href } = subjectOf(job)
        return html`<tr key=${job.id}><td class="mono"><a href=${`/ui/jobs/${job.id}`}>${bounded(job.id, 40)}</a></td><td><${State} of=${job.state} /></td><td class="mono">${href ? html`<a href=${href}>${bounded(id, 40)}</a>` : bounded(id ?? '–', 40)}</td>
          <td class="number">${job.attempt} of ${job.max_attempts}</td><td dir="ltr" class="bad-text wrap">${job.error ? inline(`${job.error.code}: ${job.error.message}`, 160) : ''}</td><td class="time"><${Ago} at=${job.created_at} /></td>
          <td>${mayReplay(job) && html`<button onClick=${() => replay(job)}><${Icon} name="retry" /> Replay</button>`}</td></tr>`
      })}</tbody></table></${Frame}>`}`
}

export function Endpoints() {
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
  if (!items.length) return html`<${Failure} error=${error} />`
  return html`<h2 class="section">Endpoints</h2><${Failure} error=${error} /><${Frame} label="Endpoints"><table><thead><tr><th scope="col">URL</th><th scope="col">State</th><th scope="col">Created</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
    <tbody>${items.map(one => html`<tr key=${one.id}><td class="mono" dir="ltr"><${Name} text=${one.url} most=${80} /></td><td>${one.disabled_at ? html`<span class="state waiting"><${Icon} name="pause" />disabled${one.disabled_reason ? `: ${bounded(one.disabled_reason, 80)}` : ''}</span>` : html`<span class="state succeeded"><${Icon} name="succeeded" />enabled</span>`}</td><td class="time"><${Ago} at=${one.created_at} /></td>
      <td>${may('webhooks:write') && html`<button onClick=${() => set(one, one.disabled_at ? 'enable' : 'disable')}>${one.disabled_at ? 'Enable' : 'Disable'}</button>`}</td></tr>`)}</tbody></table></${Frame}>`
}

/** The view of who may not see the fleet. */
export const Webhooks = () => html`<${Head} title="Webhooks" /><${Deliveries} /><${Endpoints} />`
