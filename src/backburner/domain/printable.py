"""Removes what could control a terminal from text."""


def on_one_line(text: str) -> str:
    """Return a text with each control character and line break as a space."""
    return "".join(ch if ch.isprintable() else " " for ch in text)


def on_lines(text: str) -> str:
    """Return a text with each control character as a space, except lines and tabs."""
    return "".join(ch if ch in "\n\t" or ch.isprintable() else " " for ch in text)
