// The page of documents: logs in, uploads files and shows their progress.
import {call, currentSession, logIn, logOut, resume} from "./api.js"
import {BatchView} from "./batch-view.js"
import {byId, notify, timeOf} from "./elements.js"
import {FailedView} from "./failed-view.js"
import {FindView} from "./find-view.js"
import {createBatch, MOST_FILES} from "./uploading.js"

const RECENT = 5
const failed = new FailedView()
const find = new FindView()
let failures = 0

async function start() {
  await resume()
  let recent
  try {
    recent = await call("GET", `/api/v2/uploads/batches?limit=${RECENT}`)
  } catch (error) {
    if (error.status !== 401) notify(error.message, "bad")
    return show("login")
  }
  show("app")
  byId("no-batches").hidden = recent.batches.length > 0
  for (const batch of recent.batches.reverse()) {
    const view = shown(batch)
    await view.reload()
    view.follow()
  }
  await failed.load()
}

function show(name) {
  const session = currentSession()
  for (const part of ["login", "app"]) byId(part).hidden = part !== name
  byId("who").textContent = session ? `${session.user} · ${session.tenant}` : ""
  byId("log-out").hidden = !session
  if (name === "login") byId("key").focus()
}

function shown(batch) {
  const view = new BatchView(batch, changed)
  byId("batches").prepend(view.node)
  byId("no-batches").hidden = true
  const count = batch.fileCount === 1 ? "1 file" : `${batch.fileCount} files`
  find.addScope(batch.batchId, `${count}, ${timeOf(batch.createdAt)}`)
  return view
}

// Loads the failed files again when the number of them has changed.
function changed() {
  const now = document.querySelectorAll('.file[data-status="failed"]').length
  if (now === failures) return
  failures = now
  failed.load().catch(error => notify(error.message, "bad"))
}

async function take(files) {
  for (let n = 0; n < files.length; n += MOST_FILES) {
    const part = files.slice(n, n + MOST_FILES)
    try {
      const batch = await createBatch(part.length)
      const made = {fileCount: part.length, createdAt: new Date().toISOString(), ...batch}
      const view = shown(made)
      view.isLive = true
      view.follow()
      view.send(part)
    } catch (error) {
      notify(error.message, "bad")
    }
  }
}

// Returns the files of a drop; folders are left out, with a notice.
function dropped(transfer) {
  const items = [...transfer.items].filter(item => item.kind === "file")
  const folders = items.filter(item => item.webkitGetAsEntry?.()?.isDirectory)
  if (folders.length) notify("Folders are left out: open the folder and drop its files.", "warn")
  return items.filter(item => !folders.includes(item)).map(item => item.getAsFile()).filter(Boolean)
}

const drop = byId("drop")
for (const type of ["dragenter", "dragover"]) document.addEventListener(type, event => {
  if (byId("app").hidden || !event.dataTransfer?.types.includes("Files")) return
  event.preventDefault()
  drop.classList.add("over")
})
for (const type of ["dragleave", "drop"]) document.addEventListener(type, event => {
  if (type === "drop" || event.relatedTarget === null) drop.classList.remove("over")
})
document.addEventListener("drop", event => {
  if (byId("app").hidden || !event.dataTransfer?.types.includes("Files")) return
  event.preventDefault()
  select(byId("tab-uploads"))
  const files = dropped(event.dataTransfer)
  if (files.length) take(files)
})
byId("picker").onchange = ({target}) => {
  const files = [...target.files]
  target.value = ""
  if (files.length) take(files)
}

const tabs = [...document.querySelectorAll('[role="tab"]')]
function select(tab) {
  for (const each of tabs) {
    const isChosen = each === tab
    each.ariaSelected = String(isChosen)
    each.tabIndex = isChosen ? 0 : -1
    byId(each.getAttribute("aria-controls")).hidden = !isChosen
  }
  if (tab.id === "tab-failed") failed.load().catch(error => notify(error.message, "bad"))
}
for (const tab of tabs) {
  tab.onclick = () => select(tab)
  tab.onkeydown = ({key}) => {
    const step = {ArrowLeft: -1, ArrowRight: 1}[key]
    if (!step) return
    const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length]
    next.focus()
    select(next)
  }
}

const login = byId("login")
login.querySelector("form").onsubmit = async event => {
  event.preventDefault()
  const field = byId("key"), failure = login.querySelector(".error")
  failure.textContent = ""
  try {
    await logIn(field.value)
    field.value = ""
    await start()
  } catch (error) {
    failure.textContent = error.message
  }
}
byId("log-out").onclick = async () => {
  await logOut()
  location.reload()
}

start()
