"""What a user does with the example plug-ins, over HTTP: each feature once."""

import json
from contextlib import contextmanager
from hashlib import sha256

import httpx2
from websockets.sync.client import connect

from tests.examples.installed import SECONDS

PAGE = "https://page.example"
"""The origin whose pages may call the server."""
CONTENT = b"0123456789" * 20_000


class Visitor:
    """A user of both applications, with an API key."""

    def __init__(self, url, key):
        self.url = url
        self._key = key
        self._http = httpx2.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {key}"},
            timeout=SECONDS,
            trust_env=False,
        )

    def close(self):
        self._http.close()

    def ask(self, method, path, **options):
        """Return the JSON of an answer that is a success."""
        answered = self._http.request(method, path, **options)
        assert answered.is_success, answered.text
        return answered.json() if answered.content else None

    def text(self, path):
        return self._http.get(path).raise_for_status().text

    def status(self, path):
        return self._http.get(path).status_code

    def write_notes(self, text):
        """Write a note, and import a file with two; return their ids and states."""
        note = self.ask("POST", "/notes", json={"text": text})["id"]
        file = ("notes.txt", f"{text} twice\n\n{text} thrice\n".encode())
        batch = self.ask("POST", "/notes/import", files={"file": file})["batch"]
        path, wait = f"/v1/batches/{batch}", {"Prefer": "wait=60"}
        while (found := self.ask("GET", path, headers=wait))["state"] != "finished":
            pass
        return note, batch, found["counts"]["members"]

    def write_report(self, title, server):
        """Have a report written and wait for it; return its ids."""
        asked = {"title": title, "url": server, "notify": server, "wait": 60}
        made = self.ask("POST", "/reports", json=asked)
        path, wait = f"/v1/jobs/{made['job']}", {"Prefer": "wait=60"}
        while self.ask("GET", path, headers=wait)["state"] != "succeeded":
            pass
        return made["id"], made["job"]

    def token(self, topic):
        """Return a stream token for a topic."""
        return self.ask("POST", "/v1/stream-tokens", json={"topic": topic})["token"]

    def followed(self, topic, types, about):
        """Follow a topic by SSE, as a page without a key, until these are told."""
        asked = {"topic": topic, "token": self.token(topic), "after": 0}
        return self._streamed("/v1/events", asked, types, about)

    def lines(self, report):
        """Return the data of an application's own stream, as a page without a key."""
        asked = {"token": self.token("reports")}
        return self._streamed(f"/reports/{report}/lines", asked, {"end"})["line"]

    def heard(self, topic, types, about):
        """Follow a topic by WebSocket, as such a page, until these are told."""
        url = f"{self.url.replace('http', 'ws')}/v1/ws?token={self.token(topic)}"
        seen = {}
        with connect(url, origin=PAGE, proxy=None, open_timeout=SECONDS) as socket:
            asked = {"type": "subscribe", "topic": topic, "after": 0}
            socket.send(json.dumps(asked))
            while not types <= seen.keys():
                text = socket.recv(timeout=SECONDS)
                if any(name in text for name in about):
                    told = json.loads(text)
                    seen.setdefault(told["type"], []).append(told)
        return seen

    def send_files(self):
        """Send one file in the body and one by a signed URL; return both."""
        path = "/reports/files/first.bin"
        first = self.ask("PUT", path, content=iter([CONTENT[:7], CONTENT[7:]]))
        wanted = {"name": "second.bin", "size": len(CONTENT)}
        wanted["sha256"] = sha256(CONTENT).hexdigest()
        put = self.ask("POST", "/reports/uploads", json=wanted)
        with anonymous() as client:
            refused = [client.get(put["url"]), client.put(put["url"], content=b"x")]
            assert [403, 403] == [answered.status_code for answered in refused]
            sent = client.put(put["url"], content=CONTENT, headers=put["headers"])
            assert sent.is_success, sent.text
        second = self.ask("POST", f"/reports/uploads/{put['upload']}", json=wanted)
        return first["id"], second["id"]

    def get_file(self, blob):
        """Return a file by a signed URL, as a client without a key."""
        url = self.ask("GET", f"/reports/files/{blob}")["url"]
        with anonymous() as client:
            assert 403 == client.put(url, content=CONTENT).status_code
            return client.get(url).raise_for_status().content

    def browse(self, text):
        """Write a note as a page that has logged in; return the statuses."""
        with anonymous(base_url=self.url) as page:
            session = page.post("/v1/session", json={"key": self._key}).json()
            token = {"X-CSRF-Token": session["csrf_token"]}
            refused = page.post("/notes", json={"text": text})
            made = page.post("/notes", json={"text": text}, headers=token)
        return refused.status_code, made.status_code

    def settle(self):
        """Wait until every job has ended."""
        wait = {"Prefer": "wait=60"}
        while unfinished := [
            job["id"]
            for job in self.ask("GET", "/v1/jobs", params={"limit": 100})["items"]
            if job["state"] not in {"succeeded", "failed", "cancelled"}
        ]:
            self.ask("GET", f"/v1/jobs/{unfinished[0]}", headers=wait)

    def queue(self, name):
        """Return what is known of a queue."""
        queues = self.ask("GET", "/v1/queues")["items"]
        return next(queue for queue in queues if queue["name"] == name)

    def _streamed(self, path, asked, types, about=("",)):
        seen, kind = {}, ""
        with (
            anonymous(base_url=self.url, headers={"Origin": PAGE}) as page,
            page.stream("GET", path, params=asked) as answered,
        ):
            assert PAGE == answered.headers["access-control-allow-origin"]
            for line in answered.iter_lines():
                name, _, value = line.partition(": ")
                kind = value if name == "event" else kind
                if name == "data" and any(text in value for text in about):
                    seen.setdefault(kind, []).append(json.loads(value))
                if types <= seen.keys():
                    break
        return seen


@contextmanager
def visiting(url, key):
    visitor = Visitor(url, key)
    try:
        yield visitor
    finally:
        visitor.close()


def anonymous(**options):
    """Return a client that shows no key."""
    return httpx2.Client(timeout=SECONDS, trust_env=False, **options)
