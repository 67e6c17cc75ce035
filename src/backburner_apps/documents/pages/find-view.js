// Search, and questions whose answers are streamed with their sources.
import {call} from "./api.js"
import {byId, element} from "./elements.js"

const CITATION = /\[(\d+)\]/
const KEYWORDS_ONLY =
  "Searched by keywords only: the command “backburner documents prepare” adds search by meaning."
const DELTA = "job.output.delta"
const ENDS = ["job.succeeded", "job.failed", "job.cancelled"]

export class FindView {
  #stream = null
  #turn = 0

  constructor() {
    this.form = byId("find")
    this.form.onsubmit = event => {
      event.preventDefault()
      const action = event.submitter?.value ?? "search"
      this.#run(action, this.form.question.value.trim(), this.form.scope.value)
    }
  }

  addScope(batchId, label) {
    byId("scope").append(element("option", {value: batchId}, label))
  }

  async #run(action, text, batchId) {
    if (!text) return
    const turn = ++this.#turn
    this.#stream?.close()
    byId("results").replaceChildren()
    byId("sources").replaceChildren()
    byId("answer").hidden = byId("sources-title").hidden = true
    byId("find-state").textContent = action === "ask" ? "Reading your documents …" : "Searching …"
    try {
      if (action === "ask") await this.#ask(turn, text, batchId)
      else await this.#search(turn, text, batchId)
    } catch (error) {
      if (turn === this.#turn) byId("find-state").textContent = error.message
    }
  }

  async #search(turn, text, batchId) {
    const query = new URLSearchParams({q: text})
    if (batchId) query.set("batchId", batchId)
    const {results, mode} = await call("GET", `/api/v2/search?${query}`)
    if (turn !== this.#turn) return
    const found = results.length === 1 ? "1 passage found." : `${results.length} passages found.`
    const state = results.length ? found : "Nothing found. Try other words."
    byId("find-state").textContent = mode === "keyword" ? `${state} ${KEYWORDS_ONLY}` : state
    byId("results").replaceChildren(...results.map(result =>
      element("li", {}, place(result), snippet(result.snippet, text))))
  }

  async #ask(turn, question, batchId) {
    const asked = batchId ? {question, batchId} : {question}
    const {jobId} = await call("POST", "/api/v2/answers", asked)
    if (turn !== this.#turn) return
    byId("answer").hidden = false
    const text = byId("answer-text")
    text.classList.add("busy")
    text.replaceChildren()
    let said = ""
    const stream = this.#stream = new EventSource(`/v1/jobs/${jobId}/events`)
    stream.addEventListener(DELTA, ({data}) => {
      const delta = JSON.parse(data).data
      if (delta.offset === 0) said = ""
      said += delta.text
      byId("find-state").textContent = ""
      text.replaceChildren(...cited(said))
    })
    const finish = () => {
      stream.close()
      this.#show(turn, jobId)
    }
    for (const end of ENDS) stream.addEventListener(end, finish)
    stream.onerror = () => stream.readyState === EventSource.CLOSED && finish()
  }

  async #show(turn, jobId) {
    const job = await call("GET", `/v1/jobs/${jobId}`).catch(error => ({error}))
    if (turn !== this.#turn) return
    const text = byId("answer-text")
    text.classList.remove("busy")
    byId("find-state").textContent = ""
    if (job.state !== "succeeded") {
      text.textContent = `No answer: ${job.error?.message ?? "the question was cancelled"}`
      return
    }
    const {text: answer, sources, unsupported, mode} = job.output
    if (unsupported) {
      text.textContent = "Your documents do not contain the answer to this question."
    } else {
      text.replaceChildren(...cited(answer))
    }
    if (mode === "keyword") byId("find-state").textContent = KEYWORDS_ONLY
    byId("sources-title").hidden = !sources.length
    byId("sources").replaceChildren(...sources.map(source => element("li",
      {id: `source-${source.n}`, tabIndex: -1},
      element("span", {className: "number"}, `[${source.n}]`),
      element("div", {}, place(source), element("p", {className: "snippet"}, source.snippet)))))
  }
}

// Returns a text with its citations as links to the sources.
function cited(text) {
  return text.split(/(\[\d+\])/).filter(Boolean).map(part => {
    const found = CITATION.exec(part)
    if (!found) return part
    return element("a", {
      className: "citation", href: `#source-${found[1]}`, ariaLabel: `Source ${found[1]}`,
    }, part)
  })
}

function place({fileName, page}) {
  const line = element("p", {className: "place"}, fileName)
  if (page !== undefined && page !== null) line.append(element("small", {}, `page ${page}`))
  return line
}

// Returns a snippet with the words of the search in bold.
function snippet(text, query) {
  const words = query.match(/[\p{L}\p{N}]{3,}/gu) ?? []
  const line = element("p", {className: "snippet"})
  if (!words.length) {
    line.textContent = text
    return line
  }
  const pattern = new RegExp(`(${words.map(escaped).join("|")})`, "giu")
  line.append(...text.split(pattern).map((part, n) => n % 2 ? element("mark", {}, part) : part))
  return line
}

const escaped = text => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")
