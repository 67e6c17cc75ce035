// Incidents: dead letters grouped by cause, and a staged retry for each.
import { html, address, Ago, api, go, may, money, number, sayProblem, useKeys } from './core.js'
import { confirmed, Empty, Failure, Frame, Head, inline, Name } from './parts.js'
import { Fresh, useList, useRows } from './list.js'

// Of jobs that are queued only those matter that were retried: they left their cause.
const isFailure = event => event.type === 'job.failed' || Boolean(event.data?.generation)

const idOf = group => group.fingerprint

/** Say whether all jobs of a group were looked at for its users and cost. */
const isWhole = group => group.impact.jobs >= group.count

/** What a `+` behind a number of users or a cost means. */
const seenOf = group => (isWhole(group) ? undefined : `A minimum: ${number(group.impact.jobs)} of ${number(group.count)} jobs were examined.`)

export function Incidents() {
  // What is new waits behind a button: no other cause may come under the pointer.
  const list = useList('/v1/dead-letters?limit=100&impact=true', { live: 3000, when: isFailure, idOf, timeOf: group => group.last_at })
  const retry = async group => {
    const title = `Retry ${number(group.count)} ${group.count === 1 ? 'job' : 'jobs'} in stages?`
    const cause = `${group.code} of ${group.capability}${group.message ? `: “${inline(group.message, 160)}”` : ''}.`
    const text = `${cause} One job is retried first, then ten, then all. The retry stops if more than half of the jobs of a stage fail again.`
    if (!(await confirmed(title, text, 'Start the staged retry'))) return
    try {
      const body = { action: 'retry', staged: true, where: { fingerprint: group.fingerprint } }
      go(`/ui/jobs/${(await api('/v1/jobs/bulk', { method: 'POST', body })).id}`)
    } catch (problem) {
      sayProblem(problem)
    }
  }
  const groups = list.rows
  const jobsOf = group => address('jobs', { state: 'failed', fingerprint: group.fingerprint })
  const current = useRows(groups, group => go(jobsOf(group)), 'cause', idOf)
  const partly = groups.filter(group => group.impact && !group.isGone && !isWhole(group))
  const canRetry = may('dead-letters:retry')
  useKeys({ r: [() => (groups[current] && canRetry && !groups[current].isGone ? retry(groups[current]) : list.reload()), canRetry ? 'Retry the jobs of this cause in stages' : 'Refresh'] })
  return html`<${Head} title="Incidents"><span class="faint">${list.isRead ? `${number(groups.length)}${groups.length < 100 ? '' : '+'} ${groups.length === 1 ? 'cause' : 'causes'}` : ''}</span><${Fresh} list=${list} /></${Head}>
    <${Failure} error=${list.error} retry=${list.reload} />
    ${list.isRead && !groups.length && !list.error && html`<${Empty} title="No job has failed permanently" command="backburner dead-letters list">Jobs that have failed permanently (dead letters) are grouped here by cause.</${Empty}>`}
    ${groups.length > 0 && html`<${Frame} label="Causes"><table>
      <thead><tr><th scope="col">Cause</th><th scope="col">Capability</th><th scope="col" class="number">Jobs</th><th scope="col" class="number">Users</th><th scope="col" class="number">Cost</th><th scope="col">First seen</th><th scope="col">Last seen</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
      <tbody>${groups.map((group, at) => html`<tr key=${group.fingerprint} data-row class=${at === current ? 'current' : ''} aria-current=${at === current ? 'true' : undefined}>
        <td class="cause" dir="ltr"><strong class="bad-text">${inline(group.code, 80)}</strong><span class="faint" title=${inline(group.message, 1000)}>${inline(group.message, 160)}</span><span class="faint narrow">${group.isGone ? 'cleared' : `${number(group.count)} ${group.count === 1 ? 'job' : 'jobs'}`} · <${Name} text=${group.capability} most=${30} /></span></td><td><${Name} text=${group.capability} most=${60} /></td>
        <td class="number">${group.isGone ? html`<span class="faint">cleared</span>` : number(group.count)}</td><td class="number" title=${group.impact && seenOf(group)}>${group.impact ? `${number(group.impact.users)}${isWhole(group) ? '' : '+'}` : '–'}</td><td class="number" title=${group.impact && seenOf(group)}>${group.impact ? `${money(group.impact.cost_usd)}${isWhole(group) ? '' : '+'}` : '–'}</td><td class="time"><${Ago} at=${group.first_at} /></td><td class="time"><${Ago} at=${group.last_at} /></td>
        <td><div class="actions"><a href=${`/ui/jobs/${group.sample_id}`}>Example job</a>
          <a href=${jobsOf(group)}>All jobs</a>
          ${canRetry && !group.isGone && html`<button onClick=${() => retry(group)}>Retry in stages</button>`}</div></td></tr>`)}</tbody></table></${Frame}>`}
    ${partly.length > 0 && html`<p class="faint explained">Users and cost with a + are minimums: only the newest dead letters were examined. ${partly.slice(0, 5).map(group => html`Of ${inline(group.code, 60)}, ${number(group.impact.jobs)} of ${number(group.count)} jobs. `)}${partly.length > 5 ? `This also applies to ${number(partly.length - 5)} more ${partly.length === 6 ? 'cause' : 'causes'}.` : ''}</p>`}`
}
