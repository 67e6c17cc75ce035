// The tab of failed files: the user's own, or for an administrator those of the tenant.
import {call} from "./api.js"
import {byId, element, notify, timeOf, withoutCode} from "./elements.js"

const DLQ = "/api/v2/uploads/dlq"
const SHOWN = 50
const STAGES = {extracting: "reading its text", chunking: "splitting it", embedding: "indexing it"}

// Whether a dead letter was retried since it failed.
const isRetried = ({failedAt, retriedAt}) =>
  Boolean(retriedAt) && Date.parse(retriedAt) >= Date.parse(failedAt)

export class FailedView {
  #shown = ""

  constructor() {
    byId("retry-all").onclick = () => this.#retryAll()
  }

  async load() {
    const {entries, total} = await call("GET", `${DLQ}?limit=${SHOWN}`)
    const open = total - entries.filter(isRetried).length
    // Elements stay while nothing has changed: a click may be in progress on one.
    const current = JSON.stringify(entries)
    if (current !== this.#shown) byId("failed").replaceChildren(...entries.map(entry => this.#item(entry)))
    this.#shown = current
    byId("failed-count").textContent = open
    byId("failed-count").hidden = open === 0
    byId("no-failed").hidden = total > 0
    byId("retry-all").hidden = open === 0
    byId("failed-title").textContent =
      total > SHOWN ? `Failed files (${SHOWN} of ${total})` : "Failed files"
  }

  #item(entry) {
    const name = entry.fileName ?? entry.fileId
    const retry = element("button", {className: "small", type: "button"}, "Retry")
    retry.ariaLabel = `Retry ${name}`
    retry.onclick = () => this.#retry(entry.fileId, name, retry)
    retry.hidden = isRetried(entry)
    const whose = entry.user ? ` · ${entry.user}` : ""
    const attempts = `${entry.attempts} ${entry.attempts === 1 ? "attempt" : "attempts"}`
    const item = element("li", {className: "failure"},
      element("strong", {}, name), retry,
      element("p", {className: "error"}, withoutCode(entry.error)),
      element("p", {className: "hint"},
        `Failed while ${STAGES[entry.stage] ?? entry.stage} · ${attempts} · ${timeOf(entry.failedAt)}${whose}`),
      retry.hidden ? element("p", {className: "hint"}, `Processed again since ${timeOf(entry.retriedAt)}`) : null)
    item.dataset.file = entry.fileId
    if (entry.stack) {
      item.append(element("details", {}, element("summary", {}, "Stack trace"),
        element("pre", {tabIndex: 0}, entry.stack)))
    }
    return item
  }

  async #retry(fileId, name, button) {
    button.disabled = true
    try {
      await call("POST", `${DLQ}/${fileId}/retry`)
      notify(`${name} is processed again`)
    } catch (error) {
      notify(`${name}: ${error.message}`, "bad")
    }
    await this.load()
  }

  async #retryAll() {
    const button = byId("retry-all")
    button.disabled = true
    try {
      const {results} = await call("POST", `${DLQ}/retry-all`)
      const done = results.filter(({success}) => success).length
      notify(`${done} of ${results.length} files are processed again`, done ? "good" : "warn")
      await this.load()
    } catch (error) {
      notify(error.message, "bad")
    } finally {
      button.disabled = false
    }
  }
}
