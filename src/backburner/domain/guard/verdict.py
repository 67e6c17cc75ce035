"""Scores how much a text looks like instructions to the model that will read it."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from backburner.domain.guard.normal import Normal, normalise, payloads
from backburner.domain.guard.rules import WEIGHTS, Form, rules

FLAGGED_FROM: Final = 3
BLOCKED_FROM: Final = 4
MOST_READ: Final = 200_000
"""How many characters of an input are read; a longer one is always blocked."""
WINDOW: Final = 4_000
"""Matches add up within this many characters, so that long texts do not add up."""

TAGS: Final = "encoded.tags"
BASE64: Final = "encoded.base64"
UNREAD: Final = "limit.unread"

Sign = tuple[int, str]
"""The position of a match, and the rule that matched."""


class Policy(StrEnum):
    """What to do with a text that looks like an injection."""

    OFF = "off"
    FLAG = "flag"
    BLOCK = "block"


class Verdict(NamedTuple):
    """The result of the guard for a text."""

    score: int
    rules: tuple[str, ...]
    """The names of the rules that made up the score."""
    normalised: bool
    """Whether a disguise was removed before the rules matched."""

    @property
    def is_flagged(self) -> bool:
        """Whether the text is suspicious enough to be reviewed."""
        return self.score >= FLAGGED_FROM

    @property
    def is_blocked(self) -> bool:
        """Whether the text must not reach a model."""
        return self.score >= BLOCKED_FROM


def judge(text: str) -> Verdict:
    """Score a text, in time proportional to its length."""
    verdict = _judged(text[:MOST_READ])
    if len(text) <= MOST_READ:
        return verdict
    return verdict._replace(
        score=verdict.score + WEIGHTS[UNREAD], rules=(*verdict.rules, UNREAD)
    )


def judge_all(texts: Iterable[str]) -> Verdict:
    """Score texts together that one model will read together."""
    return judge("\n".join(texts))


def _judged(text: str) -> Verdict:
    normal = normalise(text)
    signs = list(_signs(normal))
    if normal.has_tags:
        signs.append((0, TAGS))
    for payload in payloads(text):
        hidden = list(_signs(normalise(payload)))
        if hidden:
            signs += [(0, BASE64), *((0, name) for _, name in hidden)]
    score, names = _densest(sorted(signs))
    has_payload = BASE64 in names
    return Verdict(score, names, normalised=normal.is_disguised or has_payload)


def _signs(normal: Normal) -> Iterator[Sign]:
    """Yield the matches of all rules."""
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
    """Return the highest score of any window, counting each rule once."""
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
