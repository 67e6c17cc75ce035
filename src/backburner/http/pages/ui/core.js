// What all views share: the API, the session, the address, the live stream, times.
import { h, render, Fragment } from './vendor/preact.js'
import { useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from './vendor/hooks.js'
import { signal, computed, effect, batch, useSignal, useComputed } from './vendor/signals.js'
import htm from './vendor/htm.js'

export const html = htm.bind(h)
export {
  render, Fragment, useEffect, useErrorBoundary, useLayoutEffect, useRef, useState,
  signal, computed, effect, batch, useSignal, useComputed,
}

const TENANT = 'backburner-tenant'

// --- State of the page ---------------------------------------------------------------

/** Who is logged in (`GET /v1/me`); null: nobody, undefined: not known yet. */
export const me = signal(undefined)
/** Why the login form is shown, if not by the first visit. */
export const loginNotice = signal('')
export const may = scope => Boolean(me.value?.scopes.includes(scope))

/** Whether the login of this browser was refused: it is there, and can be ended. */
export const isRefused = signal(false)

let csrf = ''
// Counts logins: what was asked with a former one changes nothing.
let session = 0

/** In which tenant a platform operator acts; empty: that of the key. Kept in this tab. */
export const tenant = signal(stored(() => sessionStorage.getItem(TENANT)) ?? '')
function stored(read) {
  try {
    return read()
  } catch {
    return null // without storage the choice lasts until the page is left
  }
}

/** Act in another tenant from now on: everything is read anew. */
export function enterTenant(name) {
  tenant.value = name
  stored(() => (name ? sessionStorage.setItem(TENANT, name) : sessionStorage.removeItem(TENANT)))
  restart()
}

// --- The API -------------------------------------------------------------------------

export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail || `The server answered with status ${status}.`)
    this.status = status
    this.code = body?.code || ''
    this.errors = body?.errors || []
    this.requestId = body?.request_id
  }
}

/** How old an answer may be, in seconds, that is read because something happened. */
export const AGE = 1

/** Fetch something of this server; an answer that the login is over ends the session. */
export async function request(path, options = {}) {
  const whose = tenant.value && path.startsWith('/') ? { 'X-Tenant-Id': tenant.value } : {}
  const asked = session
  const response = await fetch(path, { ...options, headers: { ...options.headers, ...whose } })
  if (response.status === 401 && me.value && asked === session) endSession('Your session has ended. Log in again.')
  return response
}

function leaveTenant() {
  tenant.value = ''
  stored(() => sessionStorage.removeItem(TENANT))
}

const LONGEST_READ = 60_000

/** Keep a number as it is written if JavaScript would change it; `JSON.stringify` writes it again. */
const kept = (_name, value, { source } = {}) =>
  typeof value === 'number' && source !== undefined && String(value) !== source ? JSON.rawJSON(source) : value

/**
 * Send a request; return what it answers as JSON, or throw a `Problem`.
 *
 * `body` is a value; `json` is one as text, which is sent as it is. With `age` the server
 * may give an answer that it gave another page so many seconds ago. With `exact` numbers of
 * the answer keep all their digits.
 */
export async function api(path, { method = 'GET', body, json, headers = {}, signal: abort, age = 0, exact: isExact = false } = {}) {
  let response
  // A read that never ends would keep later ones from being made.
  const limits = [...(abort ? [abort] : []), ...(method === 'GET' ? [AbortSignal.timeout(LONGEST_READ)] : [])]
  try {
    response = await request(path, {
      method,
      signal: limits.length ? AbortSignal.any(limits) : undefined,
      headers: {
        ...headers,
        ...(method === 'GET' ? {} : { 'Content-Type': 'application/json', 'X-CSRF-Token': csrf }),
        ...(age && { 'Cache-Control': `max-age=${age}` }),
      },
      body: body === undefined ? json : JSON.stringify(body),
    })
  } catch (error) {
    if (error.name === 'AbortError') throw error
    throw new Problem(0, { detail: 'The server cannot be reached. Check your connection.', code: 'OFFLINE' })
  }
  if (response.status === 204) return null
  const answer = await (isExact ? response.text().then(text => JSON.parse(text, kept)) : response.json()).catch(error => {
    if (error.name === 'AbortError') throw error
    if (response.ok) throw new Problem(0, { detail: 'The response of the server is incomplete. Try again.', code: 'OFFLINE' })
    return null
  })
  if (response.ok) return answer
  if (response.status === 403 && answer?.code === 'CSRF_REFUSED') anew()
  throw new Problem(response.status, answer)
}

/** Forget everything of the session that ended: no view keeps what it has read. */
export function endSession(notice) {
  remember(false)
  leaveTenant()
  forget(null, notice)
}

function forget(who, notice = '', refused = false) {
  session++
  csrf = ''
  forgetStream()
  batch(() => {
    me.value = who
    toast.value = null
    loginNotice.value = notice
    isRefused.value = refused
  })
}

/** Forget everything that was read, and begin anew with the login that is there now. */
function restart() {
  forget(undefined)
  start()
}

/** Another tab has logged in or out: maybe somebody else. */
function anew() {
  leaveTenant()
  restart()
}

// Other tabs have the same cookie: they must not act with what they know of the former one.
const others = new BroadcastChannel('backburner-session')
others.onmessage = ({ data }) => {
  // What another tab has stored may be seen later than its message.
  remember(data === 'in')
  anew()
}

// Whether this browser has logged in before: without it, nobody is asked in vain.
const LOGIN = 'backburner-login'
function remember(isLoggedIn) {
  try {
    isLoggedIn ? localStorage.setItem(LOGIN, '1') : localStorage.removeItem(LOGIN)
  } catch {
    // Without storage the login form is shown after each reload.
  }
}
function hasLoggedIn() {
  try {
    return document.documentElement.dataset.login !== 'key' || localStorage.getItem(LOGIN) !== null
  } catch {
    return false
  }
}

/** Learn who is logged in; in development there is no login. */
export async function start() {
  if (!hasLoggedIn()) return endSession('')
  const mine = ++session
  const isOver = () => mine !== session
  try {
    const found = await api('/v1/me')
    const token = found.needs_login ? (await api('/v1/session')).csrf_token : ''
    if (!isOver()) enter(found, token)
  } catch (problem) {
    if (isOver()) return
    if (problem.status === 401) return endSession('')
    if (tenant.value && [403, 422].includes(problem.status)) return anew()
    if (problem.status >= 400 && problem.status < 500 && problem.status !== 429) return forget(null, problem.message, true)
    loginNotice.value = `${problem.message} Trying again…`
    setTimeout(() => isOver() || start(), 2000)
  }
}

function enter(found, token) {
  csrf = token
  batch(() => {
    loginNotice.value = ''
    isRefused.value = false
    me.value = found
  })
  openStream()
}

export async function logIn(key) {
  leaveTenant()
  const mine = ++session
  const token = (await api('/v1/session', { method: 'POST', body: { key } })).csrf_token
  try {
    const found = await api('/v1/me')
    remember(true)
    if (mine === session) enter(found, token)
  } catch (problem) {
    csrf = token
    await api('/v1/session', { method: 'DELETE' }).catch(() => {})
    throw problem
  } finally {
    others.postMessage('in')
  }
}

/** Log out, if the server can be told: without it the login would go on. */
export async function logOut() {
  try {
    csrf ||= (await api('/v1/session')).csrf_token
    await api('/v1/session', { method: 'DELETE' })
  } catch (problem) {
    if (problem.status !== 401) return say(`You are still logged in. ${problem.message}`, 'error')
  }
  endSession('')
  others.postMessage('out')
}

// --- The address ---------------------------------------------------------------------

const read = () => ({
  path: location.pathname.replace(/^\/ui\/?/, '').split('/').map(decode),
  query: Object.fromEntries(new URLSearchParams(location.search)),
})
function decode(part) {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}
export const route = signal(read())
addEventListener('popstate', () => (route.value = read()))

export function address(path, query = {}) {
  const pairs = Object.entries(query).flatMap(([name, values]) => [values].flat().map(value => [name, value]))
  const kept = pairs.filter(([, value]) => value !== undefined && value !== null && value !== '')
  const text = new URLSearchParams(kept).toString().replaceAll('%2C', ',').replaceAll('%3A', ':')
  return `/ui/${path}${text ? `?${text}` : ''}`
}

export function go(target, { replace = false } = {}) {
  history[replace ? 'replaceState' : 'pushState'](null, '', target)
  route.value = read()
  if (!replace) scrollTo(0, 0)
}

addEventListener('click', event => {
  const link = event.target.closest?.('a[href^="/ui/"]')
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return
  event.preventDefault()
  go(link.getAttribute('href'))
})

// --- The live stream: one per tab ----------------------------------------------------

/** `connecting`, `live`, `lost` (reconnecting), `paused` (the tab is hidden) or `polling`. */
export const connection = signal('connecting')
/** When something was received last, while the connection is lost. */
export const lostAt = signal(null)
/** Raised after every reconnect: views read again what they may have missed. */
export const reconnected = signal(0)
const listeners = new Set()
const SHORTEST = 500
const LONGEST = 10_000
const LASTING = 20_000
const POLL = 15_000
let stream = null
let cursor = null
let heardAt = 0
let delay = SHORTEST
// Whether something may have happened, while the tab was hidden, that no view has read.
let isBehind = false
// Who heard nothing for longer goes on with new events: views read again what is now.
const LONG = 60_000

/** Call `listen(event)` for every event of the stream until the view is gone. */
export function useEvents(listen) {
  const latest = useRef(listen)
  latest.current = listen
  useEffect(() => {
    const call = event => latest.current(event)
    listeners.add(call)
    return () => listeners.delete(call)
  }, [])
}

// A server that ends streams at once must not be asked for everything each time.
const readAgain = throttled(() => void reconnected.value++, 5000)

function openStream() {
  closeStream()
  if (!me.value) return
  if (document.hidden) {
    connection.value = 'paused'
    isBehind = true
  } else if (me.value.streams === false) poll()
  else follow((stream = new AbortController()))
}

/** Read again from time to time: this key may not open the stream. */
function poll() {
  connection.value = 'polling'
  if (isBehind) readAgain()
  isBehind = false
  const mine = (stream = new AbortController())
  const timer = setInterval(readAgain, POLL)
  mine.signal.addEventListener('abort', () => clearInterval(timer))
}

function closeStream() {
  stream?.abort()
  stream = null
}

function forgetStream() {
  closeStream()
  readAgain.stop()
  cursor = null
  heardAt = 0
  delay = SHORTEST
  isBehind = false
  lostAt.value = null
  connection.value = 'connecting'
}

async function follow(mine) {
  let silence
  let openedAt = Infinity
  const isAlive = () => {
    heardAt = Date.now()
    clearTimeout(silence)
    // The server sends something every 15 seconds.
    silence = setTimeout(() => mine.abort(), 40_000)
  }
  try {
    if (connection.value !== 'lost') connection.value = 'connecting'
    const isFirst = cursor === null
    if (Date.now() - heardAt > LONG) cursor = null
    const headers = cursor === null ? {} : { 'Last-Event-ID': cursor }
    const response = await request('/v1/events', { headers, signal: mine.signal })
    if (response.status === 401) return
    if (response.status === 403 && stream === mine) return poll()
    if (!response.ok) throw new Error(String(response.status))
    isAlive()
    openedAt = Date.now()
    const wasLost = connection.value === 'lost' || !isFirst || isBehind
    isBehind = false
    batch(() => {
      connection.value = 'live'
      lostAt.value = null
    })
    if (wasLost) readAgain()
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
    let rest = ''
    for (;;) {
      const { value, done } = await reader.read()
      if (done) break
      isAlive()
      rest += value
      const blocks = rest.split('\n\n')
      rest = blocks.pop()
      for (const block of blocks) take(block)
    }
    throw new Error('ended')
  } catch {
    if (stream !== mine) return // closed on purpose
    batch(() => {
      connection.value = 'lost'
      lostAt.value ??= heardAt || Date.now()
    })
    if (Date.now() - openedAt > LASTING) delay = SHORTEST
    setTimeout(() => stream === mine && openStream(), delay)
    delay = Math.min(delay * 2, LONGEST)
    // A stream that ends because its key was revoked only looks like a lost connection.
    api('/v1/me').catch(() => {})
  } finally {
    clearTimeout(silence)
  }
}

function take(block) {
  let data = ''
  for (const line of block.split('\n')) {
    if (line.startsWith('id: ')) cursor = line.slice(4)
    else if (line.startsWith('data: ')) data += line.slice(6)
  }
  if (!data) return
  const event = JSON.parse(data)
  for (const listen of listeners) listen(event)
}

document.addEventListener('visibilitychange', openStream)

/** Return a function that calls `work` soon, once per `wait` ms at most, and not before the last call has ended. */
export function throttled(work, wait) {
  let timer = null
  let last = -Infinity
  let running = null
  let isAsked = false
  const call = () => {
    if (document.hidden) return
    if (running) isAsked = true
    else timer ??= setTimeout(run, Math.max(0, last + wait - performance.now()))
  }
  const run = async () => {
    timer = null
    const mine = (running = {})
    try {
      await work()
    } finally {
      if (running === mine) {
        running = null
        last = performance.now()
        if (isAsked) call()
        isAsked = false
      }
    }
  }
  call.stop = () => {
    clearTimeout(timer)
    timer = running = null
    isAsked = false
  }
  return call
}

// --- Reading -------------------------------------------------------------------------

/** Keep answers in order: call it when asking, and what it returns with the answer. It is true unless a newer one was shown. */
export function inOrder() {
  let asked = 0
  let shown = 0
  return () => {
    const mine = ++asked
    return () => mine > shown && Boolean((shown = mine))
  }
}

/**
 * Read something of the API and keep it: `{data, error, loading, reload}`.
 *
 * The former data stays until the new one is there, so that nothing jumps. With `live`
 * (ms) it is read again when an event comes, at most that often. `exact`: as in `api`.
 */
export function useApi(path, { live = 0, when, exact: isExact = false } = {}) {
  const [state, set] = useState({ path: null, data: null, error: null })
  const current = useRef(path)
  current.current = path
  const read = useRef(null)
  const reload = useRef(null)
  const order = useRef(null)
  order.current ??= inOrder()
  const heard = useRef(-Infinity)
  read.current ??= async age => {
    const wanted = current.current
    if (!wanted) return
    const begun = performance.now()
    const isNext = order.current()
    try {
      const data = await api(wanted, { age, exact: isExact })
      if (current.current !== wanted || !isNext()) return
      set({ path: wanted, data, error: null })
      // The answer may be older than what has happened: it is read once more.
      if (age && heard.current > begun - age * 1000) soon.current()
    } catch (error) {
      if (current.current === wanted && isNext()) set(was => ({ path: wanted, data: was.path === wanted ? was.data : null, error }))
    }
  }
  const soon = useRef(null)
  reload.current ??= () => read.current(0)
  soon.current ??= throttled(() => read.current(live > AGE * 1000 ? AGE : 0), live || 1000)
  useEffect(() => {
    reload.current()
    return () => soon.current.stop()
  }, [path, reconnected.value])
  useEvents(event => {
    if (!live || (when && !when(event))) return
    heard.current = performance.now()
    soon.current()
  })
  const is = state.path === path
  return {
    data: state.data,
    error: is ? state.error : null,
    loading: !is && Boolean(path),
    reload: reload.current,
  }
}

// --- Times and numbers ---------------------------------------------------------------

/** The time, every second while somebody looks. */
export const now = signal(Date.now())
setInterval(() => document.hidden || (now.value = Date.now()), 1000)

const UNITS = [[86_400_000, 'd'], [3_600_000, 'h'], [60_000, 'min'], [1000, 's']]

/** Write milliseconds with the largest unit and, below ten of it, the next. */
export function span(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return '–'
  if (ms < 0) ms = 0
  if (ms < 1000) return `${Math.round(ms)} ms`
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`
  const at = UNITS.findIndex(([size]) => ms >= size)
  const [size, unit] = UNITS[at]
  const whole = Math.floor(ms / size)
  if (whole >= 10 || at === UNITS.length - 1) return `${whole} ${unit}`
  const [less, small] = UNITS[at + 1]
  const part = Math.floor((ms % size) / less)
  return part ? `${whole} ${unit} ${part} ${small}` : `${whole} ${unit}`
}

export const exact = at => (at ? new Date(at).toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'medium' }) : '')

/** A relative time; the exact one is its title. */
export function Ago({ at }) {
  if (!at) return html`<span class="faint">–</span>`
  const since = now.value - Date.parse(at)
  const text = Math.abs(since) < 1500 ? 'now' : since < 0 ? `in ${span(-since)}` : `${span(since)} ago`
  return html`<time datetime=${at} title=${`${exact(at)} (${at})`}>${text}</time>`
}

export const number = value => (value ?? 0).toLocaleString('en-GB')
export const megabytes = bytes => (bytes === null ? '–' : `${number(Math.round(bytes / 1e6))} MB`)
export function money(usd) {
  if (usd === null || usd === undefined) return '–'
  const value = Number(usd)
  if (value === 0) return '$0'
  const digits = value < 1 ? 3 : 2
  const form = value < 0.01 ? { minimumSignificantDigits: 2, maximumSignificantDigits: 2 } : { minimumFractionDigits: digits, maximumFractionDigits: digits }
  return `$${value.toLocaleString('en-GB', form)}`
}

/** Keep a text within bounds, and without characters that change how others are read. */
export function bounded(text, most) {
  const cut = text.length > most ? `${text.slice(0, most)}…` : text
  return visible(cut)
}

const MARKS = /(\p{M}{4})\p{M}+/gu
export const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g
/** Show control characters (ANSI, direction overrides) as code points, and few marks on a letter. */
export const visible = text =>
  String(text).replace(MARKS, '$1').replace(HIDDEN, found => `⟨${found.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`)

// --- Messages ------------------------------------------------------------------------

/** One message at the bottom, read out by screen readers. */
export const toast = signal(null)
let toastTimer
export function say(text, kind = 'info', link = null) {
  toast.value = { text, kind, link }
  clearTimeout(toastTimer)
  toastTimer = setTimeout(() => (toast.value = null), kind === 'error' ? 12_000 : 6000)
}
export const sayProblem = problem => problem.status !== 401 && say(problem.message, 'error')

// --- Keyboard ------------------------------------------------------------------------

/** What each key does, by view: `{key: [action, description]}`. */
export const keys = signal({})
export function useKeys(map) {
  const latest = useRef(map)
  latest.current = map
  // Before the paint: a key that is pressed as soon as a view is seen must work.
  useLayoutEffect(() => {
    const mine = Object.fromEntries(
      Object.entries(map).map(([key, [, text]]) => [key, [event => latest.current[key]?.[0](event), text]]))
    keys.value = { ...keys.value, ...mine }
    return () => {
      keys.value = Object.fromEntries(Object.entries(keys.value).filter(([key, found]) => found !== mine[key]))
    }
  }, [])
}

// A menu closes when something else is clicked, or by Escape.
const closeMenus = event => {
  for (const menu of document.querySelectorAll('details.menu[open]')) if (!menu.contains(event?.target)) menu.open = false
}
addEventListener('click', closeMenus)

let prefix = ''
let forgets
addEventListener('keydown', event => {
  const isTyping = event.target.closest?.('input, textarea, select, [contenteditable]')
  if (event.metaKey || event.ctrlKey || event.altKey || event.defaultPrevented) return
  if (isTyping && event.target.type !== 'checkbox') {
    if (event.key === 'Escape') event.target.blur()
    return
  }
  if (document.querySelector('dialog[open]') || !me.value) return
  if (event.key === 'Escape') closeMenus()
  // Enter on something that has the focus is meant for it, not for the current row.
  if (event.key === 'Enter' && event.target.closest?.('a, button, summary, [role=button]')) return
  const name = prefix + event.key
  prefix = ''
  clearTimeout(forgets)
  if (event.key === 'g' && name === 'g') {
    prefix = 'g '
    forgets = setTimeout(() => (prefix = ''), 1500)
    return
  }
  const found = keys.value[name]
  if (!found) return
  event.preventDefault()
  found[0](event)
})
