"""The folder of prepared models, and checks that a model is complete."""

import hashlib
import json
from pathlib import Path
from typing import Final, Literal

Kind = Literal["minilm", "minilm-light"]
NAMES: Final[dict[Kind, str]] = {
    "minilm": "all-MiniLM-L6-v2-int8",
    "minilm-light": "all-MiniLM-L6-v2-static-256",
}
"""The name of each model that is stored with its vectors."""
MODEL, TABLE, TOKENIZER = "model.onnx", "table.npz", "tokenizer.json"
MANIFEST: Final = "manifest.json"


def cache_folder(setting: str) -> Path:
    """Return the folder of prepared models: the configured one, or the user's cache."""
    if setting:
        return Path(setting).expanduser().absolute()
    return Path.home() / ".cache" / "backburner" / "models"


def folder_of(kind: Kind, cache: Path) -> Path:
    """Return the folder of a model, which exists only if the model is complete."""
    return cache / NAMES[kind]


def is_prepared(kind: Kind, cache: Path) -> bool:
    """Return whether a model is prepared."""
    return (folder_of(kind, cache) / MANIFEST).is_file()


def write_manifest(folder: Path) -> None:
    """Write a manifest with the SHA-256 of each file of a folder."""
    digests = {file.name: digest(file) for file in sorted(folder.iterdir())}
    (folder / MANIFEST).write_text(json.dumps(digests, indent=1), "utf-8")


def damaged(folder: Path) -> list[str]:
    """Return the files of a model that have changed since it was prepared."""
    try:
        digests = json.loads((folder / MANIFEST).read_text("utf-8"))
        return [
            name for name, sha256 in digests.items() if digest(folder / name) != sha256
        ]
    except (OSError, ValueError, AttributeError):
        return [MANIFEST]


def digest(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
