// The frame around all views: login, navigation, theme, keyboard, connection.
import {
  html, render, signal, effect, useEffect, useErrorBoundary, useLayoutEffect, useRef, useState, bounded, connection, go, isRefused, keys, logIn, loginNotice,
  logOut, enterTenant, lostAt, may, me, Problem, route, start, tenant as actingIn, toast, useKeys, exact,
} from './core.js'
import { Command, Failure, Icon, Name, Confirmation } from './parts.js'
import { Jobs, lastJobs } from './jobs.js'
import { Job } from './job.js'
import { Incidents } from './incidents.js'
import { Fleet } from './fleet.js'
import { Cost } from './cost.js'
import { Admin } from './admin.js'
import { Playground } from './playground.js'
import { Webhooks } from './webhooks.js'
import { Overview } from './overview.js'
import { Batches, Flows } from './flows.js'
import { Lanes } from './lanes.js'
import { Questions } from './questions.js'

const READ = 'jobs:read'
const VIEWS = [
  { path: 'overview', title: 'Overview', icon: 'overview', view: Overview, key: 'o', scope: READ },
  { path: 'jobs', title: 'Jobs', icon: 'jobs', view: Jobs, key: 'j', scope: READ },
  { path: 'flows', title: 'Flows', icon: 'flows', view: Flows, key: 'w', scope: READ },
  { path: 'batches', title: 'Batches', view: Batches, key: 'b', within: 'flows', scope: READ },
  { path: 'questions', title: 'Questions', icon: 'waiting', view: Questions, key: 'q', scope: [READ, 'questions:answer'] },
  { path: 'incidents', title: 'Incidents', icon: 'incidents', view: Incidents, key: 'i', scope: 'dead-letters:read' },
  { path: 'lanes', title: 'Lanes', icon: 'lanes', view: Lanes, key: 'l', scope: 'queues:read' },
  { path: 'cost', title: 'Cost', icon: 'cost', view: Cost, key: 'c', scope: READ },
  { path: 'fleet', title: 'Fleet', icon: 'fleet', view: Fleet, key: 'f', scope: 'queues:read' },
  { path: 'webhooks', title: 'Webhooks', icon: 'flows', view: Webhooks, key: 'h', scope: 'webhooks:read', unless: 'queues:read' },
  { path: 'playground', title: 'Playground', icon: 'playground', view: Playground, key: 'p', scope: 'jobs:write', needs: READ },
  { path: 'admin', title: 'Admin', icon: 'keys', view: Admin, key: 'a', scope: ['keys:admin', 'audit:read', 'queues:read'] },
]
const allowed = view => [view.scope].flat().some(may) && (!view.needs || may(view.needs)) && !(view.unless && may(view.unless))
/** The first view that the key may see, if any. */
const first = () => VIEWS.find(allowed)

// --- Theme ---------------------------------------------------------------------------

const THEMES = ['system', 'light', 'dark']
const theme = signal(document.documentElement.dataset.theme || 'system')
effect(() => {
  try {
    if (theme.value === 'system') {
      delete document.documentElement.dataset.theme
      localStorage.removeItem('backburner-theme')
    } else {
      document.documentElement.dataset.theme = theme.value
      localStorage.setItem('backburner-theme', theme.value)
    }
  } catch {
    // Without storage the choice lasts until the page is left.
  }
})

const Theme = () => html`<label class="theme" title="Theme"><span class="unseen">Theme</span>
  <select value=${theme.value} onChange=${event => (theme.value = event.target.value)}>
    ${THEMES.map(name => html`<option value=${name}>${name}</option>`)}
  </select></label>`

// --- Login ---------------------------------------------------------------------------

function Login() {
  const [error, setError] = useState('')
  const [busy, setBusy] = useState(false)
  const field = useRef(null)
  useEffect(() => field.current?.focus(), [])
  const submit = async event => {
    event.preventDefault()
    setBusy(true)
    try {
      await logIn(field.current.value)
    } catch (problem) {
      setError(problem instanceof Problem && problem.status === 401 ? 'This key is not valid. Check it and try again.' : bounded(problem.message, 500))
      setBusy(false)
    }
  }
  return html`<main class="login"><form class="card" onSubmit=${submit}>
    <h1>Log in to Backburner</h1>
    ${loginNotice.value && html`<p class="notice" role="status">${bounded(loginNotice.value, 500)}</p>`}
    ${isRefused.value && html`<p>This browser is still logged in. <button type="button" onClick=${logOut}>Log out</button></p>`}
    <label for="key">API key</label>
    <input id="key" ref=${field} type="password" autocomplete="off" spellcheck="false" required
      placeholder="bb_live_…" aria-describedby="key-help" />
    ${error && html`<p class="bad-text" role="alert">${error}</p>`}
    <button class="primary" disabled=${busy}>${busy ? 'Checking…' : 'Log in'}</button>
    <p id="key-help" class="faint">A login lasts 12 hours in this browser. To create a key, run:</p>
    <${Command} text='backburner keys create --name "my dashboard" --role tenant-operator' />
  </form></main>`
}

// --- Frame ---------------------------------------------------------------------------

const CONNECTION = {
  connecting: 'Connecting…',
  live: 'Live',
  lost: 'Reconnecting…',
  paused: 'Paused',
  polling: 'Every 15 s',
}

const Connection = () => html`<span class=${`connection ${connection.value}`} role="status"
  title="State of the live updates">${CONNECTION[connection.value]}</span>`

function Who() {
  const { tenant, user, role, needs_login: isKeyed, sees_tenant: seesTenant } = me.value
  const title = isKeyed ? role || 'custom scopes' : 'development'
  const changing = useRef(null)
  const enter = event => {
    event.preventDefault()
    enterTenant(event.target.elements.tenant.value.trim())
  }
  return html`<span class="who" title=${me.value.scopes.join(', ')}>
    ${may('tenants:act') ? html`<button class="quiet" title="Act in another tenant" onClick=${() => changing.current.showModal()}><${Name} text=${tenant} most=${24} /></button>
      <dialog ref=${changing} aria-labelledby="tenant-title"><form class="form" onSubmit=${enter}><h2 id="tenant-title">Act in another tenant</h2>
        <label>Tenant (leave empty for the tenant of your key) <input name="tenant" maxlength="200" autocomplete="off" spellcheck="false" pattern="[!-~]*" title="Visible ASCII characters without spaces" placeholder="the tenant of the key" defaultValue=${actingIn.value} /></label>
        <div class="actions end"><button type="button" onClick=${() => changing.current.close()}>Close</button><button class="primary">Switch tenant</button></div></form></dialog>`
      : html`<${Name} text=${tenant} most=${24} />`}${seesTenant ? '' : html` / <${Name} text=${user} most=${24} />`}
    <span class="role">${title}</span></span>
    ${isKeyed && html`<button class="quiet" onClick=${logOut}>Log out</button>`}`
}

function Nav() {
  const [path] = route.value.path
  const here = VIEWS.find(view => view.path === path)?.within ?? path
  const list = useRef(null)
  // On a narrow screen the list scrolls: the view that is open stays in sight.
  useEffect(() => void list.current.querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' }), [here])
  return html`<nav aria-label="Views" ref=${list}><ul>${VIEWS.filter(view => !view.within && allowed(view)).map(view => html`<li>
    <a href=${`/ui/${view.path}`} aria-current=${(here || first()?.path) === view.path ? 'page' : undefined}><${Icon} name=${view.icon} />${view.title}</a></li>`)}
  </ul></nav>`
}

const help = signal(false)

effect(() => {
  if (me.value) return
  help.value = false
  lastJobs.value = '/ui/jobs'
})

function Help() {
  const dialog = useRef(null)
  useEffect(() => {
    if (help.value) dialog.current.showModal()
  }, [help.value])
  if (!help.value) return null
  return html`<dialog ref=${dialog} aria-labelledby="help" onClose=${() => (help.value = false)}>
    <h2 id="help">Keyboard shortcuts</h2>
    <dl class="keys">${Object.entries(keys.value).map(([key, [, text]]) => html`<dt><kbd>${key}</kbd></dt><dd>${text}</dd>`)}</dl>
    <form method="dialog" class="actions end"><button class="primary">Close</button></form>
  </dialog>`
}

function Toast() {
  const said = toast.value
  return html`<div class="toasts"><div role="status">${said && said.kind !== 'error' && html`<p class="toast">${bounded(said.text, 500)}
      ${said.link && html` <a href=${said.link[1]}>${said.link[0]}</a>`}</p>`}</div>
    <div role="alert">${said?.kind === 'error' && html`<p class="toast bad">${bounded(said.text, 1000)}
      <button class="quiet" onClick=${() => (toast.value = null)}>Close</button></p>`}</div></div>`
}

// Whether the view that is opened next gives the focus to its search box.
let wantsSearch = false

function View() {
  const { path } = route.value
  const main = useRef(null)
  const [error, reset] = useErrorBoundary(console.error)
  const name = path[0] || first()?.path
  const found = VIEWS.find(view => view.path === name && allowed(view))
  useLayoutEffect(() => {
    document.title = `${found?.title ?? 'Not found'} · Backburner`
    const box = wantsSearch && main.current.querySelector('[data-search]')
    wantsSearch = false
    const target = box || main.current.querySelector('h1')
    target?.focus({ preventScroll: true })
  }, [name, path[1]])
  useEffect(() => {
    if (error) reset()
  }, [route.value])
  return html`<main ref=${main} id="main">${
    error ? html`<h1 tabindex="-1">${found?.title ?? 'Error'}</h1><${Failure} error=${{ message: `This page cannot be shown: ${error.message}` }} retry=${reset} />`
      : name === 'jobs' && path[1] && found ? html`<${Job} id=${path[1]} key=${path[1]} />`
        : found ? html`<${found.view} key=${name} rest=${path.slice(1)} />`
          : html`<h1 tabindex="-1">Page not found</h1><p>${first() ? html`<a href="/ui/">Go to ${first().title}</a>` : 'This API key has no scope for any view of the dashboard. Log out, and log in with another key.'}</p>`
  }</main>`
}

/** Go to the search box of the view; one without it leads to that of Jobs. */
function search() {
  const box = document.querySelector('[data-search]')
  if (box) return box.focus()
  if (!may(READ)) return
  wantsSearch = true
  go('/ui/jobs')
}

/** Says that what is shown may be old; it covers nothing and moves nothing. */
const Lost = () => connection.value === 'lost' && html`<p class="lost" role="alert">The connection to the server is lost. This page shows the state of ${exact(lostAt.value)} and reconnects automatically.</p>`

function Shell() {
  useKeys({
    '?': [() => (help.value = true), 'Show the keyboard shortcuts'],
    '/': [search, 'Go to the search box (of Jobs, if this page has none)'],
    ...Object.fromEntries(VIEWS.filter(allowed).map(view => [`g ${view.key}`, [() => go(`/ui/${view.path}`), `Go to ${view.title}`]])),
  })
  return html`<a class="skip" href="#main">Skip to content</a>
    <header class="top"><a class="brand" href="/ui/">Backburner</a><${Nav} />
      <div class="tools"><${Connection} /><${Theme} /><button class="quiet" aria-label="Keyboard shortcuts" onClick=${() => (help.value = true)}>?</button><${Who} /></div>
    </header><${View} /><${Lost} /><${Help} /><${Confirmation} /><${Toast} />`
}

const isKeyed = document.documentElement.dataset.login === 'key'

function App() {
  if (me.value === undefined) return html`<header class="top"><span class="brand">Backburner</span></header>
    ${loginNotice.value && html`<main><div class="notice warn"><p role="status">${bounded(loginNotice.value, 500)}</p>
      ${isKeyed && html`<button onClick=${logOut}>Log out</button>`}</div></main><${Toast} />`}`
  return me.value ? html`<${Shell} key=${me.value.tenant + me.value.user} />` : html`<${Login} /><${Toast} />`
}

const root = document.getElementById('app')
root.replaceChildren()
render(html`<${App} />`, root)
start()
