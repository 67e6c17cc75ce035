// Calls of the server: with the session's CSRF token, and with problems as errors.

export class Problem extends Error {
  constructor(status, {title, detail, code} = {}) {
    super(detail || title || `the server answered with status ${status}`)
    this.status = status
    this.code = code
  }
}

const REMEMBERED = "backburner-documents-session"
let session = null

export const currentSession = () => session

async function send(method, path, body) {
  const headers = {Accept: "application/json"}
  if (method !== "GET") headers["Content-Type"] = "application/json"
  if (session) headers["X-CSRF-Token"] = session.csrf_token
  let response
  try {
    response = await fetch(path, {
      method, headers, body: method === "GET" ? undefined : JSON.stringify(body ?? {}),
    })
  } catch {
    throw new Problem(0, {detail: "The server cannot be reached. Check the connection and try again."})
  }
  const answer = response.status === 204 ? null : await response.json().catch(() => ({}))
  if (!response.ok) throw new Problem(response.status, answer)
  return answer
}

// Returns the body of an answer; an answer that is an error is thrown as a Problem.
export async function call(method, path, body) {
  try {
    return await send(method, path, body)
  } catch (error) {
    if (error.code !== "CSRF_REFUSED") throw error
    session = await send("GET", "/v1/session")
    return send(method, path, body)
  }
}

// Finds the session of an earlier visit, if there is one.
export async function resume() {
  if (!localStorage.getItem(REMEMBERED)) return
  session = await send("GET", "/v1/session").catch(() => null)
  if (!session) localStorage.removeItem(REMEMBERED)
}

export async function logIn(key) {
  session = await send("POST", "/v1/session", {key})
  localStorage.setItem(REMEMBERED, "yes")
}

export async function logOut() {
  await call("DELETE", "/v1/session").catch(() => null)
  session = null
  localStorage.removeItem(REMEMBERED)
}
