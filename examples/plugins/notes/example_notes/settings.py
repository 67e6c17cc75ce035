"""The settings of `notes`: variables that begin with `NOTES_`."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class NotesSettings(BaseSettings):
    """The limits of notes."""

    model_config = SettingsConfigDict(env_prefix="NOTES_", frozen=True)

    longest: int = Field(1_000, ge=1, le=100_000)
    """Maximum length of a note, in characters."""
