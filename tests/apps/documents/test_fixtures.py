"""The committed documents of other programs, through the whole pipeline."""

from pydantic import TypeAdapter

from backburner.engine.submit.submission import LOCAL
from backburner_extractors import Page
from tests.apps.documents.conftest import until
from tests.extractors.documents import FOLDER, NAMES, overlap, reference

ALIKE = 0.94
PAGES = TypeAdapter(list[Page])


async def test_25_documents_of_all_kinds_become_ready(start):
    documents = await start()
    batch_id = await documents.batch(len(NAMES))
    ids = {}
    for name in NAMES:
        content = (FOLDER / name).read_bytes()
        ids[name] = await documents.upload(batch_id, content, name)
    batch = await documents.completed(batch_id)
    assert batch["processedCount"] == len(NAMES) == 25
    blobs = documents.backburner.blobs("documents", LOCAL)
    for name, file_id in ids.items():
        file = await documents.file(file_id)
        assert file["status"] == "ready", (name, file)
        path = await documents.path_of(batch_id, file_id)
        assert [to for _, to in path] == [
            *("uploaded", "queued", "extracting", "chunking", "embedding", "ready")
        ]
        row = await documents.row(file_id)
        content = b"".join([piece async for piece in blobs.read(row.text_blob)])
        text = "\n".join(page.text for page in PAGES.validate_json(content))
        assert overlap(text, reference(name)) >= ALIKE, name

    async def found():
        answer = await documents.get("/api/v2/search", q="Leitfaden", limit=5)
        return answer.json()["results"]

    assert await until(found)
