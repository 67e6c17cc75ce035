"""Real texts, most of them of packages that are installed here."""

import functools
import gzip
import os
import re
import sys
import sysconfig
import zlib
from importlib.metadata import distributions
from pathlib import Path

import pytest

ENOUGH = 1_000_000
"""So many characters of each kind are looked at."""
SHORTEST, LONGEST = 300, 50_000
DJANGO = Path(sys.prefix) / "corpora" / "django"
MESSAGE = re.compile(r'^msgstr(?:\[0\])? ((?:".*"\n?)+)', re.MULTILINE)
LINE = re.compile(r'"(.*)"')


def enough(texts):
    kept, size = [], 0
    for whole in texts:
        text = whole[:LONGEST]
        if len(text) >= SHORTEST and size < ENOUGH:
            kept.append(text)
            size += len(text)
    return kept


def in_package(name, pattern):
    folder = Path(sysconfig.get_path("purelib")) / name
    return sorted(path for path in folder.glob(pattern) if path.is_file())


def messages(language):
    if not DJANGO.exists():
        reason = "Django's translations are not here: run the tests by `make test`"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    for path in sorted(DJANGO.glob(f"**/locale/{language}/**/*.po")):
        found = MESSAGE.findall(path.read_text(encoding="utf-8"))
        said = ("".join(LINE.findall(message)) for message in found[1:])
        yield "\n".join(text for text in said if text).replace(r"\n", "\n")


def english():
    found = distributions()
    yield from (str(dist.metadata.get_payload() or "") for dist in found)


def licences():
    for path in in_package("", "*.dist-info/**/*LICEN[CS]E*"):
        yield path.read_text(encoding="utf-8", errors="replace")


def code():
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        yield path.read_text(encoding="utf-8", errors="replace")


def json_texts():
    for path in in_package("botocore", "data/*/*/*.json.gz")[::9]:
        yield gzip.decompress(path.read_bytes()).decode()
    for path in in_package("", "*/**/*.json")[:100]:
        yield path.read_text(encoding="utf-8", errors="replace")


KINDS = {
    "English, READMEs": english,
    "English, licences": licences,
    "Russian": lambda: messages("ru"),
    "Chinese": lambda: messages("zh_Hans"),
    "code": code,
    "JSON": json_texts,
}


NEVER_FITTED = {"Russian", "Chinese"}


def is_unseen(text):
    """Tell whether constants must not be fitted on a text: half of them, by hash."""
    return zlib.crc32(text.encode(errors="replace")) % 2 == 1


@functools.cache
def unseen(kind):
    """Return texts of a kind that no constant was fitted on: of Django's, on none."""
    texts = KINDS[kind]()
    return enough(texts if kind in NEVER_FITTED else filter(is_unseen, texts))


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def texts(kind):
    return unseen(kind)
