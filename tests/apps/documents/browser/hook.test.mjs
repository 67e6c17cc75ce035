// The React hook in React itself, over a WebSocket that the test plays.
import assert from "node:assert/strict"
import {test} from "node:test"
import {createElement} from "react"
import {act, create} from "react-test-renderer"
import {useFileProcessingEvents} from "./use-file-processing-events.js"

globalThis.IS_REACT_ACT_ENVIRONMENT = true
const sockets = []

class PlayedSocket {
  constructor(address) {
    this.address = address
    this.sent = []
    sockets.push(this)
  }
  send(text) { this.sent.push(JSON.parse(text)) }
  close() { this.isClosed = true }
  tells(message) { this.onmessage({data: JSON.stringify(message)}) }
}

const url = "https://api.example"
const options = {url, token: async () => "a token", WebSocket: PlayedSocket}
const rendered = []
function Files({batchId}) {
  const state = useFileProcessingEvents(batchId, {...options})
  rendered.push(state)
  return createElement("p", null, Object.values(state.files).map(file => file.status).join())
}
const turn = () => act(async () => { await new Promise(setImmediate) })
const changed = (seq, to) => ({
  type: "file:status-changed", seq, at: "2026-11-18T00:00:00Z",
  data: {fileId: "f1", batchId: "b1", from: "queued", to},
})

test("a component shows what becomes of the files, and leaves no socket open", async () => {
  let tree
  await act(async () => { tree = create(createElement(Files, {batchId: "b1"})) })
  await turn()
  const [socket] = sockets
  assert.equal("wss://api.example/v1/ws?token=a+token", String(socket.address))
  await act(async () => {
    socket.onopen()
    socket.tells({type: "subscribed", topic: "batch:b1", after: 0})
    socket.tells(changed(7, "extracting"))
  })
  assert.deepEqual([{type: "subscribe", topic: "batch:b1", after: 0}], socket.sent)
  assert.deepEqual(["extracting"], tree.toJSON().children)
  await act(async () => {
    socket.tells(changed(9, "ready"))
    socket.tells(changed(7, "extracting"))  // told twice, and seen once
    socket.tells({type: "batch:completed", seq: 10, at: "", data: {
      batchId: "b1", summary: {total: 1, ready: 1, failed: 0}}})
  })
  assert.deepEqual(["ready"], tree.toJSON().children)
  assert.deepEqual(
    ["Batch completed: 1/1 files processed"], rendered.at(-1).notices.map(({text}) => text))
  assert.equal(10, rendered.at(-1).cursor)
  await act(async () => { tree.unmount() })
  assert.ok(socket.isClosed)
  assert.equal(1, sockets.length, "a render opens no further socket")
})

test("another batch is followed by another socket", async () => {
  let tree
  await act(async () => { tree = create(createElement(Files, {batchId: "b1"})) })
  await turn()
  await act(async () => { tree.update(createElement(Files, {batchId: "b2"})) })
  await turn()
  const [former, latter] = sockets.slice(-2)
  latter.onopen()
  assert.ok(former.isClosed)
  assert.equal("batch:b2", latter.sent[0].topic)
  await act(async () => { tree.unmount() })
})
