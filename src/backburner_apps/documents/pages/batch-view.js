// One batch on the page: its bar, a bar for each file, failures with a retry button.
import {call} from "./api.js"
import {element, notify, sizeOf, timeOf, withoutCode} from "./elements.js"
import {useFileProcessingEvents} from "./file-processing-events.js"
import {inTurns, upload} from "./uploading.js"

const UPLOADS = "/api/v2/uploads"
const UPLOADED = 30
const PAGE = 200
const WITHOUT_SCROLLING = 6
const RELOAD_MS = 500
const STEPS = {
  pending_upload: [0, "Uploading"],
  uploaded: [UPLOADED, "Uploaded"],
  queued: [38, "Waiting"],
  extracting: [50, "Reading text"],
  chunking: [68, "Splitting into passages"],
  embedding: [84, "Indexing"],
  ready: [100, "Ready"],
  failed: [100, "Failed"],
}
const KINDS = {"batch:completed": "good", "file:processing-stalled": "warn"}

export class BatchView {
  #rows = new Map()
  #noticed = 0
  #counts = null
  #timer = null

  constructor({batchId, fileCount, createdAt, processedCount = 0, summary = {}}, onChange) {
    this.batchId = batchId
    this.total = fileCount
    this.createdAt = createdAt
    this.processed = processedCount
    this.onChange = onChange
    this.bar = element("progress", {max: 100, value: 0})
    this.state = element("p", {className: "batch-state"})
    this.offline = element("p", {className: "offline", hidden: true},
      "The connection is interrupted. Processing continues; the page reconnects automatically.")
    this.list = element("ul", {className: "plain files", ariaLabel: "Files of the batch"})
    if (fileCount > WITHOUT_SCROLLING) this.list.tabIndex = 0
    const title = element("h2", {}, `${fileCount} ${fileCount === 1 ? "file" : "files"}`)
    const when = element("small", {className: "hint"}, createdAt ? timeOf(createdAt) : "")
    title.append(when)
    this.bar.ariaLabel = `Batch of ${fileCount} files`
    this.node = element("section", {className: "card batch"},
      element("div", {className: "row"}, title, this.state), this.bar, this.offline, this.list)
    this.node.dataset.batch = batchId
    this.#counts = summary
    this.#show()
  }

  // Follows the batch; `after` is the cursor from which events are not known yet.
  follow() {
    this.events = useFileProcessingEvents(this.batchId, {
      onEvent: event => event.type === "reset" && this.reload(),
    })
    this.events.subscribe(() => this.#take(this.events.getSnapshot()))
  }

  // Reads the files of the batch again.
  async reload() {
    const found = []
    let cursor = ""
    do {
      const query = new URLSearchParams({batchId: this.batchId, limit: PAGE})
      if (cursor) query.set("cursor", cursor)
      const page = await call("GET", `${UPLOADS}/files?${query}`)
      found.push(...page.files)
      cursor = page.nextCursor
    } while (cursor)
    for (const file of found.reverse()) this.#update(file)
  }

  // Uploads files, a few at once; one that fails can be sent again.
  async send(files) {
    const rows = files.map(file => this.#row({fileName: file.name, size: file.size}, {file}))
    await inTurns(rows, row => this.#send(row))
  }

  async #send(row) {
    row.sendError = ""
    row.status = "pending_upload"
    this.#draw(row)
    try {
      await upload(this.batchId, row.entry, {
        onSigned: fileId => this.#name(row, fileId),
        onProgress: part => {
          row.sent = part
          this.#draw(row)
        },
      })
    } catch (error) {
      row.sendError = error.message
    }
    this.#draw(row)
    this.onChange(this)
  }

  #name(row, fileId) {
    this.#rows.get(fileId)?.node.remove()
    this.#rows.set(fileId, row)
    row.fileId = fileId
  }

  #take(state) {
    for (const file of Object.values(state.files)) this.#update(file)
    if (state.progress) this.#counts = state.progress
    if (state.summary) this.#counts = {...this.#counts, ...state.summary}
    this.isComplete = state.summary !== null
    this.offline.hidden = state.connection !== "waiting"
    for (const notice of state.notices.filter(({seq}) => seq > this.#noticed)) {
      this.#noticed = notice.seq
      if (this.isLive) notify(notice.text, KINDS[notice.type])
    }
    this.#show()
    this.onChange(this)
  }

  #update(file) {
    let row = this.#rows.get(file.fileId)
    if (!row) {
      if (!file.fileName) return this.#reloadSoon()  // another page uploads it
      row = this.#row(file)
      this.#rows.set(file.fileId, row)
    }
    Object.assign(row, {status: file.status ?? row.status, stalls: file.stalls ?? row.stalls})
    row.error = file.error ?? ""
    row.chunkCount = file.chunkCount ?? row.chunkCount
    this.#draw(row)
  }

  #reloadSoon() {
    this.#timer ??= setTimeout(() => {
      this.#timer = null
      this.reload().catch(error => notify(error.message, "bad"))
    }, RELOAD_MS)
  }

  #row({fileId, fileName, size, status = "pending_upload"}, entry = null) {
    const name = element("span", {className: "name"}, fileName)
    if (size !== undefined && size !== null) name.append(" ", element("small", {}, sizeOf(size)))
    const row = {
      fileId, fileName, status, entry, sent: 0, stalls: 0, error: "", sendError: "",
      text: element("span", {className: "status"}),
      bar: element("progress", {max: 100, value: 0, ariaLabel: `Progress of ${fileName}`}),
      reason: element("span", {className: "error"}),
      retry: element("button", {className: "small", type: "button"}, "Retry"),
    }
    row.retry.ariaLabel = `Retry ${fileName}`
    row.retry.onclick = () => this.#retry(row)
    row.foot = element("div", {className: "foot"}, row.reason, row.retry)
    row.node = element("li", {className: "file"}, name, row.text, row.bar, row.foot)
    this.list.append(row.node)
    this.#draw(row)
    return row
  }

  #draw(row) {
    const isBad = row.status === "failed" || row.sendError !== ""
    const [step, word] = STEPS[row.status] ?? [0, row.status]
    const isUploading = row.status === "pending_upload"
    row.bar.value = isUploading ? row.sent * UPLOADED : step
    row.node.dataset.status = row.status
    row.node.classList.toggle("bad", isBad)
    row.node.classList.toggle("done", row.status === "ready")
    row.reason.textContent = row.sendError || withoutCode(row.error)
    row.foot.hidden = !isBad
    row.retry.hidden = !isBad || (!row.sendError && row.status !== "failed")
    row.text.textContent = row.sendError ? "Not uploaded" : worded(row, word, isUploading)
  }

  async #retry(row) {
    row.retry.disabled = true
    try {
      if (row.sendError && row.entry) await this.#send(row)
      else await call("POST", `${UPLOADS}/dlq/${row.fileId}/retry`)
    } catch (error) {
      notify(`${row.fileName}: ${error.message}`, "bad")
    } finally {
      row.retry.disabled = false
    }
  }

  // Counts the files here if all are known: `batch:progress` comes once a second.
  #counted() {
    if (this.#rows.size < this.total) return this.#counts ?? {}
    const statuses = [...this.#rows.values()].map(({status}) => status)
    const count = wanted => statuses.filter(status => status === wanted).length
    return {ready: count("ready"), failed: count("failed")}
  }

  #show() {
    const {ready = 0, failed = 0} = this.#counted()
    const done = ready + failed
    this.bar.value = this.total ? (100 * done) / this.total : 0
    this.bar.classList.toggle("done", done === this.total && !failed)
    this.bar.classList.toggle("mixed", done === this.total && failed > 0)
    const failures = failed ? `, ${failed} failed` : ""
    this.state.textContent = `${done} of ${this.total} processed${failures}`
  }
}

function worded(row, word, isUploading) {
  if (isUploading) return `${word} ${Math.round(row.sent * 100)} %`
  if (row.status === "ready" && row.chunkCount)
    return `${word} · ${row.chunkCount} ${row.chunkCount === 1 ? "passage" : "passages"}`
  if (row.stalls && row.status !== "ready" && row.status !== "failed") return `${word} (retry ${row.stalls}/3)`
  return word
}
