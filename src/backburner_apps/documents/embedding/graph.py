"""
Writes MiniLM as an ONNX graph, from its weights: a BERT encoder of six layers.

It takes `input_ids` and `attention_mask`, whole numbers of the shape (texts, tokens),
and gives `embedding`: the mean of the tokens' vectors, of length 1. The table of words
has one scale per row, as one scale for all of it would cost quality.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS: Final = 6
HEADS: Final = 12
SIZE: Final = 384
EPSILON: Final = 1e-12
MASKED: Final = -1e4
OPSET: Final = 17
IR_VERSION: Final = 9
INPUTS: Final = ("input_ids", "attention_mask")

Array = npt.NDArray[Any]
Weights = Mapping[str, Array]


def build(weights: Weights, *, gives_tokens: bool = False) -> onnx.ModelProto:
    """Return the model; `gives_tokens` adds the vector of each token, as `tokens`."""
    graph = _Graph(weights)
    mask = graph.op("Cast", "attention_mask", to=TensorProto.FLOAT)
    tokens = graph.encode(graph.embed(), mask)
    wide = graph.op("Unsqueeze", mask, graph.ints(2))
    total = graph.op("ReduceSum", graph.op("Mul", tokens, wide), graph.ints(1))
    total = graph.op("Squeeze", total, graph.ints(1))
    count = graph.op("ReduceSum", mask, graph.ints(1), keepdims=1)
    graph.give("LpNormalization", graph.op("Div", total, count), "embedding")
    outputs = {"embedding": ["texts", SIZE]}
    if gives_tokens:
        graph.give("Identity", tokens, "tokens")
        outputs["tokens"] = ["texts", "tokens", SIZE]
    return graph.model(outputs)


class _Graph:
    """A graph that is being written: each operation returns the name of its output."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add an operation."""
        output = f"t{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def give(self, kind: str, value: str, name: str) -> None:
        """Add an operation whose output is the graph's own."""
        axis: dict[str, Any] = {} if kind == "Identity" else {"axis": -1, "p": 2}
        self._nodes.append(helper.make_node(kind, [value], [name], **axis))

    def constant(self, name: str, value: Array) -> str:
        """Add a constant, once for its name."""
        if name not in self._constants:
            tensor = numpy_helper.from_array(np.ascontiguousarray(value), name)
            self._constants[name] = tensor
        return name

    def ints(self, *values: int) -> str:
        """Add whole numbers, such as axes and shapes."""
        name = "i" + "_".join(map(str, values))
        return self.constant(name, np.array(values, np.int64))

    def number(self, value: float) -> str:
        """Add a number."""
        return self.constant(f"f{value!r}", np.array(value, np.float32))

    def linear(self, value: str, key: str) -> str:
        """Multiply by a matrix of the weights and add its bias."""
        matrix = self._weights[f"{key}.weight"].T.astype(np.float32)
        bias = self._weights[f"{key}.bias"].astype(np.float32)
        product = self.op("MatMul", value, self.constant(f"{key}.matrix", matrix))
        return self.op("Add", product, self.constant(f"{key}.bias", bias))

    def norm(self, value: str, key: str) -> str:
        """Normalise by the weights of a layer."""
        scale = self.constant(f"{key}.scale", self._weights[f"{key}.weight"])
        shift = self.constant(f"{key}.shift", self._weights[f"{key}.bias"])
        how = {"axis": -1, "epsilon": EPSILON}
        return self.op("LayerNormalization", value, scale, shift, **how)

    def embed(self) -> str:
        """Look up words and positions."""
        words = self._weights["embeddings.word_embeddings.weight"]
        scales = np.abs(words).max(axis=1, keepdims=True) / 127
        scales[scales == 0] = 1
        table = self.constant("words", np.round(words / scales).astype(np.int8))
        scale = self.constant("word_scales", scales.astype(np.float32))
        row = self.op("Gather", table, "input_ids", axis=0)
        row = self.op("Cast", row, to=TensorProto.FLOAT)
        row = self.op("Mul", row, self.op("Gather", scale, "input_ids", axis=0))
        key = "embeddings.position_embeddings.weight"
        positions = self.constant("positions", self._weights[key])
        length = self.op("Gather", self.op("Shape", "input_ids"), self.ints(1), axis=0)
        used = self.op("Slice", positions, self.ints(0), length, self.ints(0))
        kind = self._weights["embeddings.token_type_embeddings.weight"][0]
        placed = self.op("Add", row, used)
        summed = self.op("Add", placed, self.constant("text", kind))
        return self.norm(summed, "embeddings.LayerNorm")

    def encode(self, value: str, mask: str) -> str:
        """Run the layers."""
        hidden = self.op(
            "Sub", self.number(1.0), self.op("Unsqueeze", mask, self.ints(1, 2))
        )
        bias = self.op("Mul", hidden, self.number(MASKED))
        for layer in range(LAYERS):
            key = f"encoder.layer.{layer}"
            seen = self._attend(value, bias, f"{key}.attention")
            value = self.norm(
                self.op("Add", seen, value), f"{key}.attention.output.LayerNorm"
            )
            inner = self._gelu(self.linear(value, f"{key}.intermediate.dense"))
            outer = self.linear(inner, f"{key}.output.dense")
            value = self.norm(self.op("Add", outer, value), f"{key}.output.LayerNorm")
        return value

    def _attend(self, value: str, bias: str, key: str) -> str:
        """Add the attention of each token to the others of its text."""
        shape = self.ints(0, 0, HEADS, SIZE // HEADS)

        def heads(name: str, *order: int) -> str:
            rows = self.linear(value, f"{key}.self.{name}")
            split = self.op("Reshape", rows, shape)
            return self.op("Transpose", split, perm=[0, *order])

        query, keys = heads("query", 2, 1, 3), heads("key", 2, 3, 1)
        scores = self.op("MatMul", query, keys)
        scaled = self.op("Mul", scores, self.number((SIZE / HEADS) ** -0.5))
        shares = self.op("Softmax", self.op("Add", scaled, bias), axis=-1)
        seen = self.op("MatMul", shares, heads("value", 2, 1, 3))
        joined = self.op("Transpose", seen, perm=[0, 2, 1, 3])
        flat = self.op("Reshape", joined, self.ints(0, 0, SIZE))
        return self.linear(flat, f"{key}.output.dense")

    def _gelu(self, value: str) -> str:
        bent = self.op("Erf", self.op("Mul", value, self.number(0.5**0.5)))
        half = self.op("Mul", value, self.number(0.5))
        return self.op("Mul", half, self.op("Add", bent, self.number(1.0)))

    def model(self, outputs: Mapping[str, list[Any]]) -> onnx.ModelProto:
        """Return the graph after checking it."""
        info = helper.make_tensor_value_info
        takes = [info(name, TensorProto.INT64, ["texts", "tokens"]) for name in INPUTS]
        gives = [
            info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()
        ]
        constants = [*self._constants.values()]
        graph = helper.make_graph(self._nodes, "minilm", takes, gives, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model)
        return model
