"""PPTX: a page for each slide, with its tables and notes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pptx import Presentation
from pptx.oxml.ns import qn

from backburner_extractors.collector import Collector

PICTURE: Final = qn("p:pic")


def read(path: Path, collector: Collector) -> None:
    """Collect the text of each slide, and its pictures."""
    slides = Presentation(str(path)).slides
    collector.expect_pages(len(slides))
    for number, slide in enumerate(slides, start=1):
        texts = [text for shape in _shapes(slide.shapes) for text in _texts(shape)]
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame:
            texts.append(slide.notes_slide.notes_text_frame.text)
        for shape in _shapes(slide.shapes):
            if shape.element.tag == PICTURE:
                collector.add_image(number)
        collector.add_page("\n".join(texts), "slide")


def _shapes(shapes: Any) -> Iterator[Any]:
    """Yield all shapes in order, including those in groups."""
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _shapes(shape.shapes)
        else:
            yield shape


def _texts(shape: Any) -> Iterator[str]:
    if shape.has_text_frame:
        yield shape.text_frame.text.replace("\v", "\n")
    elif shape.has_table:
        for row in shape.table.rows:
            yield "\t".join(" ".join(cell.text.split()) for cell in row.cells)
