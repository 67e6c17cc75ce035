"""Text that is shown as it is, whoever wrote it."""

import json


def escaped(text: str) -> str:
    """
    Return a text with every invisible character escaped as in JSON.

    Control characters, line breaks and changes of direction among them.
    """
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() else json.dumps(ch)[1:-1] for ch in text)
