"""
Converts MiniLM's weights to the offline models, once: see `prepare.py`.

`minilm` is the whole model with weights of 8 bits. `minilm-light` is a table with one
vector for each word of its vocabulary, which is much faster and less accurate.
"""

import logging
import shutil
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from backburner_apps.documents.embedding.folder import MODEL, TABLE, TOKENIZER
from backburner_apps.documents.embedding.graph import build
from backburner_apps.documents.embedding.runtime import session

WEIGHTS: Final = "model.safetensors"
LICENCES: Final = ("LICENSE", "NOTICE")
DIMENSION: Final = 256
"""The dimension of the table's vectors."""
FREQUENT: Final = 1e-4
"""A word that is more frequent than this counts less than half."""
BATCH: Final = 512
BEGIN, END = 101, 102

Array = npt.NDArray[Any]


def convert_model(source: Path, target: Path) -> None:
    """Write the int8 model made from a folder of weights."""
    whole = target / "whole.onnx"
    onnx.save(build(load_file(source / WEIGHTS)), whole)
    # It warns that the graph was not optimised first; this one has nothing to optimise.
    logging.disable(logging.WARNING)
    # 7 bits of each byte: processors without VNNI would exceed their range with 8.
    quantize_dynamic(
        whole,
        target / MODEL,
        weight_type=QuantType.QInt8,
        per_channel=True,
        reduce_range=True,
        op_types_to_quantize=["MatMul"],
    )
    logging.disable(logging.NOTSET)
    whole.unlink()
    _copy_rest(source, target)


def distil_table(source: Path, target: Path) -> None:
    """Write the table made from a folder of weights."""
    whole = target / "whole.onnx"
    onnx.save(build(load_file(source / WEIGHTS), gives_tokens=True), whole)
    tokenizer = Tokenizer.from_file(str(source / TOKENIZER))
    size = tokenizer.get_vocab_size()
    names = [str(tokenizer.id_to_token(number)) for number in range(size)]
    weights = _weights(names)
    rows = _principal(_token_vectors(whole, size), weights > 0) * weights[:, None]
    scales = np.abs(rows).max(axis=1, keepdims=True) / 127
    scales[scales == 0] = 1
    table = np.round(rows / scales).astype(np.int8)
    np.savez(target / TABLE, table=table, scales=scales[:, 0].astype(np.float32))
    whole.unlink()
    _copy_rest(source, target)


def _copy_rest(source: Path, target: Path) -> None:
    for name in (TOKENIZER, *LICENCES):
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)


def _token_vectors(model: Path, size: int) -> Array:
    """Return the vector that the model gives each word that stands alone."""
    run = session(model)
    ids = np.stack([np.full(size, BEGIN), np.arange(size), np.full(size, END)], axis=1)
    parts = []
    for start in range(0, size, BATCH):
        some = ids[start : start + BATCH]
        given = {"input_ids": some, "attention_mask": np.ones_like(some)}
        # The vector of the word itself: it finds better than the mean of all tokens.
        parts.append(run.run(["tokens"], given)[0][:, 1])
    return np.concatenate(parts).astype(np.float32)


def _principal(rows: Array, is_word: Array) -> Array:
    """Rotate vectors so that the first numbers vary most, and keep only those."""
    centred: Array = rows - rows[is_word].mean(axis=0)
    _, axes = np.linalg.eigh(centred[is_word].T @ centred[is_word])
    turned: Array = centred @ axes[:, ::-1][:, :DIMENSION]
    return turned


def _weights(names: list[str]) -> Array:
    """Return the weight of each word; the vocabulary is ordered by frequency."""
    is_word = np.array(
        [not (name.startswith("[") and name.endswith("]")) for name in names]
    )
    is_word |= np.array([len(name) == 1 for name in names])
    rank = np.cumsum(is_word) - 1
    share = 1 / (rank + 2.0)
    share /= share[is_word].sum()
    weights: Array = np.where(is_word, FREQUENT / (FREQUENT + share), 0)
    return weights.astype(np.float32)
