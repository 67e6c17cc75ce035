// Flows and batches: their lists, a flow's graph that follows its steps, a batch's counts.
import {
  html, useEffect, useRef, useState, address, Ago, api, bounded, go, may, me, now, number, reconnected, route, say, sayProblem,
  span, throttled, useApi, useEvents, useKeys,
} from './core.js'
import { confirmed, Copy, Empty, Failure, Frame, Head, Icon, inline, LIVE, Name, Shares, State, STATES, useSample } from './parts.js'
import { draw, NODE } from './graph.js'
import { Fresh, useList, useRows } from './list.js'

const ROWS = 50
const NONE = []
const REREAD = 1500 // ms
const flowOf = (capability, input) => `{"steps": [{"name": "first", "capability": "${capability}", "input": ${input}}, {"name": "then", "capability": "${capability}", "input": ${input}, "needs": ["first"]}]}`
const batchOf = (capability, input) => `{"jobs": [{"capability": "${capability}", "input": ${input}}, {"capability": "${capability}", "input": ${input}}]}`
const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? '' : 's'}`
const took = one => (one.started_at ?? one.created_at ? (one.finished_at ? Date.parse(one.finished_at) : now.value) - Date.parse(one.started_at ?? one.created_at) : null)
const percent = (part, whole) => (whole ? Math.floor((100 * part) / whole) : 0)
/** Whether the caller may cancel it: it is theirs, or they may act for any user of the tenant. */
const mayCancel = one => may('jobs:write') && (one.user === me.value.user || !me.value.needs_login || me.value.changes_tenant)

// --- The lists -----------------------------------------------------------------------------

const KINDS = {
  flows: { noun: 'flow', states: ['running', 'succeeded', 'failed', 'cancelled'], field: 'flow_id',
    command: (name, input) => `printf '%s' '${flowOf(name, input)}' | backburner flows submit -`, about: 'A flow is a set of jobs that depend on each other.' },
  batches: { noun: 'batch', states: ['open', 'finished'], field: 'batch_id',
    command: (name, input) => `curl -fsS ${location.origin}/v1/batches${me.value.needs_login ? ' -H "Authorization: Bearer $BACKBURNER_API_KEY"' : ''} -H 'Content-Type: application/json' -d '${batchOf(name, input)}'`,
    about: 'A batch is a set of jobs and flows that are counted together.' },
}
const LOOK = { open: 'running', finished: 'succeeded' }

/** The state of a group; a finished batch with failures is not shown as a success. */
function GroupState({ one }) {
  const bad = one.counts?.members?.failed ? 'failed' : one.counts?.members?.cancelled ? 'cancelled' : LOOK[one.state]
  const look = one.state === 'finished' ? bad : LOOK[one.state] ?? one.state
  return html`<span class=${`state ${look}`}><${Icon} name=${look} />${one.state}</span>`
}

function Progress({ batch }) {
  const { counts, expected, done } = batch
  const total = Math.max(expected ?? 0, counts?.total ?? 0)
  const failed = counts?.members.failed
  return html`<span class="line">${total ? html`<progress value=${done} max=${total} aria-label="Progress"></progress>` : ''}
    <span>${number(done)}${total ? ` of ${number(total)}` : ' ended'}${failed ? html`, <span class="bad-text">${number(failed)} failed</span>` : ''}</span></span>`
}

function NoGroups({ kind }) {
  const sample = useSample()
  if (sample === undefined) return null
  const { about, command } = KINDS[kind]
  const canSubmit = sample && may('jobs:write')
  return html`<${Empty} title=${`There are no ${kind} yet`} command=${canSubmit ? command(sample.name, sample.input) : undefined}>${about}${canSubmit ? ' Submit one, and it appears here.' : ''}</${Empty}>`
}

function Groups({ kind }) {
  const { noun, states, field } = KINDS[kind]
  const query = route.value.query
  const path = `/v1/${kind}${address('', { limit: ROWS, state: query.state, tag: query.tag, batch: query.batch, cursor: query.cursor }).slice(4)}`
  const list = useList(path, { when: event => event[field] })
  const current = useRows(list.rows, one => go(`/ui/${kind}/${one.id}`), noun)
  const isBatch = kind === 'batches'
  const isFiltered = query.state || query.tag || query.batch
  const seesTenant = me.value.sees_tenant
  const show = more => go(address(kind, { ...query, cursor: '', ...more }))
  const search = event => {
    event.preventDefault()
    const text = event.target.elements.tag.value.trim()
    if (/^(flow|batch|job)_[\w-]+$/.test(text)) return go(`/ui/${text.startsWith('flow') ? 'flows' : text.startsWith('job') ? 'jobs' : 'batches'}/${text}`)
    show({ tag: text.replace(/^tag:/, '') })
  }
  return html`<${Head} title=${isBatch ? 'Batches' : 'Flows'} />
    <div class="tabs"><a href="/ui/flows" aria-current=${isBatch ? undefined : 'page'}>Flows</a><a href="/ui/batches" aria-current=${isBatch ? 'page' : undefined}>Batches</a></div>
    <form class="search" role="search" onSubmit=${search}><label class="unseen" for="tag">Filter by tag</label>
      <input id="tag" name="tag" key=${kind + query.tag} data-search defaultValue=${query.tag ?? ''} maxlength="200" spellcheck="false" autocomplete="off" placeholder=${`a tag, or the id of a ${noun}`} /><button>Filter</button></form>
    <div class="chips" role="group" aria-label="States">${states.map(name => html`<button aria-pressed=${query.state === name}
      onClick=${() => show({ state: query.state === name ? '' : name })}><${GroupState} one=${{ state: name }} /></button>`)}
      ${query.batch && html`<span class="faint">of the batch <a class="mono" href=${`/ui/batches/${encodeURIComponent(query.batch)}`}>…${bounded(query.batch, 60).slice(-12)}</a></span>`}
      ${isFiltered && html`<button class="quiet" onClick=${() => go(`/ui/${kind}`)}>Clear filters</button>`}<${Fresh} list=${list} /></div>
    <${Failure} error=${list.error} retry=${list.reload} />
    ${list.isRead && !list.rows.length && !list.error ? isFiltered || query.cursor
      ? html`<${Empty} title=${`No ${noun} matches`}>Change the filters, or <a href=${`/ui/${kind}`}>show all</a>.</${Empty}>`
      : html`<${NoGroups} kind=${kind} />`
      : html`<div class="jobs groups"><${Frame} label=${isBatch ? 'Batches' : 'Flows'}><table>
        <colgroup><col class="w-state" /><col /><col class=${isBatch ? 'w-progress' : 'w-steps'} />${seesTenant && html`<col class="w-queue optional" />`}<col class="w-when" /><col class="w-short small" /></colgroup>
        <thead><tr><th scope="col" class="sign">State</th><th scope="col">${isBatch ? 'Batch' : 'Flow'}</th>${isBatch ? html`<th scope="col">Members</th>` : html`<th scope="col" class="number">Steps</th>`}
          ${seesTenant && html`<th scope="col" class="optional">User</th>`}<th scope="col">Submitted</th><th scope="col" class="number small">Duration</th></tr></thead>
        <tbody>${list.rows.map((one, at) => html`<tr key=${one.id} data-row class=${at === current ? 'current' : ''} aria-current=${at === current ? 'true' : undefined}>
          <td>${one.isGone ? html`<span class="faint" title="It no longer matches the filter">no match</span>` : html`<${GroupState} one=${one} />`}</td>
          <td class="what"><div class="line group"><a class="mono" href=${`/ui/${kind}/${one.id}`} title=${one.id}>…${one.id.slice(-12)}</a>
            ${one.tags.slice(0, 4).map(tag => html`<span class="tag"><${Name} text=${tag} most=${24} /></span>`)}
            ${one.generation > 0 && html`<span class="faint">retried${one.generation > 1 ? ` ${one.generation} times` : ''}</span>`}</div></td>
          ${isBatch ? html`<td><${Progress} batch=${one} /></td>` : html`<td class="number">${number(one.size)}</td>`}
          ${seesTenant && html`<td class="optional"><${Name} text=${one.user} most=${24} /></td>`}
          <td class="time"><${Ago} at=${one.created_at} /></td><td class="number small">${span(took(one))}</td></tr>`)}</tbody></table></${Frame}></div>`}
    <div class="pager">${query.cursor && html`<a href=${address(kind, { ...query, cursor: '' })}>First page</a>`}
      ${list.next && html`<a href=${address(kind, { ...query, cursor: list.next })}>Next page</a>`}</div>`
}

// --- The graph -------------------------------------------------------------------------------------

const URGENT = ['failed', 'running', 'waiting', 'queued', 'scheduled', 'blocked', 'cancelled', 'succeeded']
const toneOf = counts => URGENT.find(state => counts[state])
const told = counts => URGENT.filter(state => counts[state]).map(state => `${number(counts[state])} ${state}`).join(' · ')

function Node({ box, node, isPicked, pick }) {
  const { size, counts, capability, step: first } = node
  const tone = toneOf(counts)
  const isOne = size === 1
  const name = isOne ? first.name : `${capability ?? first.name} ${capability ? '×' : 'and'} ${number(size)}${capability ? '' : ' steps'}`
  const { done, total } = first.progress ?? {}
  const detail = !isOne ? told(counts)
    : first.state === 'running' && total ? `${percent(done, total)} % · ${span(took(first))}`
      : LIVE.has(first.state) && first.state !== 'running' || !first.started_at ? first.state : `${first.state} · ${span(took(first))}`
  const face = html`<title>${bounded(name, 200)}: ${detail}</title>
    <rect width=${NODE.width} height=${NODE.height} rx="6" /><g transform="translate(9 7)"><${Icon} name=${tone} /></g>
    <svg x="31" width=${NODE.width - 38} height=${NODE.height}><text y="19">${bounded(name, 40)}</text><text class="detail" y=${isOne ? 37 : 34}>${detail}</text>
      ${!isOne && html`<${Line} counts=${counts} total=${size} />`}</svg>`
  const at = { class: `node ${tone}${isPicked ? ' picked' : ''}`, transform: `translate(${box.x} ${box.y})` }
  return isOne ? html`<a ...${at} href=${`/ui/jobs/${first.id}`}>${face}</a>`
    : html`<g ...${at} role="button" tabindex="0" aria-pressed=${isPicked} onClick=${pick}
      onKeyDown=${event => (event.key === 'Enter' || event.key === ' ') && (event.preventDefault(), pick())}>${face}</g>`
}

/** The shares of states within a node. */
function Line({ counts, total }) {
  let from = 0
  return ['succeeded', 'failed', 'cancelled', 'running', 'waiting', 'queued', 'scheduled', 'blocked'].filter(state => counts[state]).map(state => {
    const x = from
    from += ((NODE.width - 46) * counts[state]) / total
    return html`<rect key=${state} class=${`fill ${state}`} x=${x} y="39" width=${from - x} height="3" />`
  })
}

function Graph({ flow, graph, picked, pick }) {
  const frame = useRef(null)
  const [follows, follow] = useState(true)
  const drawn = useRef({ key: '' })
  // Only what the steps are decides where they are, and steps are only ever added.
  const key = `${flow.id} ${flow.size}`
  if (drawn.current.key !== key) drawn.current = { key, ...draw(graph) }
  const { nodes: boxes, edges, width, height } = drawn.current
  const active = follows && boxes.find(box => graph.nodes[box.id].counts.running)
  useEffect(() => {
    const box = frame.current?.querySelector('.frame')
    if (!active || !box) return
    const isCalm = matchMedia('(prefers-reduced-motion: reduce)').matches
    box.scrollTo({ left: active.x - (box.clientWidth - NODE.width) / 2, top: active.y - (box.clientHeight - NODE.height) / 2, behavior: isCalm ? 'auto' : 'smooth' })
  }, [active?.id])
  const stop = () => follows && follow(false)
  const isHidden = graph.nodes.some(node => node.size > 1)
  return html`<div class="graph" ref=${frame} onWheel=${stop} onPointerDown=${event => event.target.closest('.frame') && stop()}>
    <div class="head"><h2>Graph</h2><span class="faint">${isHidden ? 'Similar steps share a box. Select a box to list its steps.' : ''}</span>
      ${html`<label class=${`actions ${flow.state === 'running' ? '' : 'ghost'}`}><input type="checkbox" checked=${follows} onChange=${() => follow(!follows)} /> Follow running steps</label>`}</div>
    <${Frame} label="Graph of the steps"><svg role="group" aria-label="Steps; the table below lists them" width=${width + 24} height=${height + 24} viewBox=${`-12 -12 ${width + 24} ${height + 24}`}>
      ${edges.map(edge => html`<path key=${`${edge.from}-${edge.to}`} class=${edge.lax ? 'lax' : ''} d=${edge.path} />`)}
      ${boxes.map(box => html`<${Node} key=${box.id} box=${box} node=${graph.nodes[box.id]} isPicked=${picked === box.id} pick=${() => pick(picked === box.id ? null : box.id)} />`)}
    </svg></${Frame}></div>`
}

// --- A flow's page ---------------------------------------------------------------------------------------

/** A page of the steps: of all, or of the box of the graph that was chosen. */
function Steps({ id, node, counts, isMine, note, clear }) {
  const [state, setState] = useState('')
  // The cursors of the pages up to the one that is shown.
  const [cursors, setCursors] = useState([])
  const path = `/v1/flows/${encodeURIComponent(id)}/steps${address('', { limit: ROWS, state, node, cursor: cursors.at(-1) }).slice(4)}`
  const { data, error, loading, reload } = useApi(path, { live: REREAD, when: isMine })
  const rows = data?.items ?? NONE
  const start = ROWS * cursors.length
  const total = state ? counts[state] ?? 0 : Object.values(counts).reduce((sum, one) => sum + one, 0)
  const current = useRows(rows, step => go(`/ui/jobs/${step.id}`), 'step')
  return html`<div class="chips" role="group" aria-label="States of steps">${STATES.filter(name => counts[name] || name === state).map(name => html`<button aria-pressed=${state === name}
      onClick=${() => (setCursors(NONE), setState(state === name ? '' : name))}><${State} of=${name} /> <span class="count">${number(counts[name] ?? 0)}</span></button>`)}
      ${note && html`<button class="quiet" onClick=${clear}>Show all steps (now: ${note})</button>`}</div><${Failure} error=${error} retry=${reload} />
    <div class="jobs groups"><${Frame} label="Steps"><table><colgroup><col class="w-state" /><col /><col class="w-short optional" /><col class="w-when" /><col class="w-short small" /></colgroup>
      <thead><tr><th scope="col" class="sign">State</th><th scope="col">Step</th><th scope="col" class="number optional">Attempt</th><th scope="col">Started</th><th scope="col" class="number small">Duration</th></tr></thead>
      <tbody>${rows.map((step, at) => html`<tr key=${step.id} data-row class=${at === current ? 'current' : ''} aria-current=${at === current ? 'true' : undefined}>
        <td><${State} of=${step.state} /></td>
        <td class="what"><div class="line"><a href=${`/ui/jobs/${step.id}`}><${Name} text=${step.name} most=${60} /></a></div>
          <div class="line"><span class="id"><${Name} text=${step.capability} most=${60} /></span>
            ${step.error && step.state !== 'succeeded' && html`<span class=${`why ${step.state === 'failed' ? '' : 'wait'}`} dir="ltr">${inline(`${step.error.code}: ${step.error.message}`, 160)}</span>`}</div></td>
        <td class="number optional">${step.attempt}/${step.max_attempts}</td><td class="time"><${Ago} at=${step.started_at} /></td>
        <td class="number small">${step.started_at ? span(took(step)) : '–'}</td></tr>`)}</tbody></table></${Frame}></div>
    ${(start > 0 || data?.next_cursor) && html`<div class="pager"><button disabled=${!start} onClick=${() => setCursors(cursors.slice(0, -1))}>Previous page</button>
      <button disabled=${loading || !data?.next_cursor} onClick=${() => setCursors([...cursors, data.next_cursor])}>Next page</button>
      <span class="faint">${number(start + 1)}–${number(start + rows.length)} of ${plural(total, 'step')}</span></div>`}`
}

/** Retry or cancel a group; returns what to show beside its title. */
function Actions({ kind, one, failed, isLive, reload }) {
  const { noun } = KINDS[kind]
  const act = async (verb, done) => {
    try {
      const answer = await api(`/v1/${kind}/${encodeURIComponent(one.id)}/${verb}`, { method: 'POST', body: {} })
      say(done(answer))
      reload()
    } catch (problem) {
      sayProblem(problem)
    }
  }
  const canRetry = failed > 0 && may('dead-letters:retry') && (kind === 'batches' || !isLive)
  const retry = async () =>
    (await confirmed(`Retry ${plural(failed, 'failed job')}?`, 'Each failed job is queued again with new attempts. Jobs that were cancelled because it failed wait for it again.', `Retry ${plural(failed, 'failed job')}`)) &&
    act('retry', answer => (answer.retried === undefined ? 'The failed steps are queued again.' : `${plural(answer.retried ?? 0, 'job')} queued again.`))
  const cancel = async () =>
    (await confirmed(`Cancel this ${noun}?`, `All jobs of the ${noun} that have not ended are cancelled now. They cannot be started again.`, `Cancel the ${noun}`, { danger: true })) &&
    act('cancel', () => `The ${noun} is cancelled.`)
  useKeys(may('dead-letters:retry') ? { r: [() => canRetry && retry(), 'Retry the failed jobs'] } : {})
  const canCancel = isLive && mayCancel(one)
  // It keeps its place when it goes away, and what appears is before all others: nothing moves.
  const couldCancel = useRef(false)
  couldCancel.current ||= canCancel
  return html`${canRetry && html`<button class="primary" onClick=${retry}><${Icon} name="retry" /> Retry ${number(failed)} failed</button>`}
    ${couldCancel.current && html`<button class=${canCancel ? 'danger' : 'danger ghost'} onClick=${cancel}>Cancel</button>`}
    <a class="button" href=${address('jobs', { [noun]: one.id })}>Jobs</a>`
}

const Crumb = ({ kind, title, id }) => html`<p class="faint"><a href=${`/ui/${kind}`}>${title}</a> / <span class="mono">${bounded(id, 60)}</span> <${Copy} text=${id} label="" name="the id" /></p>`

function Missing({ kind, error, reload }) {
  const { noun } = KINDS[kind]
  return error.status === 404
    ? html`<h1 tabindex="-1">There is no such ${noun}</h1><p class="faint">It does not exist, was deleted after its retention time, or belongs to another user.</p><p><a href=${`/ui/${kind}`}>Show all ${kind}</a></p>`
    : html`<h1 tabindex="-1">${bounded(noun, 20)}</h1><${Failure} error=${error} retry=${reload} />`
}

const Facts = ({ one, children }) => html`<div class="card"><h2>Details</h2><dl class="facts">
  <dt>User</dt><dd><${Name} text=${one.user} /></dd>
  <dt>Submitted</dt><dd><${Ago} at=${one.created_at} /></dd>
  <dt>Ended</dt><dd><${Ago} at=${one.finished_at} /></dd>
  <dt>Duration</dt><dd>${span(took(one))}</dd>
  ${one.generation > 0 && html`<dt>Retried</dt><dd>${plural(one.generation, 'time')}</dd>`}
  ${one.deadline && html`<dt>Deadline</dt><dd><${Ago} at=${one.deadline} /></dd>`}
  ${children}
  ${one.tags.length > 0 && html`<dt>Tags</dt><dd>${one.tags.slice(0, 20).map(tag => html`<span class="tag"><${Name} text=${tag} most=${40} /></span> `)}</dd>`}
  ${one.request_id && html`<dt>Request</dt><dd class="mono">${bounded(one.request_id, 64)}</dd>`}</dl></div>`

const DONE = ['succeeded', 'failed', 'cancelled']
const ended = counts => DONE.reduce((sum, state) => sum + (counts[state] ?? 0), 0)

function Flow({ id }) {
  // Events of jobs do not say to which flow they belong.
  const isRunning = useRef(true)
  const isMine = event => event.flow_id === id || Boolean(event.job_id && isRunning.current && event.type !== 'job.output.delta')
  const { data: graph, error, reload } = useApi(`/v1/flows/${encodeURIComponent(id)}/graph`, { live: REREAD, when: isMine })
  const [picked, pick] = useState(null)
  if (error && !graph) return html`<${Missing} kind="flows" error=${error} reload=${reload} />`
  if (!graph) return html`<h1 tabindex="-1" class="mono">${bounded(id, 60)}</h1>`
  const { flow } = graph
  const { counts, size: total } = flow
  isRunning.current = flow.state === 'running'
  // Boxes have other numbers when steps were added.
  const chosen = picked?.size === total ? graph.nodes[picked.id] : null
  return html`<${Crumb} kind="flows" title="Flows" id=${flow.id} />
    <${Head} title=${html`<${GroupState} one=${flow} /> Flow of ${plural(total, 'step')}`}><${Actions} kind="flows" one=${flow} failed=${counts.failed ?? 0} isLive=${flow.state === 'running'} reload=${reload} /></${Head}>
    <${Failure} error=${error} retry=${reload} />
    <div class="notice"><div class="grow"><${Shares} counts=${counts} label=${told(counts)} />
      <p class="counts">${percent(ended(counts), total)} % ended · ${told(counts)}</p></div></div>
    <div class="card"><${Graph} flow=${flow} graph=${graph} picked=${chosen && picked.id} pick=${node => pick(node === null ? null : { id: node, size: total })} /></div>
    <div class="grid beside"><div><div class="card"><h2>Steps</h2>
      <${Steps} key=${chosen ? picked.id : 'all'} id=${id} node=${chosen ? picked.id : undefined} counts=${chosen ? chosen.counts : counts} isMine=${isMine}
        note=${chosen && `${plural(chosen.size, 'step')} of the selected box`} clear=${() => pick(null)} /></div></div>
    <div><${Facts} one=${flow}>${flow.batch_id && html`<dt>Batch</dt><dd class="mono"><a href=${`/ui/batches/${flow.batch_id}`}>${bounded(flow.batch_id, 60)}</a></dd>`}</${Facts}></div></div>`
}

// --- A batch's page ----------------------------------------------------------------------------------------

const isEnd = event => event.type === 'job.failed' || event.type === 'flow.failed' || event.type.startsWith('batch.')

function FailedMembers({ id }) {
  const jobs = useList(`/v1/jobs?batch=${encodeURIComponent(id)}&state=failed&limit=${ROWS}`, { live: 3000, when: isEnd })
  const flows = useList(`/v1/flows?batch=${encodeURIComponent(id)}&state=failed&limit=${ROWS}`, { live: 3000, when: isEnd })
  const rows = [...flows.rows, ...jobs.rows].filter(row => !row.isGone)
  const open = row => go(`/ui/${row.capability ? 'jobs' : 'flows'}/${row.id}`)
  const current = useRows(rows, open, 'member')
  const isRead = jobs.isRead && flows.isRead
  return html`<div class="card"><div class="head"><h2>Failed</h2><${Fresh} list=${jobs.fresh || jobs.behind ? jobs : flows} /></div><${Failure} error=${jobs.error ?? flows.error} />
    ${isRead && !rows.length && !jobs.error && !flows.error && !jobs.behind && !flows.behind && html`<p class="faint">No job or flow of this batch has failed.</p>`}
    ${rows.length > 0 && html`<div class="jobs groups"><${Frame} label="Failed jobs and flows"><table><colgroup><col /><col class="w-when" /></colgroup>
      <thead><tr><th scope="col">Job or flow</th><th scope="col">Failed</th></tr></thead>
      <tbody>${rows.map((row, at) => html`<tr key=${row.id} data-row class=${at === current ? 'current' : ''} aria-current=${at === current ? 'true' : undefined}>
        <td class="what"><div class="line">${row.capability ? html`<a href=${`/ui/jobs/${row.id}`}><${Name} text=${row.capability} most=${60} /></a>` : html`<a href=${`/ui/flows/${row.id}`}>Flow</a>`}
            ${row.step && html`<span class="faint">step <${Name} text=${row.step} most=${40} /></span>`}</div>
          <div class="line"><span class="id mono" title=${row.id}>…${row.id.slice(-8)}</span>${row.error && html`<span class="why" dir="ltr">${inline(`${row.error.code}: ${row.error.message}`, 200)}</span>`}</div></td>
        <td class="time"><${Ago} at=${row.finished_at} /></td></tr>`)}</tbody></table></${Frame}></div>
      ${jobs.next && html`<p class="pager"><a href=${address('jobs', { batch: id, state: 'failed' })}>All failed jobs</a></p>`}`}</div>`
}

function Batch({ id }) {
  const { data: batch, error, reload } = useApi(`/v1/batches/${encodeURIComponent(id)}`, { live: 1500, when: event => event.batch_id === id })
  if (error && !batch) return html`<${Missing} kind="batches" error=${error} reload=${reload} />`
  if (!batch) return html`<h1 tabindex="-1" class="mono">${bounded(id, 60)}</h1>`
  const { total, done, members, jobs } = batch.counts
  const whole = Math.max(total, batch.expected ?? 0)
  const failed = jobs.failed ?? 0
  // Steps of flows are counted as jobs, and not as members.
  const hasFlows = Object.values(jobs).reduce((sum, one) => sum + one, 0) !== total
  return html`<${Crumb} kind="batches" title="Batches" id=${batch.id} />
    <${Head} title=${html`<${GroupState} one=${batch} /> Batch of ${plural(whole, 'member')}`}><${Actions} kind="batches" one=${batch} failed=${failed} isLive=${batch.state === 'open'} reload=${reload} /></${Head}>
    <${Failure} error=${error} retry=${reload} />
    <div class="notice"><div class="grow"><${Shares} counts=${members} label=${told(members)} />
      <p>${percent(done, whole)} % · ${number(done)} of ${plural(whole, 'member')} ended${batch.state === 'open' && whole > total ? `, ${number(whole - total)} not added yet` : ''}${batch.state === 'open' && !batch.sealed ? ' · more can be added' : ''}</p></div></div>
    <div class="tiles states">${STATES.filter(state => jobs[state]).map(state => html`<a class=${`tile ${state === 'failed' ? 'alarm' : ''}`} key=${state} href=${address('jobs', { batch: id, state })}><b>${number(jobs[state])}</b><span>${hasFlows ? 'jobs and steps ' : 'jobs '}${state}</span></a>`)}</div>
    <div class="grid"><div><${FailedMembers} id=${id} /></div><div><${Facts} one=${batch}>
      <dt>Expected</dt><dd>${batch.expected === null ? html`<span class="faint">not given</span>` : number(batch.expected)}</dd>
      <dt>Closed</dt><dd>${batch.sealed ? 'yes: no more can be added' : 'no: more can be added'}</dd>
      ${hasFlows && html`<dt>Flows</dt><dd><a href=${address('flows', { batch: id })}>Flows of this batch</a></dd>`}</${Facts}></div></div>`
}

export const Flows = ({ rest }) => (rest[0] ? html`<${Flow} key=${rest[0]} id=${rest[0]} />` : html`<${Groups} key="flows" kind="flows" />`)
export const Batches = ({ rest }) => (rest[0] ? html`<${Batch} key=${rest[0]} id=${rest[0]} />` : html`<${Groups} key="batches" kind="batches" />`)
