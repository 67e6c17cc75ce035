// Jobs: filters in the address, one query box, selection, bulk actions.
import {
  html, AGE, useEffect, useRef, useState, useSignal, address, Ago, api, batch, exact, go, may, me, money, now, number, reconnected, route, say,
  sayProblem, signal, span, throttled, useApi, useEvents, useKeys, bounded,
} from './core.js'
import { Completed, readWord, words, writeWord } from './completion.js'
import { confirmed, Empty, Failure, Frame, Head, inline, LIVE, Name, State, STATES, useSample } from './parts.js'

const FIELDS = ['state', 'capability', 'queue', 'tag', 'metadata', 'user', 'since', 'until', 'fingerprint', 'flow', 'batch', 'worker', 'sort']
const PAGE = 50
const SPAN = /^(\d+)(s|m|min|h|d|w)$/
const SIZES = { s: 1000, m: 60_000, min: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 }

/** Where the list of jobs was left: its filters. */
export const lastJobs = signal('/ui/jobs')

/** The values of a filter: of `metadata` there may be several. */
const all = value => [value ?? []].flat().filter(Boolean)

// --- The query box: `state:failed queue:mail since:2h` --------------------------------

/** Read the query box; return the filters, or what is wrong with it. */
export function parse(text) {
  const query = {}
  for (const word of words(text)) {
    const { field, value } = readWord(word) ?? {}
    if (/^job_[\w-]+$/.test(word)) return { job: word }
    if (!field) return { error: `“${bounded(word, 40)}” is not a filter. Write for example state:failed or tag:nightly.` }
    if (!FIELDS.includes(field)) return { error: `There is no filter “${bounded(field, 40)}”. Use ${FIELDS.join(', ')}.` }
    if (!value) return { error: `The filter “${field}” has no value. Write ${field}:VALUE.` }
    if (field === 'metadata') query.metadata = [...all(query.metadata), value]
    else query[field] = ['since', 'until'].includes(field) ? zoned(value) : value
  }
  return { query, error: problemOf(query) }
}

function problemOf(query) {
  const wrong = (query.state || '').split(',').filter(name => name && !STATES.includes(name))
  if (wrong.length) return `“${bounded(wrong[0], 40)}” is not a state. Use ${STATES.join(', ')}.`
  for (const field of ['since', 'until'])
    if (query[field] && !instant(query[field])) return `“${field}” must be an age such as 30m, 2h or 7d, or a time such as 2030-01-31T12:00.`
  for (const pair of all(query.metadata))
    if (pair.indexOf('=') < 1) return `“${bounded(pair, 40)}” is not a pair. Write for example metadata:order=A-1042.`
  if (query.sort && !['newest', 'oldest'].includes(query.sort)) return '“sort” must be newest or oldest.'
  return ''
}

export const write = query =>
  FIELDS.flatMap(field => all(query[field]).map(value => writeWord(field, value))).join(' ')

const DAY = /^\d{4}-\d\d-\d\d$/
const LOCAL = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?$/

/** Write a time of this browser with its offset: a shared address means the same time everywhere. */
function zoned(text) {
  const local = DAY.test(text) ? `${text}T00:00` : text
  if (!LOCAL.test(local) || !instant(local)) return text
  const minutes = -new Date(local).getTimezoneOffset()
  const two = value => String(Math.floor(value)).padStart(2, '0')
  return minutes ? `${local}${minutes < 0 ? '-' : '+'}${two(Math.abs(minutes) / 60)}:${two(Math.abs(minutes) % 60)}` : `${local}Z`
}

/** Return a time for the API, of an age or a time; empty if it is neither. */
function instant(text) {
  const [, count, unit] = text.match(SPAN) || []
  const time = new Date(count ? Date.now() - Number(count) * SIZES[unit] : DAY.test(text) ? `${text}T00:00` : text)
  return Number.isNaN(time.getTime()) ? '' : time.toISOString()
}

/** Return the filters as the API takes them. */
function asked(query) {
  const sent = {}
  for (const field of FIELDS) if (all(query[field]).length) sent[field] = query[field]
  for (const field of ['since', 'until']) if (sent[field]) sent[field] = instant(sent[field])
  return sent
}

// --- No jobs: the one command to get started ---------------------------------------------
/** How to submit a first job to this server, of a capability that it has. */
export function NoJobs() {
  const sample = useSample()
  if (sample === undefined) return null
  const command = sample ? may('jobs:write') && `backburner submit ${sample.name} '${sample.input}'` : sample === null && 'backburner serve --dev --app MODULE:APP'
  return html`<${Empty} title="There are no jobs yet" command=${command}>${sample === null ? 'This server has no capabilities. Start it with an application:' : 'Submit one, and it appears here.'}</${Empty}>`
}

// --- Rows -----------------------------------------------------------------------------

const STATE_AFTER = {
  'job.blocked': 'blocked', 'job.queued': 'queued', 'job.scheduled': 'scheduled', 'job.started': 'running',
  'job.throttled': 'scheduled', 'job.waiting': 'waiting', 'job.signalled': 'queued', 'job.stalled': 'queued', 'job.retrying': 'scheduled',
  'job.succeeded': 'succeeded', 'job.failed': 'failed', 'job.cancelled': 'cancelled',
}

/** Return a row as it is after an event. */
function after(row, event) {
  const state = STATE_AFTER[event.type]
  if (event.type === 'job.progress') return { ...row, progress: event.data }
  if (!state) return row
  const next = { ...row, state }
  if (state === 'running') Object.assign(next, { started_at: event.at, finished_at: null, attempt: event.data.attempt ?? row.attempt })
  if (!LIVE.has(state)) next.finished_at = event.at
  if (event.data?.error) next.error = event.data.error
  return next
}

const waited = job => (job.started_at ? Date.parse(job.started_at) : job.finished_at ? Date.parse(job.finished_at) : now.value) - Date.parse(job.created_at)
const ran = job => (job.started_at && (job.state === 'running' || !LIVE.has(job.state)) ? (job.finished_at ? Date.parse(job.finished_at) : now.value) - Date.parse(job.started_at) : null)

function reason(job) {
  if (job.error && job.state !== 'succeeded') return `${job.error.code}: ${job.error.message}`
  const { done, total, message } = job.progress || {}
  if (job.state === 'running' && total) return `${Math.round((100 * done) / total)} %${message ? ` · ${message}` : ''}`
  return ''
}

function Row({ job, isCurrent, isPicked, isDrifted, pick, seesTenant }) {
  const why = reason(job)
  const look = [isCurrent && 'current', isPicked && 'picked', isDrifted && 'drifted'].filter(Boolean).join(' ')
  return html`<tr class=${look} data-id=${job.id} aria-current=${isCurrent ? 'true' : undefined} title=${isDrifted ? 'This job no longer matches the filter' : undefined}>
    ${pick && html`<td><input type="checkbox" checked=${isPicked} aria-label=${`Select ${job.id}`} onClick=${event => pick(event.shiftKey)} /></td>`}
    <td><${State} of=${job.state} /></td>
    <td class="what"><div class="line"><a href=${`/ui/jobs/${job.id}`}><${Name} text=${job.capability} most=${60} /></a>
      ${job.tags.slice(0, 2).map(tag => html`<span class="tag small"><${Name} text=${tag} most=${24} /></span>`)}</div>
      <div class="line"><span class="id mono" title=${job.id}>…${job.id.slice(-8)}</span>
      ${why && html`<span class=${`why ${job.state === 'failed' ? '' : 'wait'}`} dir="ltr">${inline(why, 160)}</span>`}</div></td>
    <td class="optional"><${Name} text=${job.queue} most=${24} /></td>
    ${seesTenant && html`<td class="optional"><${Name} text=${job.user} most=${24} /></td>`}
    <td class="time"><${Ago} at=${job.created_at} /></td>
    <td class="number optional" title="Time from submission to the latest start">${span(waited(job))}</td>
    <td class="number small" title="Time since the latest start">${span(ran(job))}</td>
    <td class="number optional">${job.attempt}/${job.max_attempts}${job.generation ? html`<span class="faint" title="Manual retries"> +${job.generation}</span>` : ''}</td>
    <td class="number optional">${job.usage ? money(job.usage.priced_cost_usd) : '–'}</td>
  </tr>`
}

// --- The view ---------------------------------------------------------------------------

const MOST_READS = 10

/** Read a page; a search for few among many goes on where it stopped, up to `most` requests. */
async function readPage(path, cursor, { most = MOST_READS, age = 0 } = {}) {
  const items = []
  for (let reads = 1; ; reads++) {
    const page = await api(`/v1/jobs?limit=${PAGE - items.length}${path ? `&${path.slice(1)}` : ''}${cursor ? `&cursor=${cursor}` : ''}`, { age })
    items.push(...page.items)
    cursor = page.next_cursor
    if (!cursor || items.length >= PAGE || reads >= most) return { items, next_cursor: cursor }
  }
}

/** How many rows are new. Those behind the last one that is known were on the next page, if there was one. */
function freshOf(items, known, hasNext) {
  const at = items.findLastIndex(job => known.has(job.id))
  const among = hasNext && at >= 0 ? items.slice(0, at) : items
  return among.filter(job => !known.has(job.id)).length
}

/** The query box. It completes fields and, as far as they are known, their values. */
function Query({ box, text, rows }) {
  const [isUsed, use] = useState(false)
  const capabilities = useApi(isUsed ? '/v1/capabilities' : null)
  const queues = useApi(isUsed && may('queues:read') ? '/v1/queues' : null)
  const of = field => [...new Set(rows.flatMap(job => job[field]))]
  const pairs = rows.flatMap(job => Object.entries(job.metadata).map(pair => pair.join('=')))
  const named = found => (found.data?.items ?? []).map(one => one.name)
  const fields = {
    ...Object.fromEntries(FIELDS.map(field => [field, []])),
    state: STATES, sort: ['newest', 'oldest'], since: AGES, until: AGES, tag: of('tags'), metadata: [...new Set(pairs)],
    capability: [...new Set([...named(capabilities), ...of('capability')])].sort(),
    queue: [...new Set([...named(queues), ...of('queue')])].sort(),
    user: [...new Set([me.value.user, ...of('user')])],
  }
  return html`<${Completed} box=${box} fields=${fields} lists=${['state']} ask=${() => use(true)} id="query" data-search defaultValue=${text}
    placeholder="state:failed capability:… queue:… tag:… since:2h, or a job id" aria-describedby="query-problem" />`
}
const AGES = ['30m', '1h', '2h', '1d', '7d']

export function Jobs() {
  const query = { ...route.value.query, metadata: new URLSearchParams(location.search).getAll('metadata') }
  const text = write(query)
  const [list, setList] = useState({ key: null, rows: [], next: null, error: null, fresh: 0 })
  const [count, setCount] = useState(null)
  const [currentId, setCurrent] = useState(null)
  const picked = useSignal(new Set())
  const isAll = useSignal(false)
  const [complaint, complain] = useState('')
  const box = useRef(null)
  const changed = useRef(new Map())
  const path = address('', asked(query)).slice(4)
  const wrong = problemOf(query)
  const key = text + query.cursor
  // Answers may overtake each other: only one that was asked for later than what is shown counts.
  const asks = useRef({ list: 0, count: 0 })
  const shown = useRef({ list: 0, count: 0 })
  const isNewer = (what, mine) => mine > shown.current[what] && Boolean((shown.current[what] = mine))
  const latestKey = useRef(key)
  latestKey.current = key
  const heard = useRef(-Infinity)
  // Events cause reads of one request, which may be answered with what another page was told.
  const LIVELY = { most: 1, age: AGE }

  const load = useRef(null)
  load.current = async ({ replace = true } = {}) => {
    if (wrong) return
    const mine = ++asks.current.list
    const begun = performance.now()
    const isOver = () => latestKey.current !== key || !isNewer('list', mine)
    try {
      const page = await readPage(path, query.cursor, replace ? {} : LIVELY)
      if (isOver()) return
      if (!replace && heard.current > begun - AGE * 1000) soon.current()
      setList(was => {
        if (replace || was.key !== key || !was.rows.length) return { key, rows: page.items, next: page.next_cursor, error: null, fresh: 0 }
        // What is shown stays in its place; what is new waits behind a button.
        const found = new Map(page.items.map(job => [job.id, job]))
        const known = new Set(was.rows.map(job => job.id))
        return { ...was, error: null, rows: was.rows.map(job => found.get(job.id) ?? job), fresh: freshOf(page.items, known, was.next) }
      })
    } catch (error) {
      // The rows of another filter do not stay under this one.
      if (!isOver()) setList(was => (was.key === key ? { ...was, error } : { key, rows: [], next: null, fresh: 0, error }))
    }
  }
  const recount = useRef(null)
  recount.current = ({ age = 0 } = {}) => {
    if (wrong) return
    const mine = ++asks.current.count
    const set = found => latestKey.current === key && isNewer('count', mine) && setCount(found)
    return api(`/v1/jobs/count${withoutSort(path)}`, { age }).then(set, () => set(null))
  }
  const soon = useRef(null)
  soon.current ??= throttled(() => Promise.all([load.current({ replace: false }), recount.current(LIVELY)]), 2000)
  const apply = useRef(null)
  apply.current ??= throttled(() => {
    const events = changed.current
    changed.current = new Map()
    setList(was => ({ ...was, rows: was.rows.map(row => (events.get(row.id) || []).reduce(after, row)) }))
  }, 250)

  useEffect(() => {
    picked.value = new Set()
    isAll.value = false
    last.current = null
    setCurrent(null)
    setCount(null)
    lastJobs.value = location.pathname + location.search
    complain(wrong)
    load.current()
    recount.current()
    if (box.current && document.activeElement !== box.current) box.current.value = text
  }, [key])
  useEffect(() => {
    if (!reconnected.value) return
    soon.current.stop()
    soon.current()
  }, [reconnected.value])
  useEffect(() => () => (soon.current.stop(), apply.current.stop()), [])
  useEvents(event => {
    if (!event.job_id || !(event.type in STATE_AFTER || event.type === 'job.progress')) return
    const events = changed.current
    events.set(event.job_id, [...(events.get(event.job_id) || []).slice(-8), event])
    apply.current()
    if (event.type === 'job.progress' || query.cursor) return
    heard.current = performance.now()
    soon.current()
  })

  const rows = list.rows
  const isStale = list.key !== null && list.key !== key
  const current = rows.findIndex(job => job.id === currentId)
  const show = filters => go(address('jobs', filters))
  const submit = event => {
    event.preventDefault()
    const found = parse(box.current.value)
    if (found.job) return go(`/ui/jobs/${found.job}`)
    complain(found.error || '')
    if (!found.error) {
      show(found.query)
      box.current.blur()
    }
  }
  const toggleState = name => {
    const states = new Set((query.state || '').split(',').filter(Boolean))
    states.has(name) ? states.delete(name) : states.add(name)
    show({ ...without(query, 'cursor'), state: STATES.filter(state => states.has(state)).join(',') })
  }
  const last = useRef(null)
  const owners = useRef(new Map())
  for (const job of rows) owners.current.set(job.id, job.user)
  /** Select a job or not; `isRange`: all from the one that was selected before. */
  const toggle = (id, isRange = false) => {
    if (isStale) return
    const next = new Set(picked.value)
    const [from, to] = [last.current, id].map(one => rows.findIndex(job => job.id === one))
    if (isRange && from >= 0) for (const job of rows.slice(Math.min(from, to), Math.max(from, to) + 1)) next.add(job.id)
    else next.has(id) ? next.delete(id) : next.add(id)
    last.current = id
    batch(() => {
      picked.value = next
      isAll.value = false
    })
  }
  const togglePage = () => {
    if (isStale) return
    const isWhole = rows.every(job => picked.value.has(job.id))
    batch(() => {
      picked.value = new Set(isWhole ? [] : rows.map(job => job.id))
      isAll.value = false
    })
  }
  const move = step => {
    if (isStale) return
    const next = Math.max(0, Math.min(rows.length - 1, current + step))
    setCurrent(rows[next]?.id ?? null)
    const row = document.querySelectorAll('.jobs tbody tr')[next]
    row?.scrollIntoView({ block: 'nearest' })
  }
  const total = count ? `${number(count.count)}${count.capped ? '+' : ''}` : '…'

  const canAct = may('dead-letters:retry') || may('jobs:write')
  const seesTenant = me.value.sees_tenant
  // Only the own jobs of somebody who sees those of others can be cancelled.
  const isNarrow = seesTenant && me.value.needs_login && !me.value.changes_tenant
  const mayCancel = may('jobs:write') && !(isNarrow && query.user && query.user !== me.value.user)
  /** Say how many of the chosen jobs are the caller's own: `{none, text}`; false if all are. */
  const ownOf = async ids => {
    const user = me.value.user
    if (!isAll.value) {
      const mine = ids.filter(id => owners.current.get(id) === user).length
      return mine < ids.length && { none: !mine, text: `${number(mine)} of the ${number(ids.length)}` }
    }
    const found = await api(`/v1/jobs/count${withoutSort(address('', asked({ ...query, user })).slice(4))}`).catch(() => null)
    const mine = found && `${number(found.count)}${found.capped ? '+' : ''}`
    return mine !== isAll.value && { none: mine === '0', text: mine === null ? 'they could not be counted' : `${mine} of the ${isAll.value}` }
  }
  const act = async action => {
    if (isStale) return
    const chosen = picked.value.size ? [...picked.value] : rows[current] ? [rows[current].id] : []
    if (!chosen.length) return say('Select a job first: move with j and k, select with x.')
    const own = action === 'cancel' && isNarrow ? await ownOf(chosen) : null
    if (own?.none) return say('None of these jobs is yours. You can cancel only your own jobs.', 'error')
    const many = isAll.value ? `all ${isAll.value} matching jobs` : `${number(chosen.length)} ${chosen.length === 1 ? 'job' : 'jobs'}`
    const words = action === 'cancel'
      ? ['Cancel', 'Running jobs are interrupted. Jobs that have ended do not change. A cancelled job cannot be started again.', 'danger']
      : ['Retry', 'Failed jobs are queued again with new attempts. Other jobs do not change.', '']
    const limit = own ? `You can cancel only your own jobs: ${own.text}. The others do not change. ` : ''
    const verb = own ? 'Cancel my jobs' : `${words[0]} ${many}`
    if (!(await confirmed(`${words[0]} ${many}?`, limit + words[1], verb, { danger: Boolean(words[2]) }))) return
    const where = { ...without(asked(query), 'sort'), ...(action === 'cancel' && isNarrow && { user: me.value.user }) }
    const body = isAll.value ? { action, where } : { action, ids: chosen }
    try {
      const job = await api('/v1/jobs/bulk', { method: 'POST', body })
      picked.value = new Set()
      isAll.value = false
      go(`/ui/jobs/${job.id}`)
    } catch (problem) {
      sayProblem(problem)
    }
  }

  useKeys({
    j: [() => move(1), 'Next job'],
    k: [() => move(-1), 'Previous job'],
    Enter: [() => rows[current] && !isStale && go(`/ui/jobs/${rows[current].id}`), 'Open the job'],
    ...(canAct && { x: [() => rows[current] && toggle(rows[current].id), 'Select the job'] }),
    ...(may('dead-letters:retry') && { r: [() => act('retry'), 'Retry the selected jobs'] }),
  })

  const states = new Set((query.state || '').split(',').filter(Boolean))
  const chosen = picked.value.size
  const unseen = chosen - rows.filter(job => picked.value.has(job.id)).length
  const isWhole = rows.length > 0 && rows.every(job => picked.value.has(job.id))
  const isFiltered = Boolean(write(without(query, 'sort')))
  return html`<${Head} title="Jobs"><span class="faint">${total} ${isFiltered ? 'match' : 'in total'}</span></${Head}>
    <form class="search" role="search" onSubmit=${submit}>
      <label class="unseen" for="query">Filter jobs</label>
      <${Query} box=${box} text=${text} rows=${rows} />
      <button>Filter</button>
    </form>
    <p id="query-problem" class="bad-text" role="alert">${complaint}</p>
    <div class="chips" role="group" aria-label="States">
      ${STATES.map(name => html`<button aria-pressed=${states.has(name)} onClick=${() => toggleState(name)}><${State} of=${name} /></button>`)}
      <button aria-pressed=${query.sort === 'oldest'} onClick=${() => show({ ...without(query, 'cursor'), sort: query.sort === 'oldest' ? '' : 'oldest' })}>Oldest first</button>
      ${isFiltered && html`<button class="quiet" onClick=${() => show({})}>Clear filters</button>`}
    </div>
    <${Failure} error=${list.error} retry=${() => load.current()} />
    <div class="bulk">
      ${chosen > 0 && html`<span><strong>${isAll.value ? `All ${isAll.value} matching jobs` : `${number(chosen)} selected${unseen ? `, ${number(unseen)} not on this page` : ''}`}</strong></span>
        ${isWhole && !isAll.value && (list.next || query.cursor) && html`<button onClick=${() => (isAll.value = total)}>Select all ${total} matching</button>`}
        ${may('dead-letters:retry') && html`<button onClick=${() => act('retry')}>Retry</button>`}
        ${mayCancel && html`<button class="danger" onClick=${() => act('cancel')}>Cancel</button>`}
        <button class="quiet" onClick=${() => { picked.value = new Set(); isAll.value = false }}>Clear selection</button>`}
      ${list.fresh > 0 && html`<button class="fresh" onClick=${() => load.current()}>Show ${list.fresh >= PAGE ? `${PAGE} or more` : list.fresh} new</button>`}
    </div>
    ${list.key !== null && !rows.length && !list.error ? isFiltered
      ? html`<${Empty} title="No job matches">Change the filters, or <a href="/ui/jobs">show all jobs</a>.</${Empty}>`
      : html`<${NoJobs} />`
      : html`<div class=${`jobs ${isStale ? 'stale' : ''}`} aria-busy=${isStale}><${Frame} label="Jobs"><table>
        <colgroup>${canAct && html`<col class="w-pick" />`}<col class="w-state" /><col /><col class="w-queue optional" />${seesTenant && html`<col class="w-queue optional" />`}
          <col class="w-when" /><col class="w-short optional" /><col class="w-short small" /><col class="w-short optional" /><col class="w-short optional" /></colgroup>
        <thead><tr>${canAct && html`<th><input type="checkbox" aria-label="Select all jobs of this page" checked=${isWhole} onChange=${togglePage} /></th>`}
          <th scope="col" class="sign">State</th><th scope="col">Job</th><th scope="col" class="optional">Queue</th>${seesTenant && html`<th scope="col" class="optional">User</th>`}
          <th scope="col">Submitted</th><th scope="col" class="number optional">Wait</th><th scope="col" class="number small">Run</th>
          <th scope="col" class="number optional">Attempt</th><th scope="col" class="number optional">Cost</th></tr></thead>
        <tbody>${rows.map((job, at) => html`<${Row} key=${job.id} job=${job} isCurrent=${at === current} isPicked=${Boolean(isAll.value) || picked.value.has(job.id)}
          isDrifted=${states.size > 0 && !states.has(job.state)} pick=${canAct && (isRange => toggle(job.id, isRange))} seesTenant=${seesTenant} />`)}</tbody></table></${Frame}></div>`}
    <div class="pager">
      ${query.cursor && html`<a href=${address('jobs', without(query, 'cursor'))}>First page</a>`}
      ${list.next && html`<a href=${address('jobs', { ...query, cursor: list.next })}>Next page</a>`}
    </div>`
}

const withoutSort = path => {
  const query = new URLSearchParams(path)
  query.delete('sort')
  const text = query.toString()
  return text ? `?${text}` : ''
}

const without = (object, ...fields) => Object.fromEntries(Object.entries(object).filter(([field]) => !fields.includes(field)))
