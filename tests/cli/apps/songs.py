"""An application as a stranger would write one, with everything that `App` takes."""

from pathlib import Path

import typer
from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from backburner import App, Context, Counter, capability, read_settings
from backburner.web import log

Path("imported").touch()
commands = typer.Typer(help="Sing.")
sung = Counter("songs_sung_total", "Songs that were sung.", ["singer"])


class SongsSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="SONGS_", frozen=True)

    limit: int = Field(3, ge=1)
    token: SecretStr = SecretStr("")


@capability("songs.limit", queue="songs")
async def limit(ctx: Context, _value: None) -> int:
    """Say how many songs there may be."""
    sung.labels("choir").inc()
    log.warning("sung", songCount=2, lyrics="la la")
    return ctx.settings_of(SongsSettings).limit


@commands.command("limit")
def print_limit() -> None:
    """Print how many songs there may be."""
    print(read_settings(SongsSettings).limit)


app = App(
    "songs",
    capabilities=[limit],
    settings=SongsSettings,
    commands=commands,
    pages=Path(__file__).parent / "pages",
    log_keys=["songCount"],
    metrics=[sung],
)
