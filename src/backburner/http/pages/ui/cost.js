// Cost: how far budgets are used, what is dear, and what failed attempts cost.
import { html, Ago, address, bounded, go, may, me, money, now, number, route, useApi, useKeys } from './core.js'
import { Empty, Failure, Frame, Head, Name, State } from './parts.js'

const PERIODS = { '1h': ['last hour', 1], '24h': ['last 24 hours', 24], '7d': ['last 7 days', 168], '30d': ['last 30 days', 720] }
const MOST_BUDGETS = 20
const UNKNOWN = 'Calls without a price are not included'

/** Say when a budget is used up if it goes on so: `{state, at}`. */
export function projected({ settled, left, window_start: start, window_end: end }, at) {
  const [used, free] = [Number(settled), Number(left)]
  if (free <= 0) return { state: 'used up', at: end }
  const elapsed = at - Date.parse(start)
  if (used <= 0 || elapsed <= 0) return { state: 'unused', at: end }
  const over = at + (free * elapsed) / used
  return over < Date.parse(end) ? { state: 'ends early', at: new Date(over).toISOString() } : { state: 'lasts', at: end }
}

const amount = (unit, value) => (unit === 'money' ? money(value) : number(Number(value)))
const share = (part, whole) => (Number(whole) > 0 ? Math.min(1, Number(part) / Number(whole)) : 0)
const windowOf = seconds => ({ 60: 'a minute', 3600: 'an hour', 86_400: 'a day', 604_800: 'a week' })[seconds] || `${number(seconds)} s`

function Burn({ account }) {
  const { unit, limit, settled, held, left } = account
  const parts = [['settled', settled], ['held', held], ['free', left]]
  const used = Math.round(100 * (share(settled, limit) + share(held, limit)))
  const end = projected(account, now.value)
  let x = 0
  return html`<div class="burn"><div class="line"><strong>${account.scope} <${Name} text=${account.of} most=${50} /></strong>
      <span class="faint">${amount(unit, limit)}${unit === 'tokens' ? ' tokens' : ''} per ${windowOf(account.per_seconds).replace(/^an? /, '')}</span><span class="used">${used} %</span></div>
    <svg class="stack" viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">${parts.map(([name, value]) => {
      const width = 1000 * share(value, limit)
      const rect = html`<rect class=${name} x=${x} width=${Math.min(width, 1000 - x)} height="10" />`
      x = Math.min(1000, x + width)
      return rect
    })}</svg>
    <div class="legend">${parts.map(([name, value]) => html`<span class=${`mark ${name}`}>${name} ${amount(unit, value)}</span>`)}
      ${Number(account.overdraft) > 0 && html`<span class="bad-text">overdraft ${amount(unit, account.overdraft)}</span>`}
      <span class=${`ends ${end.state === 'lasts' || end.state === 'unused' ? 'faint' : 'bad-text'}`}>${
        end.state === 'used up' ? html`used up; the next window starts <${Ago} at=${end.at} />`
          : end.state === 'ends early' ? html`will be used up <${Ago} at=${end.at} /> at this rate`
            : html`lasts until the window ends <${Ago} at=${end.at} />`}</span></div></div>`
}

function Budgets() {
  const { data, error, reload } = useApi('/v1/budgets', { live: 5000 })
  if (!data) return html`<div class="card"><h2>Budgets</h2><${Failure} error=${error} retry=${reload} />${!error && html`<p class="faint">Loading…</p>`}</div>`
  const rest = one => share(one.left, one.limit)
  const items = [...data.items].sort((a, b) => rest(a) - rest(b))
  return html`<div class="card"><h2>Budgets</h2><${Failure} error=${error} retry=${reload} />
    ${!items.length && html`<p class="faint">No budget has been used in its current window. To set one, run:</p><code class="block">${`backburner budgets set tenant --of ${bounded(me.value.tenant, 40)} --tokens 1000000`}</code>`}
    ${items.slice(0, MOST_BUDGETS).map(one => html`<${Burn} key=${`${one.scope} ${one.of} ${one.unit} ${one.per_seconds}`} account=${one} />`)}
    ${items.length > MOST_BUDGETS && html`<p class="faint">The ${MOST_BUDGETS} budgets with the least left are shown, of ${number(items.length)}.</p>`}</div>`
}

const Dollars = ({ of }) => html`<span title=${of.priced ? '' : UNKNOWN}>${money(of.priced_cost_usd)}${of.priced ? '' : '+'}</span>`
const Share = ({ of, total }) => html`<svg class="share" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect width=${100 * share(of.priced_cost_usd, total.priced_cost_usd)} height="6" /></svg>`

const By = ({ title, items, total, filter }) => html`<div class="card"><h2>By ${title}</h2><table class="plain"><thead><tr><th scope="col">${title}</th><th scope="col" class="number">Tokens</th><th scope="col" class="number">Cost</th></tr></thead>
  <tbody>${items.map(one => html`<tr key=${one.key}><td>${filter ? html`<a href=${address('jobs', { [filter]: one.key })}><${Name} text=${one.key} most=${40} /></a>` : html`<${Name} text=${one.key} most=${40} />`}<${Share} of=${one} total=${total} /></td>
    <td class="number">${number(one.input_tokens + one.output_tokens)}</td><td class="number"><${Dollars} of=${one} /></td></tr>`)}</tbody></table></div>`

function Dearest({ jobs, everyone }) {
  if (!jobs.length) return null
  return html`<h2 class="section">Most expensive jobs</h2><${Frame} label="Most expensive jobs"><table><thead><tr><th scope="col">Job</th><th scope="col">State</th>${everyone && html`<th scope="col">User</th>`}
      <th scope="col" class="number">Calls</th><th scope="col" class="number">Tokens</th><th scope="col" class="number">Cost</th></tr></thead>
    <tbody>${jobs.map(job => html`<tr key=${job.id}><td><a href=${`/ui/jobs/${job.id}`}><${Name} text=${job.capability} most=${50} /></a> <span class="faint mono">${bounded(job.id, 40)}</span></td><td><${State} of=${job.state} /></td>
      ${everyone && html`<td><${Name} text=${job.user} most=${40} /></td>`}<td class="number">${number(job.calls)}</td><td class="number">${number(job.input_tokens + job.output_tokens)}</td><td class="number"><${Dollars} of=${job} /></td></tr>`)}</tbody></table></${Frame}>`
}

export function Cost() {
  const chosen = Object.hasOwn(PERIODS, route.value.query.since ?? '') ? route.value.query.since : '24h'
  const [, hours] = PERIODS[chosen]
  // Full minutes, so that the address, and with it the request, changes once a minute.
  const since = new Date((Math.floor(now.value / 60_000) - hours * 60) * 60_000).toISOString()
  const everyone = may('usage:read')
  const { data, error, reload } = useApi(`/v1/usage/costs?since=${since}${everyone ? '&everyone=true' : ''}`, { live: 5000 })
  const choose = period => go(address('cost', { since: period }), { replace: true })
  const step = by => {
    const names = Object.keys(PERIODS)
    choose(names[Math.min(names.length - 1, Math.max(0, names.indexOf(chosen) + by))])
  }
  useKeys({ j: [() => step(1), 'A longer period'], k: [() => step(-1), 'A shorter period'], r: [() => reload(), 'Refresh'] })
  const wasted = data && share(data.failed.priced_cost_usd, data.total.priced_cost_usd)
  return html`<${Head} title="Cost"><label><span class="unseen">Period</span><select value=${chosen} onChange=${event => choose(event.target.value)}>
      ${Object.entries(PERIODS).map(([name, [text]]) => html`<option value=${name}>${text}</option>`)}</select></label></${Head}>
    <${Failure} error=${error} retry=${reload} />
    <div class="tiles"><div class="tile"><b>${data ? html`<${Dollars} of=${data.total} />` : '…'}</b><span>cost, ${PERIODS[chosen][0]}</span></div>
      <div class=${`tile ${wasted > 0.2 ? 'alarm' : ''}`}><b>${data ? html`<${Dollars} of=${data.failed} />` : '…'}</b><span>of this for failed attempts${wasted ? `: ${Math.round(100 * wasted)} %` : ''}</span></div>
      <div class="tile"><b>${data ? number(data.total.input_tokens + data.total.output_tokens) : '…'}</b><span>tokens</span></div>
      <div class="tile"><b>${data ? number(data.total.calls) : '…'}</b><span>${data?.total.calls === 1 ? 'call' : 'calls'} by ${data ? number(data.total.jobs) : '…'} ${data?.total.jobs === 1 ? 'job' : 'jobs'}</span></div></div>
    ${data?.capped && html`<p class="faint" role="status">These figures cover only the newest ${number(data.total.calls)} calls; the oldest of them was made <${Ago} at=${data.since} />. Choose a shorter period, or run <code>backburner usage</code>.</p>`}
    <${Budgets} />
    ${data && !data.total.calls && html`<div class="below"><${Empty} title=${`No model was called in the ${PERIODS[chosen][0]}`} command="backburner usage --by day">Jobs that call models appear here with their usage and cost. To see the usage of the last 30 days, run:</${Empty}></div>`}
    ${data?.total.calls > 0 && html`<div class="two below"><${By} title="capability" items=${data.by_capability} total=${data.total} filter="capability" /><${By} title="model" items=${data.by_model} total=${data.total} />
      ${everyone && html`<${By} title="user" items=${data.by_user} total=${data.total} filter=${me.value.sees_tenant ? 'user' : null} />`}</div><${Dearest} jobs=${data.jobs} everyone=${everyone} />`}`
}
