"""
Answers from numbered sources without a model, for the mock.

A prompt with `<source n="1">…</source>` and `<question>…</question>` is answered with
the sentences that share the most words with the question, each with its `[n]`.
"""

import re
from typing import Final, NamedTuple

UNSUPPORTED: Final = "UNSUPPORTED"
"""The answer if no sentence shares enough words with the question."""
MOST_SENTENCES: Final = 2
LONGEST_SENTENCE: Final = 400
SHORTEST: Final = 3
"""The minimum number of words of a sentence; shorter ones count as headings."""
LEAST_SHARE: Final = 1 / 3
"""The share of the question's words that a sentence must contain."""
STEM: Final = 4
"""Words with the same first letters, this many, count as the same word."""

_SOURCE = re.compile(r'<source n="(\d+)"[^>]*>\s*(.*?)\s*</source>', re.DOTALL)
_QUESTION = re.compile(r"<question>\s*(.*?)\s*</question>", re.DOTALL)
_SENTENCE = re.compile(r"[^.!?\u3002\uff01\uff1f\n]+[.!?\u3002\uff01\uff1f]*")
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{1,2}|\w+")
_COMMON: Final = frozenset(
    _WORD.findall(
        "a about an and are as at be by can did do does for from had has have how i in "
        "is it its much many me my no not of on or our say says should that the their "
        "there they this to was we were what when where which who whom whose why will "
        "with you your"
    )
)


class _Sentence(NamedTuple):
    shared: int
    source: int
    text: str


def quoted(prompt: str) -> str | None:
    """Return an answer made of quotations; `None` if the prompt has no sources."""
    sources, questions = _SOURCE.findall(prompt), _QUESTION.findall(prompt)
    if not sources or not questions:
        return None
    wanted = _stems(questions[-1])
    found = [
        _Sentence(len(wanted & _stems(text)), int(number), text.strip())
        for number, content in sources
        for text in _SENTENCE.findall(content)
        if len(_WORD.findall(text)) >= SHORTEST
    ]
    enough = max(1.0, len(wanted) * LEAST_SHARE)
    good = [sentence for sentence in found if sentence.shared >= enough]
    best = sorted(good, key=lambda sentence: -sentence.shared)[:MOST_SENTENCES]
    return " ".join(map(_cited, best)) or UNSUPPORTED


def _stems(text: str) -> set[str]:
    words = _WORD.findall(text.lower())
    return {word[:STEM] for word in words if word not in _COMMON}


def _cited(sentence: _Sentence) -> str:
    return f"{sentence.text[:LONGEST_SENTENCE]} [{sentence.source}]"
