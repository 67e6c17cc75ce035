"""HTML: the visible text as one section, with a line for each block element."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

from backburner_extractors.collector import Collector
from backburner_extractors.readers.decoding import decode, read_bytes

UNSEEN: Final = ["script", "style", "noscript", "template", "iframe", "svg", "head"]
BLOCKS: Final = frozenset(
    {
        *("address", "article", "aside", "blockquote", "caption", "details", "div"),
        *("dl", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2"),
        *("h3", "h4", "h5", "h6", "header", "hr", "main", "nav", "ol", "p", "pre"),
        *("section", "summary", "table", "ul"),
    }
)
LINES: Final = frozenset({"br", "dd", "dt", "li", "option", "tr"})
CELLS: Final = frozenset({"td", "th"})
SPACES: Final = re.compile(r"[ \t\n\r\f\v]+")
AROUND_LINES: Final = re.compile(r" *\n[ \t]*")
AROUND_CELLS: Final = re.compile(r" *\t *")
DECLARED_WITHIN: Final = 4_096
CHARSET: Final = re.compile(
    rb"""<meta[^>]{0,200}charset\s*=\s*["']?([\w-]{1,40})""", re.IGNORECASE
)


def read(path: Path, collector: Collector) -> None:
    """Collect the visible text of an HTML file and its images."""
    tree = LexborHTMLParser(_decoded(read_bytes(path, collector)))
    title = tree.css_first("title")
    name = title.text() if title else ""
    for _ in tree.css("img"):
        collector.add_image(1)
    tree.strip_tags(UNSEEN)
    text = "".join(_texts(tree.root)) if tree.root else ""
    text = AROUND_CELLS.sub("\t", AROUND_LINES.sub("\n", text))
    collector.add_page(text, "section", name)


def _decoded(content: bytes) -> str:
    declared = CHARSET.search(content, 0, DECLARED_WITHIN)
    return decode(content, declared[1].decode() if declared else "utf-8")


def _texts(root: LexborNode) -> Iterator[str]:
    """Yield the texts in order, without recursion because nesting has no limit."""
    rest: list[LexborNode | str] = [root]
    while rest:
        node = rest.pop()
        if isinstance(node, str):
            yield node
        elif node.is_text_node:
            yield SPACES.sub(" ", node.text_content or "")
        else:
            yield _before(node.tag)
            if node.tag in BLOCKS:
                rest.append("\n")
            rest.extend(reversed(list(node.iter(include_text=True))))


def _before(tag: str | None) -> str:
    if tag in BLOCKS or tag in LINES:
        return "\n"
    return "\t" if tag in CELLS else ""
