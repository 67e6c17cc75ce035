// Shows the replies of a server without a bot. Texts are set as text, never as HTML.
const state = document.getElementById("state");
const list = document.getElementById("replies");

function shown(reply) {
  const item = document.createElement("li");
  const head = document.createElement("small");
  head.textContent = `chat ${reply.chatId}, ${reply.createdAt}`;
  const text = document.createElement("pre");
  const plain = reply.parseMode === "HTML"
    ? new DOMParser().parseFromString(reply.text, "text/html").body.textContent
    : reply.text.replace(/\\([_*`[])/g, "$1");
  text.textContent = plain;
  item.append(head, text);
  return item;
}

async function refresh() {
  try {
    const answer = await fetch("/inbox/outbox");
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.detail);
    list.replaceChildren(...body.items.map(shown));
    state.textContent = body.items.length ? "" : "No replies yet.";
  } catch (error) {
    state.textContent = `Replies cannot be shown: ${error.message}`;
  }
  setTimeout(refresh, 1000);
}

refresh();
