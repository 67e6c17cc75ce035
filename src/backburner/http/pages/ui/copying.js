// Commands to copy: "Copy as" submits a job again.

const quoted = text => `'${text.replaceAll("'", `'\\''`)}'`

// A terminal may act on control characters of a text that is pasted into it.
const CONTROL = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/
const ALL_CONTROL = new RegExp(CONTROL, 'g')

const code = character => `\\u${character.codePointAt(0).toString(16).padStart(4, '0')}`

/** Write JSON without control characters; those between its values are white space. */
const visibleJson = text => text.replace(ALL_CONTROL, found => (/\s/.test(found) && found < ' ' ? ' ' : code(found)))

const octal = byte => `\\${byte.toString(8).padStart(3, '0')}`
const bytes = character => [...new TextEncoder().encode(character)].map(octal).join('')

/** Write an argument for a shell; control characters by their octal codes. */
function argument(text) {
  if (!CONTROL.test(text)) return quoted(text)
  return `$'${text.replace(/[\\']/g, '\\$&').replace(ALL_CONTROL, bytes)}'`
}

/** Write an argument of a command that is shown: with quotes only if a shell needs them. */
export const word = text => (/^[\w.,:@%+=/-]+$/.test(text) ? text : argument(text))

// Tags that only Backburner sets: it refuses those of callers.
const RESERVED = /^(bulk|completion|delivery|forked-from|guard|schedule|tick):/

/**
 * Return what submits a job like this one: `{curl, Python, CLI}`.
 *
 * `input` is its input as JSON text. It stays as it is: numbers keep all their digits.
 */
export function commands(job, input, { origin, isKeyed }) {
  const value = visibleJson(input)
  const named = Object.entries(job.metadata)
  const tags = job.tags.filter(tag => !RESERVED.test(tag))
  const more = Object.entries({ ...(tags.length && { tags }), ...(named.length && { metadata: job.metadata }) })
    .map(([name, one]) => [name, visibleJson(JSON.stringify(one))])
  const members = [['capability', JSON.stringify(job.capability)], ['input', value], ...more]
  const body = `{${members.map(([name, text]) => `"${name}": ${text}`).join(', ')}}`
  const header = isKeyed ? ` \\\n  -H "Authorization: Bearer $BACKBURNER_API_KEY"` : ''
  const given = [JSON.stringify(job.capability), `json.loads(${JSON.stringify(value)})`, ...more.map(([name, text]) => `${name}=${text}`)]
  const flags = [...tags.map(tag => `--tag=${argument(tag)}`), ...named.map(([name, text]) => `--metadata=${argument(`${name}=${text}`)}`)]
  return {
    curl: `curl ${origin}/v1/jobs${header} \\\n  -H 'Content-Type: application/json' \\\n  -d ${quoted(body)}`,
    Python: `import json\n\nfrom backburner.client import Client\n\nwith Client(${JSON.stringify(origin)}) as client:\n    job = client.submit(${given.join(', ')})\n`,
    CLI: ['backburner submit --wait', `--url ${origin}`, ...flags, '--', quoted(job.capability), quoted(value)].join(' '),
  }
}
