// A form from a JSON Schema: simple fields where the schema is simple, JSON elsewhere.
import { html, useRef, useState, bounded } from './core.js'

const MOST_FIELDS = 60
const MOST_CHOICES = 20
/** A text that may be longer has several lines. */
const LINE = 200
const SIMPLE = ['boolean', 'integer', 'number', 'string']

/** Follow references within the schema, and leave out that it may be null. */
function resolved(schema, root, depth = 0) {
  if (!schema || typeof schema !== 'object' || depth > 8) return {}
  if (typeof schema.$ref === 'string') {
    const { $ref, ...own } = schema
    const found = $ref.startsWith('#/$defs/') ? root.$defs?.[$ref.slice(8)] : null
    return { ...resolved(found, root, depth + 1), ...own }
  }
  const some = schema.anyOf ?? schema.oneOf ?? schema.allOf
  if (Array.isArray(some)) {
    const others = some.filter(one => one?.type !== 'null')
    if (others.length === 1) return { ...schema, ...resolved(others[0], root, depth + 1), mayBeNull: others.length < some.length }
  }
  return schema
}

/**
 * Say how a value is asked for: `{kind, title, …}` with kind `boolean`, `integer`,
 * `number`, `string`, `choice`, `object` (with `fields`) or `json`.
 */
export function asked(schema, root = schema, isTop = true) {
  const found = resolved(schema, root)
  const more = { title: found.title, about: found.description, least: found.minimum, most: found.maximum, longest: found.maxLength, start: found.default, mayBeNull: found.mayBeNull }
  const choices = found.const !== undefined ? [found.const] : found.enum
  if (Array.isArray(choices) && choices.length <= 200) return { ...more, kind: 'choice', choices }
  if (SIMPLE.includes(found.type)) return { ...more, kind: found.type }
  const names = Object.keys(found.properties ?? {})
  if (isTop && found.type === 'object' && names.length && names.length <= MOST_FIELDS) {
    const required = new Set(found.required)
    return { ...more, kind: 'object', fields: names.map(name => ({ name, isRequired: required.has(name), ...asked(found.properties[name], root, false) })) }
  }
  return { ...more, kind: 'json' }
}

/** Return a text if it is valid JSON, or throw what is wrong. */
export function checkedJson(text) {
  try {
    JSON.parse(text)
  } catch {
    throw new Error('The input is not valid JSON. Put text in quotes: "like this".')
  }
  return text
}

/** Return the value that somebody entered, or throw what is wrong with it. */
export function entered(field, text) {
  switch (field.kind) {
    case 'boolean': return Boolean(text)
    case 'choice': return field.choices[Number(text)]
    case 'integer': case 'number': {
      const value = Number(text)
      if (text.trim() === '' || Number.isNaN(value) || (field.kind === 'integer' && !Number.isInteger(value))) throw new Error(field.kind === 'integer' ? 'Enter a whole number.' : 'Enter a number.')
      if (field.kind === 'integer' && !Number.isSafeInteger(value)) throw new Error('This number is too large for the form: edit the input as JSON.')
      return value
    }
    case 'json':
      try {
        return JSON.parse(text)
      } catch {
        throw new Error('This is not valid JSON. Put text in quotes: "like this".')
      }
  }
  return text
}

const isEmpty = (field, text) => text === undefined || (field.kind !== 'boolean' && text === '')

/** What a field contains for a value: a text, or a boolean. An optional one may be left open. */
function shownAs(field, value) {
  const isOpen = value === undefined || value === null
  if (field.kind === 'boolean') return isOpen && !field.isRequired ? undefined : Boolean(value)
  if (isOpen) return ''
  if (field.kind === 'choice') return String(field.choices.indexOf(value))
  return field.kind === 'json' ? JSON.stringify(value, null, 2) : String(value)
}

const FITS = {
  boolean: value => typeof value === 'boolean',
  integer: Number.isSafeInteger,
  number: value => typeof value === 'number',
  // An empty text of an optional field is left out; a line has no other lines.
  string: (value, field) => typeof value === 'string' && (value !== '' || field.isRequired) && !(field.longest <= LINE && value.includes('\n')),
  choice: (value, field) => field.choices.includes(value),
  json: () => true,
}

/** Whether a field can hold a value, so that the form sends the same again. */
const isShown = (field, value) =>
  value === null ? field.mayBeNull && (field.isRequired || (field.start ?? null) === null) : FITS[field.kind](value, field)

function Field({ field, id, text, set, problem }) {
  const more = { id, 'aria-describedby': `${id}-note`, 'aria-invalid': problem ? 'true' : undefined, onInput: event => set(event.target.value, event.target.validity.badInput) }
  const label = bounded(field.title || field.name || 'Answer', 120)
  const control = field.kind === 'boolean' ? html`<input ...${more} type="checkbox" checked=${Boolean(text)} onInput=${event => set(event.target.checked)} />`
    : field.kind === 'choice' ? html`<select ...${more} value=${text}><option value="">Choose…</option>${field.choices.map((one, at) => html`<option value=${at}>${bounded(String(one), 120)}</option>`)}</select>`
      : field.kind === 'integer' || field.kind === 'number' ? html`<input ...${more} type="number" step=${field.kind === 'integer' ? 1 : 'any'} min=${field.least} max=${field.most} value=${text} />`
        : field.kind === 'json' || !field.name || !(field.longest <= LINE) ? html`<textarea ...${more} class=${field.kind} value=${text} maxlength=${field.longest} spellcheck=${field.kind !== 'json'}></textarea>`
          : html`<input ...${more} value=${text} maxlength=${field.longest} autocomplete="off" />`
  return html`<div class=${`field ${field.kind}`}><label for=${id}>${label}${field.kind !== 'boolean' && (field.isRequired === false || field.mayBeNull) ? html` <span class="faint">(optional)</span>` : ''}</label>${control}
    <p id=${`${id}-note`} class=${problem ? 'bad-text' : 'faint'}>${problem || (field.about ? bounded(field.about, 300) : field.kind === 'json' ? 'JSON' : '')}</p></div>`
}

/**
 * The fields of a form: `{top, view, read, fill}`. `read()` returns `{value}`, or null and
 * shows what is wrong; `changed` is called when somebody enters something. `fill(value)`
 * enters a value, or throws what has no place in the form.
 */
export function useForm(schema, id, changed = () => {}) {
  const top = schema ? asked(schema) : { kind: 'string' }
  const fields = top.kind === 'object' ? top.fields : [{ ...top, isRequired: !top.mayBeNull }]
  const [texts, setTexts] = useState(() => fields.map(field => shownAs(field, field.start)))
  // A number field has no text while it contains something else.
  const bad = useRef(new Set())
  const [problems, setProblems] = useState([])
  const read = () => {
    const found = []
    const values = fields.map((field, at) => {
      if (bad.current.has(at)) {
        found[at] = field.kind === 'integer' ? 'Enter a whole number.' : 'Enter a number.'
        return undefined
      }
      if (isEmpty(field, texts[at])) {
        if (field.isRequired && field.kind !== 'string') found[at] = 'This field is required.'
        return field.mayBeNull && field.isRequired ? null : field.kind === 'string' && field.isRequired ? '' : undefined
      }
      try {
        return entered(field, texts[at])
      } catch (error) {
        found[at] = error.message
      }
    })
    setProblems(found)
    if (found.some(Boolean)) return null
    return { value: top.kind === 'object' ? Object.fromEntries(fields.map((field, at) => [field.name, values[at]]).filter(([, value]) => value !== undefined)) : values[0] ?? null }
  }
  const fill = value => {
    const unknown = Object.keys(value ?? {}).find(name => !fields.some(field => field.name === name))
    if (value === null || typeof value !== 'object' || Array.isArray(value)) throw new Error('The form can only show a JSON object. Keep editing as JSON, or enter an object: {…}.')
    if (unknown !== undefined) throw new Error(`The form has no field “${bounded(unknown, 60)}”. Keep editing as JSON, or remove it.`)
    const wrong = fields.find(field => field.name in value && !isShown(field, value[field.name]))
    if (wrong) throw new Error(`The form cannot show the value of “${bounded(wrong.name, 60)}”. Keep editing as JSON, or change it.`)
    bad.current = new Set()
    setProblems([])
    setTexts(fields.map(field => shownAs(field, field.name in value ? value[field.name] : field.start)))
  }
  const set = at => (text, isBad = false) => {
    changed()
    isBad ? bad.current.add(at) : bad.current.delete(at)
    setTexts(was => was.map((one, place) => (place === at ? text : one)))
  }
  const nameOf = (field, at) => `${id}-${/^[\w-]+$/.test(field.name) ? field.name : at}`
  const view = fields.map((field, at) => html`<${Field} key=${at} field=${field} id=${nameOf(field, at)} text=${texts[at]} problem=${problems[at]} set=${set(at)} />`)
  return { top, view, read, fill }
}

/** A form for one value; `send(value)` is called with what was entered. Few choices are buttons. */
export function Form({ schema, id, send, busy, action = 'Send' }) {
  const { top, view, read } = useForm(schema, id)
  const buttons = top.kind === 'boolean' ? [[true, 'Yes'], [false, 'No']] : top.kind === 'choice' && top.choices.length <= MOST_CHOICES ? top.choices.map(one => [one, String(one)]) : null
  if (buttons) return html`<${Choices} buttons=${buttons} send=${send} busy=${busy} />`
  const submit = event => {
    event.preventDefault()
    const found = read()
    if (found) send(found.value)
  }
  return html`<form class="form" onSubmit=${submit} novalidate>${view}
    <div class="actions"><button class="primary" disabled=${busy}>${action}</button></div></form>`
}

export const Choices = ({ buttons, send, busy }) => html`<div class="actions">${buttons.map(([value, label]) => html`<button disabled=${busy} onClick=${() => send(value)}>${bounded(label, 120)}</button>`)}</div>`
