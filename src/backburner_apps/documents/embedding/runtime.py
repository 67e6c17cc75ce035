"""Runs the offline models: texts become vectors. It blocks: call it in a thread."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime
from tokenizers import Tokenizer

from backburner_apps.documents.embedding.folder import MODEL, TABLE, TOKENIZER

DIMENSION: Final = 384
THREADS: Final = 2
MAX_TOKENS: Final = 256
"""The model reads no more of a text."""
ERRORS_ONLY: Final = 3

Vectors = npt.NDArray[np.float32]


class Embedded(NamedTuple):
    """Vectors of length 1, and how many tokens were read."""

    vectors: Vectors
    tokens: int


class Model(Protocol):
    """Makes vectors of texts."""

    def embed(self, texts: Sequence[str]) -> Embedded:
        """Return a vector for each text."""


def load(folder: Path) -> Model:
    """Load the model of a folder."""
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    is_table = (folder / TABLE).exists()
    return Table(tokenizer, folder) if is_table else MiniLMModel(tokenizer, folder)


def session(model: Path) -> onnxruntime.InferenceSession:
    """Open an ONNX model with few threads, which sleep while they have no work."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.inter_op_num_threads = 1
    options.log_severity_level = ERRORS_ONLY
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(
        str(model), options, providers=["CPUExecutionProvider"]
    )


class MiniLMModel:
    """The int8 model."""

    def __init__(self, tokenizer: Tokenizer, folder: Path) -> None:
        # The file says 128 tokens, always: far less than the model can read.
        tokenizer.enable_truncation(MAX_TOKENS)
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._session = session(folder / MODEL)

    def embed(self, texts: Sequence[str]) -> Embedded:
        # One at a time: how the model rounds a text depends on all texts of a run, and
        # the padding of shorter ones takes time.
        vectors, tokens = np.zeros((len(texts), DIMENSION), np.float32), 0
        for at, text in enumerate(texts):
            ids = np.array([self._tokenizer.encode(text).ids], np.int64)
            given = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
            vectors[at] = self._session.run(["embedding"], given)[0][0]
            tokens += ids.size
        return Embedded(vectors, tokens)


class Table:
    """The static table: the vector of a text is the mean of those of its words."""

    def __init__(self, tokenizer: Tokenizer, folder: Path) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        with np.load(folder / TABLE) as stored:
            self._table, self._scales = stored["table"], stored["scales"][:, None]

    def embed(self, texts: Sequence[str]) -> Embedded:
        read = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        vectors = np.stack([self._vector(each.ids) for each in read])
        return Embedded(vectors, sum(len(each.ids) for each in read))

    def _vector(self, ids: Sequence[int]) -> Any:
        found = list(ids)
        total = (self._table[found] * self._scales[found]).sum(axis=0)
        return total / (np.linalg.norm(total) or 1.0)
