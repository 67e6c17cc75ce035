// Schedules: when they fire, in words and in the reader's time, their last job, and a form to save one.
import { html, address, Ago, api, bounded, may, say, useApi, useEffect, useRef, useState } from './core.js'
import { act, confirmed, Empty, Failure, Frame, Head, Name, State } from './parts.js'
import { checkedJson } from './form.js'

const pathOf = name => `/v1/schedules/${name.split('/').map(encodeURIComponent).join('/')}`

const MISSED = [['skip', 'skip all'], ['run_once', 'submit one job for all of them'], ['run_all', 'submit one job for each']]

// --- When, in words ------------------------------------------------------------------------

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday']
const MONTHS = ['', 'January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', 'November', 'December']
const and = words => (words.length > 1 ? `${words.slice(0, -1).join(', ')} and ${words.at(-1)}` : words[0])
const two = value => String(value).padStart(2, '0')

/** Return the numbers of a field that lists them, as names or numbers; null if it does not. */
function numbers(field, most, names = []) {
  const found = field.split(',').map(one => {
    const at = names.findIndex(name => name && name.slice(0, 3).toUpperCase() === one.toUpperCase())
    return /^\d{1,2}$/.test(one) ? Number(one) : at < 0 ? NaN : at
  })
  return found.every(one => one <= most) ? [...new Set(found)].sort((one, other) => one - other) : null
}

/** Return N of a field like `*` + `/N` if it divides the whole evenly; null if it does not. */
function stepOf(field, whole) {
  const step = Number(field.match(/^\*\/(\d{1,2})$/)?.[1])
  return step > 0 && step < whole && whole % step === 0 ? step : null
}

function daysInWords(field) {
  if (field === '*') return 'every day'
  // A list of ranges, or a range that names Sunday twice.
  if (field.includes('-') && (field.includes(',') || /^(0|sun)-7$/i.test(field))) return null
  const [from, to] = field.split('-').map(one => numbers(one, 7, DAYS)?.[0])
  if (field.split('-').length === 2) return from < to ? `every ${DAYS[from]} to ${DAYS[to]}` : null
  const days = numbers(field, 7, DAYS)
  return days && `every ${and([...new Set(days.map(day => DAYS[day]))])}`
}

/**
 * Say in words when a cron expression fires; null if it is not one of the common patterns.
 *
 * Only what is certain is said: a wrong sentence is worse than the expression.
 */
export function inWords(cron) {
  const fields = cron.trim().split(/\s+/)
  if (fields.length === 6 && fields.slice(1).every(field => field === '*')) {
    const step = stepOf(fields[0], 60)
    return step && (step === 1 ? 'every second' : `every ${step} seconds`)
  }
  if (fields.length !== 5) return null
  const [minute, hour, date, month, weekday] = fields
  const isDaily = date === '*' && month === '*'
  const days = isDaily ? daysInWords(weekday) : null
  const on = weekday === '*' ? '' : `, ${days?.replace('every ', 'on ')}`
  if (isDaily && !days) return null
  if (hour === '*' && isDaily) {
    if (minute === '*') return `every minute${on}`
    const step = stepOf(minute, 60)
    if (step) return `${step === 1 ? 'every minute' : `every ${step} minutes`}${on}`
    const at = numbers(minute, 59)
    return at && `every hour at ${and(at.map(one => `:${two(one)}`))}${on}`
  }
  const [at, ...others] = numbers(minute, 59) ?? []
  if (at === undefined || others.length) return null
  const hours = stepOf(hour, 24)
  if (hours && isDaily) return hours === 1 ? `every hour at :${two(at)}${on}` : `every ${hours} hours at :${two(at)}${on}`
  const times = numbers(hour, 23)
  if (!times) return null
  const clock = `at ${and(times.map(one => `${two(one)}:${two(at)}`))}`
  if (isDaily) return `${days} ${clock}`
  const dates = numbers(date, 31)
  if (weekday !== '*' || !dates?.[0]) return null
  if (month === '*') return `every month on ${dates.length > 1 ? 'days' : 'day'} ${and(dates)} ${clock}`
  const months = numbers(month, 12, MONTHS)
  return months?.[0] ? `every year on ${and(months.flatMap(one => dates.map(day => `${day} ${MONTHS[one]}`)))} ${clock}` : null
}

const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone
const CLOCK = { hour: '2-digit', minute: '2-digit' }
/** A tick in the time of this browser; with seconds if the expression has them. */
const local = (at, cron) =>
  new Date(at).toLocaleString('en-GB', { weekday: 'short', day: 'numeric', month: 'short', ...CLOCK, ...(cron.trim().split(/\s+/).length > 5 && { second: '2-digit' }) })

function When({ one }) {
  const words = inWords(one.cron)
  return html`${words && html`<div>${words}</div>`}<div class="faint"><code>${bounded(one.cron, 60)}</code> ${bounded(one.timezone, 60)}</div>`
}

/** The next ticks; each has a line, so that the table keeps its height. */
function Next({ one }) {
  if (one.paused) return html`<span class="faint">none while paused</span>`
  return html`<${Ago} at=${one.next_at} />${one.next_ticks.map(at => html`<div class="faint tick"><time datetime=${at}>${local(at, one.cron)}</time></div>`)}`
}

const MOST_READ = 30

/** The job of the last tick, which was submitted at that time or later; of the first schedules only. */
function LastJob({ one, isRead }) {
  const id = useRef(null)
  const tag = `schedule:${one.name}`
  const path = `/v1/jobs${address('', { tag, since: one.last_at, sort: 'oldest', limit: 1 }).slice(4)}`
  const { data } = useApi(isRead ? path : null, { live: 2000, when: event => event.job_id === id.current })
  const [job] = data?.items ?? []
  id.current = job?.id
  return html`<${Ago} at=${one.last_at} />${isRead && html`<div class="last">${job ? html`<a href=${`/ui/jobs/${job.id}`}><${State} of=${job.state} /></a>` : html`<span class="faint">${data ? 'no job that you can see' : '…'}</span>`}</div>`}`
}

// --- The form ------------------------------------------------------------------------------

/** A form in a dialog that saves a schedule; `one` is the schedule to change. */
function ScheduleForm({ one, close, reload }) {
  const dialog = useRef(null)
  const [error, setError] = useState('')
  const [cron, setCron] = useState(one?.cron ?? '')
  const capabilities = useApi('/v1/capabilities')
  useEffect(() => dialog.current.showModal(), [])
  const submit = async event => {
    event.preventDefault()
    const { name, capability, timezone, missed, input } = Object.fromEntries(new FormData(event.target))
    try {
      // The input is sent as it was entered: a number keeps all its digits.
      const json = `${JSON.stringify({ capability, cron, timezone, missed }).slice(0, -1)}, "input": ${checkedJson(input || 'null')}}`
      await api(pathOf(one?.name ?? name), { method: 'PUT', json })
      say('The schedule is saved.')
      reload()
      dialog.current?.close()
    } catch (problem) {
      setError([problem.message, ...(problem.errors ?? []).map(each => `${each.path}: ${each.message}`)].join(' '))
    }
  }
  return html`<dialog ref=${dialog} aria-labelledby="schedule-title" onClose=${close}><form onSubmit=${submit} class="form">
    <h2 id="schedule-title">${one ? `Change ${bounded(one.name, 60)}` : 'New schedule'}</h2>
    ${!one && html`<label>Name <input name="name" required maxlength="100" autocomplete="off" /></label>`}
    <label>Capability <input name="capability" list="schedulable" required maxlength="200" autocomplete="off" defaultValue=${one?.capability ?? ''} /></label>
    <datalist id="schedulable">${capabilities.data?.items.map(each => html`<option value=${each.name} />`)}</datalist>
    <label>Cron <input name="cron" class="mono" required maxlength="100" placeholder="0 3 * * *" autocomplete="off" aria-describedby="cron-words" value=${cron} onInput=${event => setCron(event.target.value)} /></label>
    <p id="cron-words" class="faint cron-words">${inWords(cron) ?? ''}</p>
    <label>Time zone <input name="timezone" required maxlength="100" autocomplete="off" defaultValue=${one?.timezone ?? 'UTC'} /></label>
    <label>Missed ticks <select name="missed">${MISSED.map(([value, text]) => html`<option value=${value} selected=${value === (one?.missed ?? 'skip')}>${text}</option>`)}</select></label>
    <label>Input (JSON) <textarea name="input" class="mono" rows="4">${one ? JSON.stringify(one.input, null, 2) : '{}'}</textarea></label>
    ${error && html`<p class="bad-text" role="alert">${error}</p>`}
    <div class="actions end"><button type="button" onClick=${() => dialog.current.close()}>Close</button><button class="primary">Save</button></div>
  </form></dialog>`
}

// --- The table -----------------------------------------------------------------------------

function NoSchedules({ maySave, sample }) {
  const text = 'No schedule is declared by an application or saved here.'
  return html`<${Empty} title="There are no schedules" level="h3" command=${maySave && sample ? `backburner schedules set nightly ${sample.name} "0 3 * * *" '${sample.input}'` : undefined}>${text}${maySave && sample ? ' Save one with the button above, or with this command:' : ''}</${Empty}>`
}

export function Schedules({ data, error, reload, current, sample }) {
  const [edited, edit] = useState(null)
  const maySave = may('queues:admin') && may('jobs:write')
  const remove = async one =>
    (await confirmed(`Delete the schedule ${bounded(one.name, 80)}?`, 'Jobs that the schedule has submitted are not deleted.', 'Delete the schedule', { danger: true })) &&
    act(pathOf(one.name), 'The schedule is deleted.', reload, { method: 'DELETE' })
  return html`<div class="head section"><h2>Schedules</h2><div class="actions">${maySave && html`<button onClick=${() => edit({})}>New schedule</button>`}</div></div><${Failure} error=${error} retry=${reload} />
    ${edited && html`<${ScheduleForm} one=${edited.name ? edited : null} close=${() => edit(null)} reload=${reload} />`}
    ${data && !data.items.length && html`<${NoSchedules} maySave=${maySave} sample=${sample} />`}
    ${data?.items.length > 0 && html`<${Frame} label="Schedules"><table class="schedules"><thead><tr><th scope="col">Schedule</th><th scope="col" class="small">Capability</th><th scope="col">When</th><th scope="col" title="In the time zone of your browser">Next (${ZONE})</th><th scope="col">Last</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
      <tbody>${data.items.map((one, place) => html`<tr key=${one.name} ...${current(`schedule ${one.name}`)}><td><a href=${address('jobs', { tag: `schedule:${one.name}` })} title="Jobs of this schedule"><${Name} text=${one.name} most=${60} /></a>${one.paused && html` <span class="state waiting">paused</span>`}</td><td class="small"><${Name} text=${one.capability} most=${60} /></td><td class="when"><${When} one=${one} /></td>
        <td class="time"><${Next} one=${one} /></td><td class="time"><${LastJob} one=${one} isRead=${may('jobs:read') && Boolean(one.last_at) && place < MOST_READ} /></td>
        <td>${may('queues:admin') && html`<div class="actions">
          <button onClick=${() => act(`${pathOf(one.name)}/run`, 'The job is submitted.', reload)}>Run now</button>
          <button onClick=${() => act(`${pathOf(one.name)}/${one.paused ? 'resume' : 'pause'}`, one.paused ? 'The schedule is resumed.' : 'The schedule is paused.', reload)}>${one.paused ? 'Resume' : 'Pause'}</button>
          ${maySave && !one.declared && html`<button onClick=${() => edit(one)}>Change</button>`}
          ${!one.declared && html`<button class="danger" onClick=${() => remove(one)}>Delete</button>`}</div>`}</td></tr>`)}</tbody></table></${Frame}>`}`
}
