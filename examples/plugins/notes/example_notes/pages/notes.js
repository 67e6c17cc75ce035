// Logs in with an API key, adds notes, and shows events of the topic `notes`.
const form = document.querySelector("form")
let session = null

async function send(path, body) {
  const headers = {"Content-Type": "application/json"}
  if (session) headers["X-CSRF-Token"] = session.csrf_token
  const answer = await fetch(path, {method: "POST", headers, body: JSON.stringify(body)})
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`)
  return answer.json()
}

// The key becomes a cookie that no script can read; a token opens the one stream.
async function logIn(key) {
  session = await send("/v1/session", {key})
  const {token} = await send("/v1/stream-tokens", {topic: "notes"})
  const stream = new EventSource(`/v1/events?topic=notes&token=${token}`)
  stream.addEventListener("note:counted", ({data}) => {
    const line = document.createElement("li")
    line.textContent = `${JSON.parse(data).data.words} words`
    document.querySelector("ol").append(line)
  })
  await new Promise(resolve => stream.addEventListener("open", resolve, {once: true}))
}

form.addEventListener("submit", async event => {
  event.preventDefault()
  if (!session) await logIn(form.key.value)
  form.key.value = ""
  await send("/notes", {text: form.text.value})
})
