// Follows the processing of one upload batch over a WebSocket, and resumes after a
// disconnect. It has no dependencies; its types are in file-processing-events.d.ts.
//
//   const events = useFileProcessingEvents(batchId, {url, token})
//   const stop = events.subscribe(() => show(events.getSnapshot()))
//
// From another origin, `token` returns a stream token of the topic `batch:{batchId}`.

const FIRST_PAUSE = 500
const LONGEST_PAUSE = 15_000
const MOST_NOTICES = 20
const ATTEMPTS = 3
const ENDED = new Set(["ready", "failed"])

export const NOTHING_YET = Object.freeze({
  files: Object.freeze({}),
  progress: null,
  summary: null,
  notices: Object.freeze([]),
  connection: "closed",
  cursor: 0,
})

export const completedNotice = ({ready, total}) =>
  `Batch completed: ${ready}/${total} files processed`

export const stalledNotice = retryCount =>
  `File processing stalled (retry ${retryCount}/${ATTEMPTS})`

// Calls onEvent for every event of a batch, once and in order, until close() is called.
export function followBatch(batchId, options = {}) {
  const {onEvent = () => {}, onConnection = () => {}} = options
  const Socket = options.WebSocket ?? globalThis.WebSocket
  let cursor = options.after ?? 0
  let pause = FIRST_PAUSE
  let socket = null
  let timer = null
  let isClosed = false

  async function connect() {
    onConnection("connecting")
    try {
      const address = await addressOf(options)
      if (isClosed) return
      socket = new Socket(address)
    } catch (error) {
      return retry(error)
    }
    const topic = `batch:${batchId}`
    socket.onopen = () =>
      socket.send(JSON.stringify({type: "subscribe", topic, after: cursor}))
    socket.onmessage = ({data}) => take(JSON.parse(data))
    socket.onclose = () => retry(null)
  }

  function take(message) {
    if (message.type === "subscribed") {
      pause = FIRST_PAUSE
      onConnection("open")
    } else if (message.type === "error") {
      onConnection("waiting", new Error(message.problem.detail ?? message.problem.title))
      socket.close()
    } else if (message.seq > cursor) {
      cursor = message.seq
      onEvent({type: message.type, seq: message.seq, at: message.at, data: message.data})
    }
  }

  function retry(error) {
    if (isClosed) return
    onConnection("waiting", error)
    timer = setTimeout(connect, pause * (0.5 + Math.random() / 2))
    pause = Math.min(pause * 2, LONGEST_PAUSE)
  }

  function close() {
    isClosed = true
    clearTimeout(timer)
    socket?.close()
    onConnection("closed")
  }

  connect()
  return {close, get cursor() { return cursor }}
}

async function addressOf({url = globalThis.location?.origin, token}) {
  const address = new URL("/v1/ws", url)
  address.protocol = address.protocol.replace("http", "ws")
  const value = typeof token === "function" ? await token() : token
  if (value) address.searchParams.set("token", value)
  return address
}

// Returns the state after an event; the state that was given is not changed.
export function applied(state, event) {
  const next = {...state, cursor: event.seq ?? state.cursor}
  const {data} = event
  switch (event.type) {
    case "file:status-changed":
      next.files = {...state.files, [data.fileId]: changed(state.files[data.fileId], data)}
      if (!ENDED.has(data.to)) next.summary = null
      return next
    case "file:processing-stalled": {
      const file = {...state.files[data.fileId], fileId: data.fileId, stalls: data.retryCount}
      next.files = {...state.files, [data.fileId]: file}
      next.notices = noticed(state, event, stalledNotice(data.retryCount))
      return next
    }
    case "batch:progress":
      next.progress = data
      return next
    case "batch:completed":
      next.summary = data.summary
      next.notices = noticed(state, event, completedNotice(data.summary))
      return next
    default:
      return next
  }
}

function changed(file, {fileId, to, error, chunkCount}) {
  const next = {fileId, status: to, stalls: file?.stalls ?? 0}
  if (error !== undefined && error !== null) next.error = error
  if (chunkCount !== undefined && chunkCount !== null) next.chunkCount = chunkCount
  return next
}

function noticed(state, {seq, at, type}, text) {
  return [...state.notices, {seq, at, type, text}].slice(-MOST_NOTICES)
}

// Returns the state of a batch as a store. It connects at the first subscribe() and
// disconnects when nobody subscribes any more; subscribed again, it resumes.
export function useFileProcessingEvents(batchId, options = {}) {
  const listeners = new Set()
  let state = {...NOTHING_YET, cursor: options.after ?? 0}
  let following = null

  function set(next) {
    state = next
    for (const listener of [...listeners]) listener()
  }

  function onEvent(event) {
    set(applied(state, event))
    options.onEvent?.(event)
  }

  function onConnection(connection, error) {
    if (connection !== state.connection) set({...state, connection})
    options.onConnection?.(connection, error)
  }

  function subscribe(listener) {
    listeners.add(listener)
    following ??= followBatch(batchId, {
      ...options, after: state.cursor, onEvent, onConnection,
    })
    return () => {
      listeners.delete(listener)
      if (listeners.size === 0) close()
    }
  }

  function close() {
    following?.close()
    following = null
  }

  return {subscribe, close, getSnapshot: () => state}
}
