// A fork: a new job that reuses the results of the first steps of one that has ended.
import { html, api, bounded, go, span, useApi, useEffect, useRef, useState } from './core.js'
import { confirmed, Failure, inline } from './parts.js'
import { indented, readSome } from './contents.js'
import { checkedJson } from './form.js'
import { Quote } from './quote.js'

const STEPS = 1000
const LONGEST_NAME = 60

/** A form in a dialog that forks a job from its step number `start`; it stays a job of the same user. */
export function ForkForm({ job, isOwn, isHidden, start, close }) {
  const path = `/v1/jobs/${encodeURIComponent(job.id)}`
  const dialog = useRef(null)
  const { data, error } = useApi(`${path}/steps?content=false&limit=${STEPS}`)
  const [from, setFrom] = useState(start)
  // The input as text, once it is to be changed.
  const [input, setInput] = useState(null)
  const [plan, setPlan] = useState(null)
  const [problem, setProblem] = useState(null)
  const [busy, setBusy] = useState(false)
  useEffect(() => dialog.current.showModal(), [])
  const steps = (data?.items ?? []).filter(step => step.n)
  const [isWanted, setWanted] = useState(false)
  const isChanged = useRef(false)
  const change = async wanted => {
    isChanged.current = wanted
    setWanted(wanted)
    setPlan(null)
    setProblem(null)
    if (!wanted) return setInput(null)
    if (isHidden && !(await confirmed("Show the input of another user's job?", 'You can then change it for the new job.', 'Show the input'))) {
      isChanged.current = false
      return setWanted(false)
    }
    try {
      const found = await readSome(`${path}/input`)
      if (!found.isWhole) throw new Error('The input is too large to edit here: use `backburner fork ID --from N --input …`.')
      // It may not be wanted any more.
      if (isChanged.current) setInput(indented(found.text))
    } catch (error) {
      if (!isChanged.current) return
      isChanged.current = false
      setWanted(false)
      setProblem(error)
    }
  }
  const send = async (query, done) => {
    setBusy(true)
    setProblem(null)
    try {
      // As it was entered: a number keeps all its digits.
      const json = input === null ? JSON.stringify({ from }) : `{"from": ${from}, "input": ${checkedJson(input)}}`
      done(await api(`${path}/fork${query}`, { method: 'POST', json, headers: isOwn ? {} : { 'X-User-Id': job.user } }))
    } catch (error) {
      setProblem(error)
    }
    setBusy(false)
  }
  const submit = event => {
    event.preventDefault()
    send('', made => {
      dialog.current.close()
      go(`/ui/jobs/${made.id}`)
    })
  }
  return html`<dialog ref=${dialog} aria-labelledby="fork-title" onClose=${close}><form onSubmit=${submit} class="form">
    <h2 id="fork-title">Fork this job</h2>
    <p class="faint">A new job reuses the stored results of the earlier steps and runs everything from the chosen step on. This job does not change.</p>
    <label>Start at <select value=${from} onChange=${event => (setPlan(null), setFrom(Number(event.target.value)))}>
      ${steps.map(step => html`<option value=${step.n}>${step.n} ${step.kind === 'step' ? '' : `${step.kind}: `}${bounded(step.name, LONGEST_NAME)}${step.duration_ms === null ? '' : `, took ${span(step.duration_ms)}`}</option>`)}
      <option value=${steps.length + 1}>${steps.length ? 'after all stored steps' : data ? 'the beginning: no step is stored' : 'the beginning'}</option></select></label>
    <label class="check"><input type="checkbox" checked=${isWanted} onChange=${event => change(event.target.checked)} /> Change the input</label>
    ${input !== null && html`<label>Input (JSON) <textarea class="mono" rows="6" spellcheck=${false} value=${input} onInput=${event => (setPlan(null), setInput(event.target.value))}></textarea></label>`}
    <${Failure} error=${error ?? problem} />
    ${plan && html`<p>${plan.reused.length ? `The new job reuses the results of ${plan.reused.length} ${plan.reused.length === 1 ? 'step' : 'steps'}: ${inline(plan.reused.join(', '), 200)}.` : 'The new job reuses no results.'}</p><${Quote} quote=${plan.quote} />`}
    <div class="actions end"><button type="button" onClick=${() => dialog.current.close()}>Close</button>
      <button type="button" disabled=${busy || (isWanted && input === null)} onClick=${() => send('?dry_run=true', setPlan)}>Get a quote</button>
      <button class="primary" disabled=${busy || (isWanted && input === null)}>Fork</button></div>
  </form></dialog>`
}
