// Administration: API keys, the audit log, and the configuration as `doctor` reports it.
import { html, useEffect, useRef, useState, address, Ago, api, bounded, go, may, me, number, route, say, sayProblem, useApi, useKeys } from './core.js'
import { word } from './copying.js'
import { Fresh, useList } from './list.js'
import { confirmed, Copy, Empty, Failure, Frame, Head, Icon, inline, Name } from './parts.js'

// --- Keys ------------------------------------------------------------------------------------

const PRESETS = {
  'read only': ['jobs:read', 'dead-letters:read', 'webhooks:read'],
  'submit only': ['jobs:write', 'jobs:read'],
}
const DAY = 86_400_000

const Standing = ({ of: key }) => {
  const isOver = key.expires_at && Date.parse(key.expires_at) < Date.now()
  if (key.revoked_at) return html`<span class="state cancelled"><${Icon} name="cancelled" />revoked</span>`
  if (isOver) return html`<span class="state cancelled"><${Icon} name="cancelled" />expired</span>`
  return html`<span class="state succeeded"><${Icon} name="succeeded" />valid</span>`
}

/** The text of a new key, shown once. */
function Made({ made, close }) {
  const field = useRef(null)
  useEffect(() => field.current.select(), [])
  return html`<div class="notice"><div class="grow form"><label for="made"><strong>Copy the key ${bounded(made.name, 60)} now. It will not be shown again.</strong></label>
    <input id="made" ref=${field} class="mono" readonly value=${made.key} /></div>
    <div class="actions"><${Copy} text=${made.key} name="the key" /><button onClick=${close}>I have copied it</button></div></div>`
}

function NewKey({ done, close }) {
  const mine = me.value.scopes
  const presets = { ...me.value.roles, ...PRESETS }
  const [chosen, choose] = useState((me.value.roles.user ?? PRESETS['submit only']).filter(may))
  const [busy, setBusy] = useState(false)
  const first = useRef(null)
  useEffect(() => first.current.focus(), [])
  const fitting = Object.keys(presets).find(name => presets[name].filter(may).sort().join() === [...chosen].sort().join())
  const toggle = scope => choose(chosen.includes(scope) ? chosen.filter(one => one !== scope) : [...chosen, scope])
  const submit = async event => {
    event.preventDefault()
    const { name, user, days } = event.target.elements
    setBusy(true)
    try {
      const body = { name: name.value, scopes: chosen }
      if (user.value) body.user = user.value
      if (days.value) body.expires_at = new Date(Date.now() + Number(days.value) * DAY).toISOString()
      done(await api('/v1/keys', { method: 'POST', body }))
    } catch (problem) {
      sayProblem(problem)
      setBusy(false)
    }
  }
  return html`<form class="card form" aria-label="New key" onSubmit=${submit}>
    <div class="fields"><label>Name<input name="name" ref=${first} required maxlength="200" autocomplete="off" placeholder="web shop" /></label>
      <label>Bind to user<input name="user" maxlength="200" autocomplete="off" placeholder="not bound" title="A key that is not bound acts as user 1, or with the scope users:act as the user in X-User-Id" /></label>
      <label>Expires after (days)<input name="days" type="number" min="1" max="3650" placeholder="never" /></label>
      <label>Role<select value=${fitting ?? ''} onChange=${event => choose(presets[event.target.value].filter(may))}>${!fitting && html`<option value="" disabled>custom scopes</option>`}${Object.keys(presets).map(name => html`<option value=${name}>${name}</option>`)}</select></label></div>
    <details><summary>${chosen.length} of ${mine.length} scopes</summary><div class="scopes">${mine.map(scope => html`<label class="check"><input type="checkbox" checked=${chosen.includes(scope)} onChange=${() => toggle(scope)} /> ${scope}</label>`)}</div></details>
    <div class="actions"><button class="primary" disabled=${busy || !chosen.length}>Create the key</button><button type="button" onClick=${close}>Close</button></div></form>`
}

function Keys() {
  const { data, error, reload } = useApi('/v1/keys')
  const [isMaking, make] = useState(false)
  const [made, setMade] = useState(null)
  const revoke = async key => {
    if (!(await confirmed(`Revoke the key ${bounded(key.name, 60)}?`, 'Requests and sessions that use this key are refused within seconds. This cannot be undone.', 'Revoke the key', { danger: true }))) return
    try {
      await api(`/v1/keys/${encodeURIComponent(key.id)}`, { method: 'DELETE', body: {} })
      say('The key is revoked.')
      reload()
    } catch (problem) {
      sayProblem(problem)
    }
  }
  useKeys({ n: [() => make(true), 'New key'], r: [() => reload(), 'Refresh'] })
  const items = data?.items ?? []
  return html`<div class="bulk"><span class="faint">${data ? `${number(items.length)} ${items.length === 1 ? 'key' : 'keys'} of ${bounded(me.value.tenant, 40)}` : ''}</span>${!isMaking && html`<button onClick=${() => make(true)}>New key</button>`}</div>
    <${Failure} error=${error} retry=${reload} />
    ${made && html`<${Made} made=${made} close=${() => setMade(null)} />`}
    ${isMaking && html`<${NewKey} close=${() => make(false)} done=${found => (setMade(found), make(false), reload())} />`}
    ${data && !items.length && html`<${Empty} title="There are no keys" command=${`backburner keys create --name "web shop" --tenant ${word(me.value.tenant)}`}>A program or a person needs a key to use the server.</${Empty}>`}
    ${items.length > 0 && html`<div class="below"><${Frame} label="Keys"><table><thead><tr><th scope="col">Key</th><th scope="col">State</th><th scope="col">User</th><th scope="col">Scopes</th><th scope="col">Last used</th><th scope="col">Created</th><th scope="col">Expires</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
      <tbody>${items.map(key => html`<tr key=${key.id}><td><${Name} text=${key.name} most=${50} /> <span class="faint mono">${bounded(key.id, 20)}</span></td><td><${Standing} of=${key} /></td><td>${key.user ? html`<${Name} text=${key.user} most=${40} />` : html`<span class="faint">not bound</span>`}</td>
        <td title=${key.scopes.join(', ')}>${key.scopes.length}</td><td class="time"><${Ago} at=${key.last_used_at} /></td><td class="time"><${Ago} at=${key.created_at} /></td><td class="time"><${Ago} at=${key.expires_at} /></td>
        <td>${!key.revoked_at && key.scopes.every(may) && html`<button class="danger" onClick=${() => revoke(key)}>Revoke</button>`}</td></tr>`)}</tbody></table></${Frame}></div>`}`
}

// --- The audit log -----------------------------------------------------------------------------

const PAGE = 50

function Audit() {
  const before = Number(route.value.query.before) || null
  // New entries wait behind a button, so that nothing moves under the pointer.
  const list = useList(`/v1/audit?limit=${PAGE}${before ? `&before=${before}` : ''}`, { live: 5000, idOf: one => one.seq, timeOf: one => one.at })
  useKeys({ r: [() => list.show(), 'Refresh'] })
  const items = list.rows
  const turn = to => go(address('admin/audit', { before: to }))
  return html`<${Failure} error=${list.error} retry=${list.reload} />
    <div class="bulk"><${Fresh} list=${list} /></div>
    ${list.isRead && !list.error && !items.length && html`<${Empty} title="The audit log is empty">Actions such as creating a key, pausing a queue or cancelling a job are recorded here before they are executed.</${Empty}>`}
    ${items.length > 0 && html`<${Frame} label="Audit log"><table><thead><tr><th scope="col">When</th><th scope="col">Action</th><th scope="col">Target</th><th scope="col">By key</th><th scope="col">Request</th></tr></thead>
      <tbody>${items.map(one => html`<tr key=${one.seq}><td class="time"><${Ago} at=${one.at} /></td><td class="mono">${bounded(one.action, 60)}</td><td class="mono" dir="ltr" title=${bounded(one.target ?? '', 500)}>${inline(one.target ?? '', 70)}</td><td><${Name} text=${one.actor} most=${40} /></td><td class="mono faint">${bounded(one.request_id ?? '–', 40)}</td></tr>`)}</tbody></table></${Frame}>
      <div class="pager">${before && html`<button onClick=${() => turn(null)}>First page</button>`}${items.length === PAGE && html`<button onClick=${() => turn(items.at(-1).seq)}>Next page</button>`}</div>`}`
}

// --- Configuration -------------------------------------------------------------------------------

const STATUS = { pass: ['succeeded', 'pass'], warn: ['waiting', 'warning'], fail: ['failed', 'fail'] }
const WORST = ['fail', 'warn', 'pass']

function Configuration() {
  const { data, error, reload } = useApi('/v1/configuration')
  const [text, search] = useState('')
  useKeys({ r: [() => reload(), 'Check again'] })
  useEffect(() => {
    const timer = data?.examining && setTimeout(reload, 1000)
    return () => clearTimeout(timer)
  }, [data])
  if (!data) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<p class="faint">Checking…</p>`
  const findings = [...data.findings].sort((a, b) => WORST.indexOf(a.status) - WORST.indexOf(b.status))
  const wanted = text.toLowerCase()
  const settings = data.settings.filter(one => `${one.name} ${one.value}`.toLowerCase().includes(wanted))
  return html`<${Failure} error=${error} retry=${reload} />
    <p class="faint">Version ${bounded(data.version, 40)}, ${data.examined_at ? html`checked <${Ago} at=${data.examined_at} />` : 'checking…'}. On the command line: <code>backburner doctor</code></p>
    ${findings.length > 0 && html`<${Frame} label="Findings"><table class="findings"><thead><tr><th scope="col">Result</th><th scope="col">Check</th><th scope="col">Finding</th></tr></thead>
      <tbody>${findings.map(one => html`<tr><td><span class=${`state ${STATUS[one.status][0]}`}><${Icon} name=${one.status === 'warn' ? 'incidents' : STATUS[one.status][0]} />${STATUS[one.status][1]}</span></td><td>${bounded(one.name, 80)}</td>
        <td class="wrap" dir="ltr">${inline(one.message, 600)}${one.fix && html`<br /><span class="faint">Fix: ${inline(one.fix, 300)}</span>`}</td></tr>`)}</tbody></table></${Frame}>`}
    <h2 class="section">Settings</h2><div class="search"><input data-search type="search" aria-label="Find a setting" placeholder="Find a setting" value=${text} onInput=${event => search(event.target.value)} /></div>
    <${Frame} label="Settings"><table><thead><tr><th scope="col">Variable</th><th scope="col">Value</th></tr></thead>
      <tbody>${settings.map(one => html`<tr key=${one.name}><td class="mono">${one.name}</td><td class="mono wrap" dir="ltr">${one.value === '' ? html`<span class="faint">empty</span>` : inline(one.value, 120)}</td></tr>`)}</tbody></table></${Frame}>`
}

// --- The view --------------------------------------------------------------------------------------

const TABS = [
  ['keys', 'Keys', 'keys:admin', Keys],
  ['audit', 'Audit log', 'audit:read', Audit],
  ['configuration', 'Configuration', 'queues:read', Configuration],
]

export function Admin({ rest }) {
  const tabs = TABS.filter(([, , scope]) => may(scope))
  const [name, , , view] = tabs.find(([one]) => one === rest[0]) ?? tabs[0]
  return html`<${Head} title="Admin" /><nav class="tabs" aria-label="Parts">${tabs.map(([path, text]) => html`<a href=${`/ui/admin/${path}`} aria-current=${path === name ? 'page' : undefined}>${text}</a>`)}</nav>
    <${view} key=${name} />`
}
