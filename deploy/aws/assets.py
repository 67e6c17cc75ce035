"""
Builds the archives of the functions with pip, without Docker.

The layer contains the packages of `requirements.lock`; the code archive contains our
own packages. Both are cached by content in `.lambda/`: `python -m deploy.aws.assets`.
"""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
HOME: Final = ROOT / ".lambda"
LOCK: Final = Path(__file__).with_name("requirements.lock")
PACKAGES: Final = ("backburner", "backburner_apps", "backburner_extractors")
LEFT_OUT: Final = ("__pycache__", "node_modules")
LIMIT: Final = 250 * 1000 * 1000
"""Maximum size of layer and code together, unzipped, in bytes."""
LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)
PIP: Final = (
    *("--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"),
    *("--no-compile", "--require-hashes", "--only-binary", ":all:"),
    *("--implementation", "cp", "--python-version", "3.12"),
    *("--platform", "manylinux2014_x86_64", "--platform", "manylinux_2_28_x86_64"),
)


def layer() -> Path:
    """Return the archive of third-party packages, which pip downloads once."""
    packages = layer_folder()
    made = packages.with_suffix(".zip")
    if not made.exists():
        _zip(made, _files_of(packages, packages))
    return made


def layer_folder() -> Path:
    """Return the folder with the content of the layer."""
    wanted = HOME / f"layer-{_digest(LOCK.read_bytes())}"
    if not wanted.exists():
        unfinished = wanted.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        target = ("--target", str(unfinished / "python"), "-r", str(LOCK))
        command = [sys.executable, "-m", "pip", "install", *PIP, *target]
        subprocess.run(command, check=True)
        unfinished.rename(wanted)
    return wanted


def code() -> Path:
    """Return the archive of our own packages, with their entry points."""
    files = [*_own_files(), *_metadata()]
    digest = _digest(*(part for name, data in files for part in (name.encode(), data)))
    made = HOME / f"code-{digest}.zip"
    if not made.exists():
        HOME.mkdir(exist_ok=True)
        _zip(made, iter(files))
    return made


def unzipped_size(*archives: Path) -> int:
    """Return the size of archives after Lambda has unpacked them, in bytes."""
    return sum(
        entry.file_size
        for archive in archives
        for entry in zipfile.ZipFile(archive).infolist()
    )


def _own_files() -> Iterator[tuple[str, bytes]]:
    source = ROOT / "src"
    for package in PACKAGES:
        yield from _files_of(source / package, source)


def _metadata() -> Iterator[tuple[str, bytes]]:
    """Yield the entry points of the package, which register the model providers."""
    found = distribution("backburner")
    folder = f"backburner-{found.version}.dist-info"
    for name in ("METADATA", "entry_points.txt"):
        yield f"{folder}/{name}", (found.read_text(name) or "").encode()


def _files_of(folder: Path, base: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not set(LEFT_OUT) & set(path.parts):
            yield path.relative_to(base).as_posix(), path.read_bytes()


def _zip(target: Path, files: Iterator[tuple[str, bytes]]) -> None:
    """Write a reproducible archive: the same files give the same bytes."""
    unfinished = target.with_suffix(".part")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in files:
            entry = zipfile.ZipInfo(name, LONG_AGO)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, data)
    unfinished.rename(target)


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    size = unzipped_size(layer(), code())
    print(f"layer and code: {size / 1e6:.0f} MB unzipped, {LIMIT / 1e6:.0f} allowed")
