"""How much a text looks like instructions to the model that is to read it."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from backburner.domain.guard.normal import Normal, normalise, payloads
from backburner.domain.guard.rules import WEIGHTS, Form, rules

FLAGGED_FROM: Final = 3
BLOCKED_FROM: Final = 4
MOST_READ: Final = 200_000
"""How many characters of an input are read; what is longer is not let through."""
WINDOW: Final = 4_000
"""Signs count together if they are so near; a long document has all of them."""

TAGS: Final = "encoded.tags"
BASE64: Final = "encoded.base64"
UNREAD: Final = "limit.unread"

Sign = tuple[int, str]
"""Where in a text, and by which rule."""


class Policy(StrEnum):
    """What is done about a text that looks like an injection."""

    OFF = "off"
    FLAG = "flag"
    BLOCK = "block"


class Verdict(NamedTuple):
    """What a text looks like."""

    score: int
    rules: tuple[str, ...]
    """Which rules made the score, by name."""
    normalised: bool
    """Whether a disguise was taken off before they matched."""

    @property
    def is_flagged(self) -> bool:
        """Whether somebody should look at it."""
        return self.score >= FLAGGED_FROM

    @property
    def is_blocked(self) -> bool:
        """Whether it should not reach a model."""
        return self.score >= BLOCKED_FROM


def judge(text: str) -> Verdict:
    """Judge a text, in time that grows with its length and no faster."""
    found = _judged(text[:MOST_READ])
    if len(text) <= MOST_READ:
        return found
    return found._replace(
        score=found.score + WEIGHTS[UNREAD], rules=(*found.rules, UNREAD)
    )


def judge_all(texts: Iterable[str]) -> Verdict:
    """Judge texts that a model will read together."""
    return judge("\n".join(texts))


def _judged(text: str) -> Verdict:
    normal = normalise(text)
    signs = list(_signs(normal))
    if normal.has_tags:
        signs.append((0, TAGS))
    for said in payloads(text):
        hidden = list(_signs(normalise(said)))
        if hidden:
            signs += [(0, BASE64), *((0, name) for _, name in hidden)]
    score, names = _densest(sorted(signs))
    has_payload = BASE64 in names
    return Verdict(score, names, normalised=normal.is_disguised or has_payload)


def _signs(normal: Normal) -> Iterator[Sign]:
    """Yield where each rule matches."""
    yield from _phrases(normal.words)
    yield from _forms(normal.plain, rules().forms)
    if not normal.plain.isascii():
        yield from _forms(normal.plain, rules().unspaced)
    if normal.respelt != normal.words:
        yield from _phrases(normal.respelt)
        yield from _forms(normal.respelt, rules().forms)


def _phrases(words: str) -> Iterator[Sign]:
    phrases = rules().phrases
    at = 0
    before = ("", "")
    for word in words.split(" "):
        after = at + len(word) + 1
        for phrase in phrases.get(word, ()):
            if phrase.unless.isdisjoint(before) and phrase.rest.match(words, after):
                yield at, phrase.rule
        at = after
        before = (before[1], word)


def _forms(text: str, forms: Iterable[Form]) -> Iterator[Sign]:
    for rule, pattern in forms:
        for match in pattern.finditer(text):
            yield match.start(), rule


def _densest(signs: list[Sign]) -> tuple[int, tuple[str, ...]]:
    """Return the best score of any window, each rule counted once."""
    counts: dict[str, int] = {}
    names: tuple[str, ...] = ()
    best, score, first = 0, 0, 0
    for at, name in signs:
        if counts.get(name, 0) == 0:
            score += WEIGHTS[name]
        counts[name] = counts.get(name, 0) + 1
        while signs[first][0] < at - WINDOW:
            gone = signs[first][1]
            counts[gone] -= 1
            score -= WEIGHTS[gone] if counts[gone] == 0 else 0
            first += 1
        if score > best:
            best = score
            names = tuple(sorted(n for n, count in counts.items() if count))
    return best, names
