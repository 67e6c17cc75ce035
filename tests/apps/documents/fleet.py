"""A server and workers of `documents` as processes that can be killed."""

import httpx2

from tests.apps import programs
from tests.apps.documents.conftest import UPLOADS, md5


class Fleet(programs.Fleet):
    """Processes over one database and one folder of contents."""

    def __init__(self, folder, url, port, **settings):
        super().__init__(
            "documents",
            folder,
            url,
            port,
            BACKBURNER_BLOBS=(folder / "blobs").as_uri(),
            BACKBURNER_LINK_SECRET="x" * 32,
            **{
                f"BACKBURNER_DOCUMENTS_{k.upper()}": str(v) for k, v in settings.items()
            },
        )


class Uploader:
    """A client that uploads files as programs of users do."""

    def __init__(self, port):
        url = f"http://127.0.0.1:{port}"
        self.http = httpx2.AsyncClient(base_url=url, timeout=60, trust_env=False)

    async def batch(self, count):
        answer = await self.http.post(f"{UPLOADS}/batches", json={"fileCount": count})
        return answer.json()["batchId"]

    async def upload(self, batch_id, content, name):
        base = f"{UPLOADS}/batches/{batch_id}"
        body = {"fileName": name, "fileSize": len(content)}
        asked = (await self.http.post(f"{base}/upload-urls", json=body)).json()
        put = await self.http.put(asked["uploadUrl"], content=content)
        assert put.status_code == 200, put.text
        path = f"{base}/files/{asked['fileId']}/confirm"
        said = {"size": len(content), "md5": md5(content)}
        answer = await self.http.post(path, json=said)
        assert answer.status_code == 200, answer.text
        return asked["fileId"]

    async def summary(self, batch_id):
        return (await self.http.get(f"{UPLOADS}/batches/{batch_id}")).json()
