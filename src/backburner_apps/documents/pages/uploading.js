// Sends files: a batch, a signed URL for each file, the bytes, and a confirmation.
import {call, Problem} from "./api.js"

const AT_ONCE = 3
export const MOST_FILES = 1000
const UPLOADS = "/api/v2/uploads"

export const createBatch = fileCount => call("POST", `${UPLOADS}/batches`, {fileCount})

// Uploads one file and confirms it; `entry` stores the progress, so that a repeat continues.
export async function upload(batchId, entry, {onSigned, onProgress}) {
  const {file} = entry
  if (!entry.url) {
    const signed = await call("POST", `${UPLOADS}/batches/${batchId}/upload-urls`, {
      fileName: file.name, fileSize: file.size,
    })
    entry.fileId = signed.fileId
    entry.url = signed.uploadUrl
    entry.headers = signed.headers ?? {}
    onSigned(signed.fileId)
  }
  if (!entry.isSent) {
    await put(entry, onProgress)
    entry.isSent = true
  }
  const path = `${UPLOADS}/batches/${batchId}/files/${entry.fileId}/confirm`
  try {
    return await call("POST", path, {size: file.size})
  } catch (error) {
    // The stored bytes differ from the file: a repeat uploads it again.
    if (error.status === 409 || error.status === 422) entry.isSent = false
    throw error
  }
}

function put({file, url, headers}, onProgress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest()
    request.open("PUT", url)
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value)
    request.upload.onprogress = ({loaded, total}) => onProgress(total ? loaded / total : 1)
    request.onload = () =>
      request.status < 300 ? resolve() : reject(new Problem(request.status, problemOf(request)))
    request.onerror = () =>
      reject(new Problem(0, {detail: "The upload was interrupted. Try again."}))
    request.send(file)
  })
}

function problemOf(request) {
  try {
    return JSON.parse(request.responseText)
  } catch {
    return {detail: `The upload was refused with status ${request.status}.`}
  }
}

// Runs a task for each item, a few at once.
export async function inTurns(items, task) {
  const waiting = [...items]
  const work = async () => {
    while (waiting.length) await task(waiting.shift())
  }
  await Promise.all(Array.from({length: Math.min(AT_ONCE, waiting.length)}, work))
}
