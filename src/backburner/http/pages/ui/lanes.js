// Lanes: what each provider allows, how much of it is refused, and who waits.
import { html, Ago, exact, now, number, span, useApi, useEffect } from './core.js'
import { Empty, Failure, Frame, Head, Icon, Name } from './parts.js'
import { useRows } from './list.js'

const POLL_MS = 3000 // a lane opens again without an event
const LOOK = { open: 'succeeded', probing: 'scheduled', parked: 'failed' }
const ALARM = 0.05

const rate = value => (value === null ? '–' : `${number(Math.round(value))}/min`)

function Declared({ lane }) {
  const limits = [
    lane.requests && `${number(lane.requests)} calls/min`, lane.tokens && `${number(lane.tokens)} tokens/min`,
    lane.at_once && `${number(lane.at_once)} at once`, lane.spacing_seconds > 0 && `one per ${lane.spacing_seconds} s`,
  ].filter(Boolean)
  return limits.length ? limits.join(', ') : html`<span class="faint">none</span>`
}

function Refused({ lane }) {
  if (!lane.last_minute) return html`<span class="faint">–</span>`
  const share = lane.refused_last_minute / lane.last_minute
  return html`<span class=${share > ALARM ? 'bad-text' : ''} title=${`${number(lane.refused_last_minute)} of ${number(lane.last_minute)} calls`}>${Math.round(100 * share)} %</span>`
}

const Forecast = ({ at }) => (at ? html`<time datetime=${at} title=${exact(at)}>in ${span(Date.parse(at) - now.value)}</time>` : html`<span class="faint">–</span>`)

export function Lanes() {
  const { data, error, reload } = useApi('/v1/lanes', { live: 2000 })
  useEffect(() => {
    const timer = setInterval(() => document.hidden || reload(), POLL_MS)
    return () => clearInterval(timer)
  }, [])
  const lanes = data?.items ?? []
  const current = useRows(lanes, null, 'lane', lane => lane.name)
  const parked = lanes.filter(lane => lane.state === 'parked').length
  const waiting = lanes.reduce((sum, lane) => sum + lane.waiting, 0)
  return html`<${Head} title="Lanes"><span class="faint">${data ? `${number(lanes.length)} ${lanes.length === 1 ? 'lane' : 'lanes'}, ${number(parked)} parked, about ${number(waiting)} calls waiting` : ''}</span></${Head}>
    <${Failure} error=${error} retry=${reload} />
    ${data && !lanes.length && html`<${Empty} title="No provider has been called yet" command="backburner lanes">A lane is a rate limit for one provider, model and key that all workers share. It appears here with its first call.</${Empty}>`}
    ${lanes.length > 0 && html`<${Frame} label="Lanes"><table class="lanes"><thead><tr><th scope="col">Lane</th><th scope="col" class="number">Waiting</th><th scope="col">Last one starts</th>
      <th scope="col" class="number">Learned limit</th><th scope="col" class="number">Current pace</th><th scope="col" class="number">429s</th><th scope="col" class="number">Calls, last minute</th><th scope="col" class="number">In use</th><th scope="col" class="number">Times parked</th><th scope="col">Declared limits</th></tr></thead>
      <tbody>${lanes.map((lane, at) => html`<tr key=${lane.name} data-row class=${at === current ? 'current' : ''} aria-current=${at === current ? 'true' : undefined}>
        <td class="what"><strong><${Name} text=${lane.name} most=${80} /></strong>
          <span class=${`state ${LOOK[lane.state]}`}><${Icon} name=${lane.state === 'parked' ? 'pause' : LOOK[lane.state]} />${lane.state}</span>
          ${lane.parked_until && html` <span class="faint">opens <${Ago} at=${lane.parked_until} /></span>`}</td>
        <td class="number">${lane.waiting ? number(lane.waiting) : html`<span class="faint">0</span>`}</td><td class="time"><${Forecast} at=${lane.done_at} /></td>
        <td class="number">${rate(lane.ceiling)}</td><td class="number">${rate(lane.pace)}</td><td class="number"><${Refused} lane=${lane} /></td>
        <td class="number">${number(lane.last_minute)}</td><td class="number">${number(lane.in_use)}</td><td class="number">${number(lane.parkings)}</td><td class="faint"><${Declared} lane=${lane} /></td></tr>`)}</tbody></table></${Frame}>
      <p class="faint explained">The learned limit is the estimated number of calls per minute that the provider accepts; it is unknown until a call has been refused. After a refused call the lane is parked: no call starts. Then single calls test whether the provider accepts calls again (probing). The number of waiting calls, and the time when the last of them starts at the current pace, are estimates. 429s is the share of the last minute's calls that were refused.</p>`}`
}
