"""
Read the text of documents, without the engine: also for a Lambda function.

`extract` reads a file in a child process with limits on memory and time;
`extract_here` reads it in this process. Both raise `ExtractionError`.
"""

from backburner_extractors.detection import detect_type
from backburner_extractors.errors import ExtractionError
from backburner_extractors.here import extract_here
from backburner_extractors.limits import Limits
from backburner_extractors.model import Extracted, ImageRef, Page
from backburner_extractors.process import extract, extract_apart

__all__ = [
    "Extracted",
    "ExtractionError",
    "ImageRef",
    "Limits",
    "Page",
    "detect_type",
    "extract",
    "extract_apart",
    "extract_here",
]
