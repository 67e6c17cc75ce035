// Questions that jobs wait for, and their answers.
import { html, Ago, address, api, bounded, go, may, me, number, route, useState, visible } from './core.js'
import { confirmed, Empty, Failure, Head, inline, Name } from './parts.js'
import { Choices, Form } from './form.js'
import { Fresh, useList, useRows } from './list.js'

const ROWS = 50
const LONGEST = 4000
const FRESH = { of: null, busy: false, answer: undefined, problem: null }
const idOf = question => `${question.job_id} ${question.name}`
const isAbout = event => event.job_id && ['job.waiting', 'job.signalled', 'job.queued', 'job.cancelled', 'job.failed'].includes(event.type)
const mayAnswer = question => may('questions:answer') || (may('jobs:write') && question.user === me.value.user)

/** What happens if nobody answers. */
function Otherwise({ question }) {
  const { until, default: value, has_default: hasDefault } = question
  if (!until) return html`Waits until somebody answers.`
  const what = hasDefault ? html`the job continues with <code dir="ltr">${inline(value, 80)}</code>` : 'the wait fails with WAIT_TIMEOUT'
  return html`Without an answer, ${what} <${Ago} at=${until} />.`
}

function Question({ question, isCurrent }) {
  const [kept, set] = useState(FRESH)
  // A job that was retried may ask again under the same name: that is another question.
  const state = kept.of === question.asked_at ? kept : FRESH
  const { job_id: job, name, choices, schema } = question
  const send = async value => {
    const shown = inline(value, 80)
    if (!(await confirmed(`Answer ${typeof value === 'string' ? `“${shown}”` : shown}?`, 'The job continues at once. You cannot change the answer later.', 'Send the answer'))) return
    const of = question.asked_at
    set({ of, busy: true, answer: undefined, problem: null })
    try {
      await api(`/v1/jobs/${encodeURIComponent(job)}/questions/${encodeURIComponent(name)}/answer`, { method: 'POST', body: value })
      set({ of, busy: false, answer: value, problem: null })
    } catch (problem) {
      set({ of, busy: false, answer: undefined, problem })
    }
  }
  const isAnswered = state.answer !== undefined
  const isClosed = question.isGone || state.problem?.status === 409 || state.problem?.status === 404
  const id = `q-${job}-${name}`.replace(/[^\w-]/g, '-')
  return html`<li class=${`card question ${isCurrent ? 'current' : ''}`} data-row aria-current=${isCurrent ? 'true' : undefined} aria-labelledby=${id}>
    <p id=${id} class="asked" dir="auto">${bounded(question.question, LONGEST)}</p>
    ${question.error && !isAnswered && html`<p class="bad-text" dir="ltr">The previous answer was not valid: ${bounded(question.error, 500)}</p>`}
    <p class="faint"><a href=${`/ui/jobs/${job}`}><${Name} text=${question.capability} most=${60} /></a>${me.value.sees_tenant && html` of <${Name} text=${question.user} most=${40} />`}, asked <${Ago} at=${question.asked_at} />. ${!isAnswered && !isClosed && html`<${Otherwise} question=${question} />`}</p>
    <div class="reply">${isAnswered ? html`<p class="good-text" role="status">You answered <span dir="ltr">${inline(state.answer, 200)}</span>. The job continues.</p>`
      : isClosed ? html`<p role="status">This question is no longer open: another person has answered it, its time has run out, or its job has ended. <a href=${`/ui/jobs/${job}`}>See the job</a></p>`
        : mayAnswer(question) ? html`${choices ? html`<${Choices} buttons=${choices.map(one => [one, visible(one)])} send=${send} busy=${state.busy} />`
          : html`<${Form} schema=${schema} id=${id} send=${send} busy=${state.busy} action="Answer…" />`}<${Failure} error=${state.problem} />`
          : html`<p class="faint">Only the user of the job or a key with the scope questions:answer can answer.</p>`}</div></li>`
}

export function Questions() {
  const { cursor } = route.value.query
  const list = useList(`/v1/questions${address('', { limit: ROWS, cursor }).slice(4)}`, { live: 1500, when: isAbout, idOf, timeOf: question => question.asked_at })
  const current = useRows(list.rows, question => go(`/ui/jobs/${question.job_id}`), 'question', idOf)
  const open = list.rows.filter(question => !question.isGone).length
  return html`<${Head} title="Questions"><span class="faint">${list.isRead ? `${number(open)}${list.next ? '+' : ''} open` : ''}</span><${Fresh} list=${list} /></${Head}>
    <${Failure} error=${list.error} retry=${list.reload} />
    ${list.isRead && !list.rows.length && !list.error && html`<${Empty} title="No open questions" command="backburner questions">A handler asks with ctx.ask_person("Send it?", choices=["yes", "no"]). The question appears here; until it is answered, its job waits without occupying a worker.</${Empty}>`}
    <ul class="questions">${list.rows.map((question, at) => html`<${Question} key=${idOf(question)} question=${question} isCurrent=${at === current} />`)}</ul>
    <div class="pager">${cursor && html`<a href="/ui/questions">First page</a>`}${list.next && html`<a href=${address('questions', { cursor: list.next })}>Next page</a>`}</div>`
}
