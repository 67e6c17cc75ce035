"""
Rules that recognise instructions injected into an input, with their weights.

Most rules match words, which `normal.py` has converted to lower case, without marks and
punctuation. Phrases are indexed by their possible first words, so that only relevant
ones are tried. All repeats are bounded, so that no text makes matching slow. A rule
counts once, however often it matches; only rules of weight 4 block on their own.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import Final, NamedTuple

from backburner.domain.guard.english import ENGLISH
from backburner.domain.guard.foreign import FOREIGN, UNSPACED
from backburner.domain.guard.wording import Shape, Wording


class Phrase(NamedTuple):
    """The rest of a phrase after its first word."""

    rule: str
    rest: re.Pattern[str]
    unless: frozenset[str]
    """The phrase does not match if one of these is among the two words before it."""


class Form(NamedTuple):
    """A pattern that is matched with punctuation, or within words."""

    rule: str
    pattern: re.Pattern[str]


WEIGHTS: Final[dict[str, int]] = {
    "override.previous": 4,
    "override.all": 3,
    "override.remove": 2,
    "override.joined": 3,
    "override.german": 4,
    "override.romance": 4,
    "override.slavic": 4,
    "override.chinese": 4,
    "persona.known": 4,
    "persona.now": 2,
    "persona.pretend": 2,
    "persona.act": 1,
    "persona.unbound": 3,
    "persona.amoral": 3,
    "persona.model": 2,
    "persona.jailbreak": 2,
    "persona.fiction": 1,
    "extract.prompt": 3,
    "extract.above": 3,
    "extract.foreign": 3,
    "template.token": 4,
    "template.heading": 2,
    "refusal.never": 2,
    "refusal.warnings": 2,
    "dual.answers": 3,
    "coerce.tokens": 3,
    "smuggle.task": 2,
    "smuggle.german": 2,
    "smuggle.first": 2,
    "smuggle.command": 2,
    "encoded.follow": 3,
    "encoded.tags": 2,
    "encoded.base64": 2,
    "limit.unread": 4,
}


_SHAPES: Final = (
    Shape(
        "template.token",
        r"<\|(?:im_start|im_end|im_sep|system|user|assistant|endoftext|endofprompt|"
        r"start_header_id|end_header_id|eot_id|begin_of_text|end|turn)\|>",
    ),
    Shape("template.token", r"\[/?inst\]"),
    Shape("template.token", r"<</?sys>>"),
    Shape("template.token", r"<(?:start|end)_of_turn>"),
    Shape(
        "template.heading",
        r"#{2,4} ?(?:system|instructions?|human|user|assistant|response)"
        r"(?: ?message| ?prompt)? ?:",
    ),
    Shape(
        "template.heading", r"\[(?:system|admin|developer|override)(?: \w{1,12}){0,2}\]"
    ),
    Shape(
        "template.heading",
        r"</?(?:system|sys|system_prompt|instructions?|user_input|untrusted|admin)>",
    ),
    Shape("template.heading", r"={4} ?(?:end|begin|start|new)\b"),
    Shape(
        "template.heading",
        r"-{4} ?(?:end of|begin|start of) (?:input|prompt|text|context|document|data)",
    ),
    Shape(
        "override.joined",
        r"(?:ignore|disregard|forget)(?:all|any|the|your|every)?(?:of)?(?:the|your)?"
        r"(?:previous|prior|above|earlier|instruction|rules|directive)",
    ),
    Shape("override.joined", r"systemprompt|doanythingnow|revealyour"),
)


def _by_first(wordings: Iterable[Wording]) -> dict[str, tuple[Phrase, ...]]:
    phrases: dict[str, tuple[Phrase, ...]] = {}
    for rule, firsts, rest, unless in wordings:
        words = frozenset(unless.split())
        phrase = Phrase(rule, re.compile(f"(?:{rest})"), words)
        for first in firsts.split():
            phrases[first] = (*phrases.get(first, ()), phrase)
    return phrases


def _compiled(shapes: Iterable[Shape]) -> tuple[Form, ...]:
    return tuple(Form(shape.rule, re.compile(shape.pattern)) for shape in shapes)


class Rules(NamedTuple):
    """All compiled rules."""

    phrases: dict[str, tuple[Phrase, ...]]
    """Phrases by their possible first words."""
    forms: tuple[Form, ...]
    unspaced: tuple[Form, ...]


@cache
def rules() -> Rules:
    """Compile the rules on first use: it takes a while."""
    return Rules(
        phrases=_by_first((*ENGLISH, *FOREIGN)),
        forms=_compiled(_SHAPES),
        unspaced=_compiled(UNSPACED),
    )
