// Playground: a form from a capability's schema, a quote, and the answer as it is written.
import { html, useEffect, useRef, useState, address, api, bounded, go, me, money, number, route, say, sayProblem, useApi } from './core.js'
import { Empty, Failure, Head, inline, LIVE, Name, pretty, State, Text } from './parts.js'
import { indented, readSome } from './contents.js'
import { checkedJson, useForm } from './form.js'
import { Quote } from './quote.js'
import { useWritten } from './written.js'

const UPLOADS = '/api/v2/uploads'

// --- What is sent -------------------------------------------------------------------------------------

/** Return what lines of `name=text` say. */
function metadataOf(text) {
  const lines = text.split('\n').filter(line => line.trim())
  const pairs = lines.map(line => /^([^=]+)=(.*)$/.exec(line))
  if (pairs.includes(null)) throw new Error('Write metadata as name=text, one per line.')
  return Object.fromEntries(pairs.map(([, name, value]) => [name.trim(), value]))
}

// --- The answer as it is written --------------------------------------------------------------------

function Answer({ id }) {
  const path = `/v1/jobs/${encodeURIComponent(id)}`
  const isMine = event => event.job_id === id
  const { data: job, error, reload } = useApi(`${path}?content=false`, { live: 300, when: event => isMine(event) && event.type !== 'job.output.delta' })
  const [result, setResult] = useState({ text: null, error: null })
  const state = job?.state
  const text = useWritten(id, state)
  const readResult = useRef(null)
  readResult.current ??= () => readSome(`${path}/result`).then(found => setResult({ ...found, error: null }), error => setResult({ text: null, error }))
  useEffect(() => {
    if (state === 'succeeded') readResult.current()
  }, [state])
  let shown = result.text
  let sources = []
  try {
    const value = result.text && JSON.parse(result.text)
    // An answer of `documents` cites passages.
    const isCited = typeof value?.text === 'string' && Array.isArray(value.sources)
    if (isCited) sources = value.sources
    shown = isCited ? value.text : typeof value === 'string' ? value : result.text && indented(result.text)
  } catch {
    // It is shown as it is.
  }
  return html`<div class="card answer"><div class="head"><h2>Answer</h2>${job && html`<${State} of=${job.state} />`}<a href=${`/ui/jobs/${id}`}>Open the job</a></div>
    <${Failure} error=${error} retry=${reload} /><${Failure} error=${result.error} retry=${readResult.current} />
    ${job?.error && job.state !== 'succeeded' && html`<p class="bad-text" dir="ltr">${inline(`${job.error.code}: ${job.error.message}`, 1000)}</p>`}
    ${shown !== null ? html`<${Text} text=${shown} label="Answer" />${result.isWhole === false && html`<p class="faint">Only the first part is shown: open the job to download all of it.</p>`}` : text.text ? html`<${Text} text=${text.text} label="Text so far" />` : html`<p class="faint">${!job || LIVE.has(job.state) ? 'Waiting for the answer…' : job.state !== 'succeeded' ? 'The job ended without an answer.' : result.error ? 'The job has succeeded, but its answer was not read.' : 'Loading the answer…'}</p>`}
    ${sources.length > 0 && html`<ol class="rows found" aria-label="Sources">${sources.map(one => html`<li><div><strong>[${one.n}] <${Name} text=${one.fileName} most=${60} /></strong>${one.page ? `, page ${one.page}` : ''}<p class="faint" dir="auto">${inline(one.snippet, 400)}</p></div></li>`)}</ol>`}
    ${job?.usage && html`<p class="faint">${number(job.usage.input_tokens + job.usage.output_tokens)} tokens, ${money(job.usage.priced_cost_usd)}</p>`}</div>`
}

function Try({ capability }) {
  const { top, view, read, fill } = useForm(capability.input_schema, 'field', () => setQuote(null))
  const hasFields = top.kind === 'object'
  const [asJson, setAsJson] = useState(!hasFields)
  const [json, setJson] = useState('{}')
  const [metadata, setMetadata] = useState('')
  const [quote, setQuote] = useState(null)
  const [sent, setSent] = useState(null)
  const [wrong, setWrong] = useState(null)
  const [busy, setBusy] = useState(false)
  const edit = text => {
    setQuote(null)
    setJson(text)
  }
  const swap = () => {
    setQuote(null)
    setWrong(null)
    if (asJson)
      try {
        fill(JSON.parse(checkedJson(json)))
      } catch (problem) {
        return setWrong(problem)
      }
    else {
      const found = read()
      if (!found) return
      setJson(pretty(found.value))
    }
    setAsJson(!asJson)
  }
  const ask = async (path, done) => {
    const entered = asJson || read()
    if (!entered) return
    setBusy(true)
    setWrong(null)
    try {
      const members = { capability: capability.name, ...(metadata.trim() && { metadata: metadataOf(metadata) }) }
      // JSON is sent as it was entered: a number keeps all its digits.
      const input = asJson ? checkedJson(json) : JSON.stringify(entered.value)
      done(await api(path, { method: 'POST', json: `${JSON.stringify(members).slice(0, -1)}, "input": ${input}}` }))
    } catch (problem) {
      setWrong(problem)
    }
    setBusy(false)
  }
  const send = () => ask('/v1/jobs', job => setSent(job.id))
  return html`<div class="grid even"><div><form class="card form" aria-label="Input" novalidate onSubmit=${event => (event.preventDefault(), send())}>
      ${capability.description && html`<p class="faint">${inline(capability.description, 400)}</p>`}
      ${asJson ? html`<div class="field"><label for="json">Input <span class="faint">JSON</span></label><textarea id="json" rows="10" value=${json} onInput=${event => edit(event.target.value)} spellcheck=${false}></textarea></div>`
        : view}
      <details><summary>Metadata</summary><div class="field"><label for="metadata">Metadata <span class="faint">optional, stored with the job; one name=text per line</span></label><textarea id="metadata" rows="3" value=${metadata} onInput=${event => setMetadata(event.target.value)} spellcheck=${false}></textarea></div></details>
      <${Failure} error=${wrong} />
      ${quote && html`<${Quote} quote=${quote} />`}
      <div class="actions"><button type="button" disabled=${busy} onClick=${() => ask('/v1/quote', setQuote)}>Get a quote</button><button class="primary" disabled=${busy}>Submit</button>
        ${hasFields && html`<button type="button" class="quiet" onClick=${swap}>${asJson ? 'Edit as a form' : 'Edit as JSON'}</button>`}</div></form></div>
    <div>${sent ? html`<${Answer} key=${sent} id=${sent} />` : html`<div class="card"><h2>Answer</h2><p class="faint">The answer appears here while it is written. The job continues if you leave this page.</p></div>`}</div></div>`
}

// --- Documents: upload, search, ask -------------------------------------------------------------------

async function upload(file) {
  const { batchId } = await api(`${UPLOADS}/batches`, { method: 'POST', body: { fileCount: 1 } })
  const place = `${UPLOADS}/batches/${batchId}`
  const signed = await api(`${place}/upload-urls`, { method: 'POST', body: { fileName: file.name, fileSize: file.size } })
  const stored = await fetch(signed.uploadUrl, { method: 'PUT', headers: signed.headers, body: file })
  if (!stored.ok) throw new Error(`The upload was refused with status ${stored.status}. Try again.`)
  await api(`${place}/files/${signed.fileId}/confirm`, { method: 'POST', body: { size: file.size } })
}

const FILE_STATES = { ready: 'succeeded', failed: 'failed', cancelled: 'cancelled', pending_upload: 'blocked', queued: 'queued' }

function Files() {
  const { data, error, reload } = useApi(`${UPLOADS}/files?limit=10`, { live: 1000 })
  const [busy, setBusy] = useState(false)
  const take = async event => {
    const chosen = [...event.target.files].slice(0, 20)
    event.target.value = ''
    setBusy(true)
    for (const file of chosen)
      try {
        await upload(file)
        reload()
      } catch (problem) {
        say(`${bounded(file.name, 60)}: ${problem.message}`, 'error')
      }
    setBusy(false)
  }
  return html`<div class="card"><h2>Files</h2><div class="field"><label for="files">Upload <span class="faint">text, PDF, Word, HTML and others</span></label><input id="files" type="file" multiple disabled=${busy} onChange=${take} /></div>
    <${Failure} error=${error} retry=${reload} />
    ${data?.files.length > 0 && html`<ul class="rows" aria-label="Newest files">${data.files.map(file => html`<li key=${file.fileId}><${Name} text=${file.fileName} most=${60} /><span class=${`state ${FILE_STATES[file.status] || 'running'}`}>${file.status.replaceAll('_', ' ')}</span></li>`)}</ul>`}</div>`
}

function Search() {
  const [found, set] = useState(null)
  const search = async event => {
    event.preventDefault()
    try {
      set(await api(`/api/v2/search?q=${encodeURIComponent(event.target.elements.words.value)}&limit=10`))
    } catch (problem) {
      sayProblem(problem)
    }
  }
  return html`<form class="card form" aria-label="Search" onSubmit=${search}><h2>Search</h2><div class="search"><input name="words" data-search required maxlength="1000" aria-label="Search your files" placeholder="Search your files" /><button>Search</button></div>
    ${found && html`<ol class="rows found" aria-label="Results">${found.results.map(one => html`<li><div><strong><${Name} text=${one.fileName} most=${60} /></strong>${one.page ? `, page ${one.page}` : ''}<p class="faint" dir="auto">${inline(one.snippet, 400)}</p></div></li>`)}</ol>
      <p class="faint" role="status">${found.results.length ? `${found.results.length} ${found.results.length === 1 ? 'passage' : 'passages'}, ${found.mode} search` : 'Nothing was found.'}</p>`}</form>`
}

function Documents() {
  const [sent, setSent] = useState(null)
  const ask = async event => {
    event.preventDefault()
    try {
      setSent((await api('/api/v2/answers', { method: 'POST', body: { question: event.target.elements.question.value } })).jobId)
    } catch (problem) {
      sayProblem(problem)
    }
  }
  return html`<div class="grid even"><div><${Files} /><${Search} /></div>
    <div><form class="card form" aria-label="Question" onSubmit=${ask}><h2>Ask</h2><div class="field"><label for="question">Question about your files</label><textarea id="question" name="question" required maxlength="2000" rows="3"></textarea></div><div class="actions"><button class="primary">Ask</button></div></form>
      ${sent && html`<${Answer} key=${sent} id=${sent} />`}</div></div>`
}

// --- The view -----------------------------------------------------------------------------------------

const isInternal = name => name.startsWith('backburner.') || name === 'webhook.deliver'

export function Playground({ rest }) {
  const { data, error, reload } = useApi('/v1/capabilities')
  const items = (data?.items ?? []).filter(one => !isInternal(one.name)).sort((a, b) => a.name.localeCompare(b.name))
  const hasDocuments = me.value.applications.includes('documents')
  const isDocuments = rest[0] === 'documents' && hasDocuments
  const chosen = items.find(one => one.name === route.value.query.capability) ?? items[0]
  return html`<${Head} title="Playground">${!isDocuments && items.length > 0 && html`<label><span class="unseen">Capability</span><select data-search value=${chosen?.name} onChange=${event => go(address('playground', { capability: event.target.value }), { replace: true })}>
      ${items.map(one => html`<option value=${one.name}>${bounded(one.name, 60)}</option>`)}</select></label>`}</${Head}>
    ${hasDocuments && html`<nav class="tabs" aria-label="Parts"><a href="/ui/playground" aria-current=${isDocuments ? undefined : 'page'}>Capabilities</a><a href="/ui/playground/documents" aria-current=${isDocuments ? 'page' : undefined}>Documents</a></nav>`}
    <${Failure} error=${error} retry=${reload} />
    ${data && !items.length && !isDocuments && html`<${Empty} title="This server has no capabilities" command="backburner serve --app backburner.demo:app">Start it with an application:</${Empty}>`}
    ${isDocuments ? html`<${Documents} />` : chosen && html`<${Try} key=${chosen.name} capability=${chosen} />`}`
}
