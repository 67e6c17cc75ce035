// Cost: how far budgets are used, what is dear, and what failed attempts cost.
import { html, Ago, address, api, bounded, exact, go, may, me, money, now, number, route, say, sayProblem, useApi, useEffect, useKeys, useRef, useState } from './core.js'
import { word } from './copying.js'
import { Command, confirmed, Empty, Failure, Frame, Head, Name, State } from './parts.js'

const PERIODS = { '1h': ['last hour', 1], '24h': ['last 24 hours', 24], '7d': ['last 7 days', 168], '30d': ['last 30 days', 720] }
const MOST_BUDGETS = 20
const MOST_DRAWN = 3
const UNKNOWN = 'Calls without a price are not included'

const SCOPES = ['tenant', 'user', 'key', 'capability', 'model', 'flow']
const WINDOWS = { 60: 'a minute', 3600: 'an hour', 86_400: 'a day', 604_800: 'a week', 2_592_000: '30 days' }
const OVERRUNS = { extend: 'may continue while the budget has something left', stop: 'stops before its next call' }
const SHORTEST_S = 600 // the server records no history of shorter windows
const READ_MS = 60_000
const ENDED_MS = 5000
const RECENT = 0.25 // of a window: how far back the rate of use is measured

const amount = (unit, value) => (unit === 'money' ? money(value) : number(Number(value)))
const share = (part, whole) => (Number(whole) > 0 ? Math.min(1, Number(part) / Number(whole)) : 0)
const LENGTHS = [[86_400, 'days'], [3600, 'hours'], [60, 'minutes'], [1, 's']]
function windowOf(seconds) {
  const [length, name] = LENGTHS.find(([length]) => seconds % length === 0)
  return WINDOWS[seconds] || `${number(seconds / length)} ${name}`
}
const remaining = ({ limit, settled, held }) => Math.max(0, Number(limit) - Number(settled) - Number(held))

/**
 * Return what was left over time, as `[time, amount]`: samples, and what is known now.
 *
 * The server records nothing while nothing changes: until about one interval before a
 * sample, the amount was that of the sample before.
 */
export function curve(account, history, at) {
  const step = history.every_seconds * 1000
  const points = [...history.points.slice(0, -1).map(one => ({ ...one, at: Date.parse(one.at) })), { ...account, at }]
  const drawn = [[Date.parse(account.window_start), Number(points[0].limit)]]
  for (const point of points) {
    const [last, left] = drawn.at(-1)
    if (point.at - last > 1.5 * step) drawn.push([point.at - step, left])
    drawn.push([Math.max(last, point.at), remaining(point)])
  }
  return drawn
}

/**
 * Return the use per millisecond: since the first sample, at most in the last quarter of
 * the window. Without samples, or with none but new ones, it is the average of the window:
 * what a first sample counts may have been used long before.
 */
function rateOf({ settled, window_start, window_end }, history, at) {
  const start = Date.parse(window_start)
  const samples = history?.points.slice(0, -1).map(one => ({ settled: Number(one.settled), at: Date.parse(one.at) })) ?? []
  if (!samples.length || at - samples[0].at < 2000 * history.every_seconds) return at > start ? Number(settled) / (at - start) : 0
  const from = Math.max(at - RECENT * (Date.parse(window_end) - start), samples[0].at)
  const then = samples.filter(one => one.at <= from).at(-1)
  return Math.max(0, Number(settled) - then.settled) / (at - from)
}

/** Say when a budget is used up at the current rate: `{state, at, rate}`. */
export function projected(account, at, history = null) {
  const { settled, left, window_end: end } = account
  if (Number(left) <= 0) return { state: 'used up', at: end, rate: 0 }
  const rate = rateOf(account, history, at)
  if (Number(settled) <= 0 || rate <= 0) return { state: 'unused', at: end, rate: 0 }
  const over = at + Number(left) / rate
  return over < Date.parse(end) ? { state: 'ends early', at: new Date(over).toISOString(), rate } : { state: 'lasts', at: end, rate }
}

/** Read how a budget was used in its window, once it is drawn and visible, and then every minute. */
function useHistory({ scope, of, unit, per_seconds, window_start, window_end }, place, isDrawn) {
  const [found, set] = useState({})
  useEffect(() => {
    if (!isDrawn || per_seconds < SHORTEST_S || Date.parse(window_end) <= Date.now()) return undefined
    const reading = new AbortController()
    let timer
    const read = async () => {
      timer = setTimeout(read, READ_MS)
      if (document.hidden) return
      try {
        set({ history: await api(`/v1/budgets/history?${new URLSearchParams({ scope, of, unit, per_seconds })}`, { signal: reading.signal }) })
      } catch (error) {
        if (!reading.signal.aborted) set(was => ({ ...was, error }))
      }
    }
    const seen = new IntersectionObserver(entries => {
      if (!entries.some(entry => entry.isIntersecting)) return
      seen.disconnect()
      read()
    })
    seen.observe(place.current)
    return () => {
      seen.disconnect()
      clearTimeout(timer)
      reading.abort()
    }
  }, [scope, of, unit, per_seconds, window_start, isDrawn])
  return { history: found.history?.window_start === window_start ? found.history : null, error: found.error }
}

/** What was left over the window, what will be at this rate, and what an even use would leave. */
function Curve({ account, history }) {
  const [start, end] = [Date.parse(account.window_start), Date.parse(account.window_end)]
  const at = Math.min(end, Math.max(start, now.value))
  const drawn = history ? curve(account, history, at) : []
  const most = Math.max(1e-9, Number(account.limit), ...drawn.map(([, left]) => left))
  const point = ([time, left]) => `${((1000 * (time - start)) / (end - start)).toFixed(1)},${(100 - (100 * left) / most).toFixed(1)}`
  const { rate } = projected(account, at, history)
  const left = remaining(account)
  const over = rate > 0 ? Math.min(end, at + left / rate) : end
  return html`<svg class="curve" viewBox="0 0 1000 100" preserveAspectRatio="none" aria-hidden="true">
    <polyline class="even" points=${`${point([start, Number(account.limit)])} ${point([end, 0])}`} />
    ${history && html`<polyline class="drawn" points=${drawn.map(point).join(' ')} /><polyline class="ahead" points=${`${point([at, left])} ${point([over, left - rate * (over - at)])}`} />`}</svg>`
}

function Values({ account: { scope, of, unit }, history }) {
  return html`<div class="unseen"><table><caption>Remaining amount over time: ${scope} <${Name} text=${of} most=${50} /></caption>
    <thead><tr>${['Time', 'Remaining', 'Settled', 'Held', 'Limit'].map(name => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${history.points.map(one => html`<tr key=${one.at}><th scope="row">${exact(one.at)}</th>${[remaining(one), one.settled, one.held, one.limit].map(value => html`<td>${amount(unit, value)}</td>`)}</tr>`)}</tbody></table></div>`
}

function Ends({ account, history }) {
  const end = projected(account, now.value, history)
  return html`<span class=${`ends ${end.state === 'lasts' || end.state === 'unused' ? 'faint' : 'bad-text'}`}>${
    end.state === 'used up' ? html`used up; the next window starts <${Ago} at=${end.at} />`
      : end.state === 'ends early' ? html`will be used up <${Ago} at=${end.at} /> at this rate`
        : html`lasts until the window ends <${Ago} at=${end.at} />`}</span>`
}

function Burn({ account, isFirst }) {
  const place = useRef(null)
  const [isDrawn, draw] = useState(isFirst)
  const { history, error } = useHistory(account, place, isDrawn)
  const { unit, limit, settled, held, left } = account
  const parts = [['settled', settled], ['held', held], ['free', left]]
  const used = Math.round(100 * (share(settled, limit) + share(held, limit)))
  let x = 0
  return html`<div class="burn" ref=${place}><div class="line"><strong>${account.scope} <${Name} text=${account.of} most=${50} /></strong>
      <span class="faint">${amount(unit, limit)}${unit === 'tokens' ? ' tokens' : ''} per ${windowOf(account.per_seconds).replace(/^an? /, '')}</span><span class="used">${used} %</span></div>
    <svg class="stack" viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">${parts.map(([name, value]) => {
      const width = 1000 * share(value, limit)
      const rect = html`<rect class=${name} x=${x} width=${Math.min(width, 1000 - x)} height="10" />`
      x = Math.min(1000, x + width)
      return rect
    })}</svg>
    <div class="legend">${parts.map(([name, value]) => html`<span class=${`mark ${name}`}>${name} ${amount(unit, value)}</span>`)}
      ${Number(account.overdraft) > 0 && html`<span class="bad-text">overdraft ${amount(unit, account.overdraft)}</span>`}
      <${Ends} account=${account} history=${history} />
      ${!isDrawn && account.per_seconds >= SHORTEST_S && html`<button class="quiet" aria-label=${`Show burn-down of ${account.scope} ${bounded(account.of ?? '', 50)}`} onClick=${() => draw(true)}>Show burn-down</button>`}</div>
    ${isDrawn && account.per_seconds >= SHORTEST_S && html`<figure class="over-time"><${Curve} account=${account} history=${history} />
      <div class="axis"><span>${exact(account.window_start)}</span><span>${exact(account.window_end)}</span></div>
      <figcaption class="legend">${error && !history ? 'The history could not be read. The page tries again every minute.' : html`<span class="stroke drawn">remaining</span><span class="stroke ahead">at the current rate</span><span class="stroke even">even use</span>`}</figcaption>
      ${history && html`<${Values} account=${account} history=${history} />`}</figure>`}</div>`
}

/** A form in a dialog that sets a budget; `rule` is the one to change. */
function BudgetForm({ rule, close, reload }) {
  const dialog = useRef(null)
  const [error, setError] = useState('')
  const [unit, setUnit] = useState(rule?.unit ?? 'tokens')
  useEffect(() => dialog.current.showModal(), [])
  const submit = async event => {
    event.preventDefault()
    const said = Object.fromEntries(new FormData(event.target))
    const { scope, of, per_seconds } = rule ?? { ...said, of: said.of || null, per_seconds: Number(said.per_seconds) }
    const limit = unit === 'tokens' ? { tokens: Number(said.limit) } : { money: said.limit }
    try {
      await api('/v1/budgets', { method: 'PUT', body: { scope, of, per_seconds, overrun: said.overrun, ...limit } })
      say('The budget is set.')
      reload()
      dialog.current.close()
    } catch (problem) {
      setError([problem.message, ...problem.errors.map(each => `${each.path}: ${each.message}`)].join(' '))
    }
  }
  return html`<dialog ref=${dialog} aria-labelledby="budget-title" onClose=${close}><form onSubmit=${submit} class="form">
    <h2 id="budget-title">${rule ? html`Change ${rule.scope} <${Name} text=${rule.of ?? '(each)'} most=${50} />` : 'Set a budget'}</h2>
    ${!rule && html`<label>Applies to <select name="scope">${SCOPES.map(name => html`<option value=${name}>${name}</option>`)}</select></label>
      <label>Only this value, for example acme/ann for a user (leave empty to limit each value separately) <input name="of" maxlength="400" autocomplete="off" /></label>
      <label>Unit <select value=${unit} onChange=${event => setUnit(event.target.value)}><option value="tokens">tokens</option><option value="money">US dollars</option></select></label>
      <label>Window <select name="per_seconds">${Object.entries(WINDOWS).map(([value, text]) => html`<option value=${value} selected=${value === '86400'}>${text}</option>`)}</select></label>`}
    <label>Limit ${unit === 'tokens' ? 'in tokens' : 'in US dollars'} per ${rule ? windowOf(rule.per_seconds).replace(/^an? /, '') : 'window'} <input name="limit" type="number" required min="0" step=${unit === 'tokens' ? '1' : '0.000001'} autocomplete="off" defaultValue=${rule ? String(rule.limit) : ''} /></label>
    <label>A job that has used up its hold <select name="overrun">${Object.entries(OVERRUNS).map(([value, text]) => html`<option value=${value} selected=${value === (rule?.overrun ?? 'extend')}>${text}</option>`)}</select></label>
    ${error && html`<p class="bad-text" role="alert">${error}</p>`}
    <div class="actions end"><button type="button" onClick=${() => dialog.current.close()}>Close</button><button class="primary">Set the budget</button></div>
  </form></dialog>`
}

/** How many accounts a rule limits now: a rule for one value replaces the general one for it. */
function countOf(rule, rules, accounts) {
  const isSame = one => one.scope === rule.scope && one.unit === rule.unit && one.per_seconds === rule.per_seconds
  const named = new Set(rules.filter(isSame).map(one => one.of))
  return accounts.filter(one => isSame(one) && (rule.of === null ? !named.has(one.of) : one.of === rule.of)).length
}

function Rules({ rules, accounts, edit, reload }) {
  const remove = async rule => {
    const question = 'Its limit will no longer apply. Amounts that are held for jobs stay held until the jobs end. If an application declares this budget, it is set again when the application next starts.'
    if (!(await confirmed(`Delete the budget of ${rule.scope} ${bounded(rule.of ?? '(each)', 50)}?`, question, 'Delete the budget', { danger: true }))) return
    const { scope, of, unit, per_seconds } = rule
    try {
      await api(`/v1/budgets?${new URLSearchParams({ scope, unit, per_seconds, ...(of !== null && { of }) })}`, { method: 'DELETE' })
      say('The budget is deleted.')
      document.querySelector('h1').focus()
      reload()
    } catch (problem) {
      sayProblem(problem)
    }
  }
  return html`<h3>Limits in force</h3><${Frame} label="Limits in force"><table class="wraps"><thead><tr><th scope="col">Applies to</th><th scope="col" class="number">Limit</th><th scope="col">Window</th><th scope="col">Use</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
    <tbody>${rules.map(rule => {
      const count = countOf(rule, rules, accounts)
      return html`<tr key=${`${rule.scope} ${rule.of} ${rule.unit} ${rule.per_seconds}`}><td>${rule.scope} ${rule.of === null ? html`<span class="faint">each</span>` : html`<${Name} text=${rule.of} most=${50} />`}</td>
        <td class="number">${amount(rule.unit, rule.limit)}${rule.unit === 'tokens' ? ' tokens' : ''}</td><td>${windowOf(rule.per_seconds)}</td>
        <td>${count ? `${number(count)} in use` : html`<span class="faint">no use yet</span>`}</td>
        <td><div class="actions"><button onClick=${() => edit(rule)}>Change</button><button class="danger" onClick=${() => remove(rule)}>Delete</button></div></td></tr>`
    })}</tbody></table></${Frame}>`
}

function Budgets() {
  const { data, error, reload } = useApi('/v1/budgets', { live: 5000 })
  const [edited, edit] = useState(null)
  // No event says that a window has ended. The clocks may differ: it is read until the server agrees.
  const ended = data?.items.some(one => Date.parse(one.window_end) <= now.value) && Math.floor(now.value / ENDED_MS)
  useEffect(() => void (ended && reload()), [ended])
  if (!data) return html`<div class="card"><h2>Budgets</h2><${Failure} error=${error} retry=${reload} />${!error && html`<p class="faint">Loading…</p>`}</div>`
  const rest = one => share(one.left, one.limit)
  const items = [...data.items].sort((a, b) => rest(a) - rest(b))
  const mayChange = may('budgets:admin')
  return html`<div class="card"><div class="head"><h2>Budgets</h2><div class="actions">${mayChange && html`<button onClick=${() => edit({})}>Set a budget</button>`}</div></div><${Failure} error=${error} retry=${reload} />
    ${edited && html`<${BudgetForm} rule=${edited.scope ? edited : null} close=${() => edit(null)} reload=${reload} />`}
    ${!items.length && html`<p class="faint">No budget has been used in its current window.${mayChange && ' To set one on the command line, run:'}</p>${mayChange && html`<${Command} text=${`backburner budgets set tenant --of ${word(me.value.tenant)} --tokens 1000000`} />`}`}
    ${items.slice(0, MOST_BUDGETS).map((one, at) => html`<${Burn} isFirst=${at < MOST_DRAWN} key=${`${one.scope} ${one.of} ${one.unit} ${one.per_seconds} ${one.window_start}`} account=${one} />`)}
    ${items.length > MOST_BUDGETS && html`<p class="faint">The ${MOST_BUDGETS} budgets with the least left are shown, of ${number(items.length)}.</p>`}
    ${mayChange && data.budgets.length > 0 && html`<${Rules} rules=${data.budgets} accounts=${data.items} edit=${edit} reload=${reload} />`}</div>`
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
    <tbody>${jobs.map(job => html`<tr key=${job.id}><td><a href=${`/ui/jobs/${job.id}`}><${Name} text=${job.capability} most=${50} /></a> <span class="faint mono" title=${job.id}>…${job.id.slice(-8)}</span></td><td><${State} of=${job.state} /></td>
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
