"""
DOCX: paragraphs, tables, text boxes and notes; not headers and footers.

A DOCX file has no pages until it is laid out. Where the program that wrote it recorded
page breaks, the text is split there; otherwise it is one section.
"""

from pathlib import Path
from typing import Any, Final

from docx.opc.constants import RELATIONSHIP_TYPE
from docx.opc.package import OpcPackage
from docx.opc.part import Part, XmlPart
from docx.oxml.ns import qn
from docx.oxml.parser import parse_xml
from lxml import etree

from backburner_extractors.collector import Collector
from backburner_extractors.model import Kind

COMPATIBILITY: Final = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
SKIPPED: Final = frozenset(
    {
        *map(qn, ("w:pPr", "w:rPr", "w:tblPr", "w:trPr", "w:tcPr", "w:sectPr")),
        *map(qn, ("w:moveFrom", "w:tblGrid")),
        COMPATIBILITY + "Fallback",  # repeats what a newer element says
    }
)
MARKS: Final = {qn("w:tab"): "\t", qn("w:cr"): "\n", qn("w:noBreakHyphen"): "-"}
IMAGES: Final = frozenset({qn("a:blip"), "{urn:schemas-microsoft-com:vml}imagedata"})
NOTES: Final = (RELATIONSHIP_TYPE.FOOTNOTES, RELATIONSHIP_TYPE.ENDNOTES)
TEXT, PARAGRAPH, CELL, ROW, BREAK, RENDERED_BREAK = map(
    qn, ("w:t", "w:p", "w:tc", "w:tr", "w:br", "w:lastRenderedPageBreak")
)


def read(path: Path, collector: Collector) -> None:
    """Collect the text of a DOCX file, its recorded pages and its images."""
    main = OpcPackage.open(str(path)).main_document_part
    walk = Walk(collector)
    walk.read(_element(main))
    for relation in main.rels.values():
        if relation.reltype in NOTES and not relation.is_external:
            walk.read(_element(relation.target_part))
    walk.finish()


def _element(part: Part) -> Any:
    """Return the XML of a part; a macro-enabled document has only bytes."""
    return part.element if isinstance(part, XmlPart) else parse_xml(part.blob)


class Walk:
    """Visits the elements of a document once, in order."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.pages: list[str] = []
        self.parts: list[str] = []
        self.cells = 0

    def read(self, root: Any) -> None:
        """Add the text below an element."""
        events = etree.iterwalk(root, events=("start", "end"))
        for event, element in events:
            if event == "end":
                self._end(element.tag)
            elif element.tag in SKIPPED:
                events.skip_subtree()
            else:
                self._start(element)

    def _start(self, element: Any) -> None:
        tag = element.tag
        if tag == TEXT:
            self.parts.append(element.text or "")
        elif tag in MARKS:
            self.parts.append(MARKS[tag])
        elif tag == BREAK:
            self._break(element)
        elif tag == RENDERED_BREAK and self._has_text():
            self._end_page()
        elif tag == CELL:
            self.cells += 1
        elif tag in IMAGES:
            self.collector.add_image(len(self.pages) + 1)

    def _end(self, tag: str) -> None:
        if tag == PARAGRAPH:
            self.parts.append(" " if self.cells else "\n")
        elif tag == CELL:
            self.cells -= 1
            self.parts.append("\t")
        elif tag == ROW:
            self.parts.append("\n")

    def _break(self, element: Any) -> None:
        if element.get(qn("w:type")) == "page":
            self._end_page()
        else:
            self.parts.append("\n")

    def _has_text(self) -> bool:
        return any(part and not part.isspace() for part in reversed(self.parts))

    def _end_page(self) -> None:
        self.pages.append("".join(self.parts).replace(" \t", "\t"))
        self.parts.clear()

    def finish(self) -> None:
        """Pass the pages to the collector."""
        self._end_page()
        kind: Kind = "page" if len(self.pages) > 1 else "section"
        for text in self.pages:
            self.collector.add_page(text, kind)
