"""`backburner documents …`: upload files, search them and ask about them."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from backburner.commands import (
    Exit,
    JsonOption,
    KeyOption,
    UrlOption,
    connect,
    leave,
    refuse,
    say,
    write_json,
    write_line,
    write_pieces,
    write_rows,
)
from backburner_apps.documents.prepare_command import prepare_model
from backburner_apps.documents.uploading import Upload, Uploader, watch_batch

ANSWERS: Final = "/api/v2/answers"
SEARCH: Final = "/api/v2/search"
UNSUPPORTED: Final = "the documents do not contain the answer to this question"

commands = typer.Typer(help="Upload documents, search them and ask about them.")
commands.command("prepare")(prepare_model)

BatchOption = Annotated[
    str | None, typer.Option("--batch", metavar="ID", help="Only files of this batch.")
]


@commands.callback()
def group() -> None:
    """Upload documents, search them and ask about them."""


@commands.command()
def upload(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="Files to upload.")
    ],
    *,
    watch: Annotated[
        bool, typer.Option("--watch", help="Wait until all files are processed.")
    ] = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """
    Upload files as one batch and print their ids; exit 1 if a file failed.

    Progress bars are on stderr. With --watch it waits for the end of the processing.
    """
    for file in files:
        if not file.is_file():
            refuse(f"{file} is not a file that can be read")
    with connect(url, api_key) as client:
        uploader = Uploader(client, [Upload(file) for file in files])
        batch_id = ""
        try:
            with uploader.bars:
                batch_id = uploader.run()
                if watch:
                    watch_batch(client, batch_id, uploader)
        except KeyboardInterrupt:
            continues = f"; batch {batch_id} continues" if batch_id else ""
            leave(Exit.INTERRUPTED, f"interrupted{continues}")
    _write_uploads(batch_id, uploader.uploads, as_json=as_json)
    failed = sum(each.is_failed for each in uploader.uploads)
    if failed:
        leave(Exit.JOB_FAILED, f"{failed} of {len(files)} files failed")


def _write_uploads(batch_id: str, uploads: list[Upload], *, as_json: bool) -> None:
    if as_json:
        write_json({"batchId": batch_id, "files": [each.view() for each in uploads]})
        return
    say(f"batch {batch_id}")
    headings = ("FILE ID", "STATUS", "NAME", "ERROR")
    write_rows(
        headings,
        ((each.file_id, each.status, each.name, each.error) for each in uploads),
    )


@commands.command()
def search(
    words: Annotated[str, typer.Argument(help="What to search for.")],
    *,
    batch: BatchOption = None,
    limit: Annotated[
        int, typer.Option(min=1, max=50, help="Maximum number of results.")
    ] = 10,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Print the passages that match best."""
    with connect(url, api_key) as client:
        found = client.call("GET", SEARCH, q=words, batchId=batch, limit=limit)
    if as_json:
        write_json(found)
        return
    _say_mode(found)
    rows = (
        (f"{hit['score']:.3f}", hit["fileName"], hit.get("page"), hit["snippet"])
        for hit in found["results"]
    )
    write_rows(("SCORE", "FILE", "PAGE", "PASSAGE"), rows)


@commands.command()
def ask(
    question: Annotated[str, typer.Argument(help="A question about the documents.")],
    *,
    batch: BatchOption = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Print the answer while it is written, then its sources."""
    asked = {"question": question} | ({} if batch is None else {"batchId": batch})
    with connect(url, api_key) as client:
        job_id = client.call("POST", ANSWERS, asked)["jobId"]
        if not as_json:
            write_pieces(client.pieces(job_id))
        job = client.wait(job_id)
    if job["state"] != "succeeded":
        error = job["error"]
        why = "it was cancelled" if error is None else error["message"]
        leave(Exit.JOB_FAILED, f"there is no answer: {why}")
    answer = job["output"]
    if as_json:
        write_json(answer)
        return
    _say_mode(answer)
    if answer["unsupported"]:
        say(f"backburner: {UNSUPPORTED}")
    for source in answer["sources"]:
        write_line(_line(source))


def _line(source: dict[str, Any]) -> str:
    page = source.get("page")
    where = f", page {page}" if page is not None else ""
    return f"[{source['n']}] {source['fileName']}{where}: {source['snippet']}"


def _say_mode(answer: dict[str, Any]) -> None:
    if answer.get("mode") == "keyword":
        say(
            "backburner: searched by keywords only: the embedding model is not "
            "prepared, see `backburner documents prepare`"
        )
