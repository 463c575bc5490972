# SPDX-License-Identifier: Apache-2.0
"""A BERT as an ONNX graph, made of the weights of a folder, with states of tokens or logits as its output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np


class _Graph:
    """Collects nodes and constants."""

    def __init__(self, weights: dict[str, Any]) -> None:
        from onnx import helper, numpy_helper

        self._helper, self._numpy = helper, numpy_helper
        self.weights = weights
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def constant(self, value: Any) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = self._numpy.from_array(np.asarray(value), name)
        return name

    def weight(self, name: str, *, transposed: bool = False) -> str:
        value = self.weights[name]
        key = f"{name}{'_t' * transposed}"
        self.constants[key] = self._numpy.from_array(np.ascontiguousarray(value.T if transposed else value), key)
        return key

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def linear(self, states: str, name: str) -> str:
        product = self.add("MatMul", states, self.weight(f"{name}.weight", transposed=True))
        return self.add("Add", product, self.weight(f"{name}.bias"))

    def norm(self, states: str, name: str, epsilon: float) -> str:
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.add("LayerNormalization", states, scale, bias, axis=-1, epsilon=epsilon)


def save_graph(folder: Path, *, classifies: bool = False) -> None:
    """Write model.onnx into a folder that has config.json and model.safetensors of a BERT."""
    import onnx
    from onnx import TensorProto, helper
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    weights = {name.removeprefix("bert."): value for name, value in load_file(folder / "model.safetensors").items()}
    graph, epsilon = _Graph(weights), float(config["layer_norm_eps"])
    states = _embedded(graph, epsilon)
    kept = graph.add("Cast", "attention_mask", to=TensorProto.FLOAT)
    hidden = graph.add("Mul", graph.add("Sub", graph.constant(np.float32(1)), kept), graph.constant(np.float32(-1e9)))
    bias = graph.add("Unsqueeze", hidden, graph.constant(np.array([1, 2])))
    for number in range(config["num_hidden_layers"]):
        states = _layer(graph, states, f"encoder.layer.{number}", bias, config["num_attention_heads"], epsilon)
    output = "last_hidden_state"
    if classifies:
        output = "logits"
        first = graph.add("Gather", states, graph.constant(np.int64(0)), axis=1)
        states = graph.linear(graph.add("Tanh", graph.linear(first, "pooler.dense")), "classifier")
    graph.nodes.append(helper.make_node("Identity", [states], [output]))
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, ["n", "w"]) for n in ("input_ids", "attention_mask")]
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
    made = helper.make_graph(graph.nodes, "bert", inputs, outputs, list(graph.constants.values()))
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(made, opset_imports=opsets, ir_version=9), str(folder / "model.onnx"))


def _embedded(graph: _Graph, epsilon: float) -> str:
    words = graph.add("Gather", graph.weight("embeddings.word_embeddings.weight"), "input_ids")
    width = graph.add("Gather", graph.add("Shape", "input_ids"), graph.constant(np.int64(1)))
    places = graph.add("Range", graph.constant(np.int64(0)), width, graph.constant(np.int64(1)))
    positions = graph.add("Gather", graph.weight("embeddings.position_embeddings.weight"), places)
    kind = graph.constant(graph.weights["embeddings.token_type_embeddings.weight"][0])
    return graph.norm(graph.add("Add", graph.add("Add", words, positions), kind), "embeddings.LayerNorm", epsilon)


def _layer(graph: _Graph, states: str, name: str, bias: str, heads: int, epsilon: float) -> str:
    width = len(graph.weights[f"{name}.attention.self.query.bias"])
    split = graph.constant(np.array([0, 0, heads, width // heads]))
    query, key, value = (
        graph.add("Reshape", graph.linear(states, f"{name}.attention.self.{part}"), split)
        for part in ("query", "key", "value")
    )
    query, value = (graph.add("Transpose", part, perm=[0, 2, 1, 3]) for part in (query, value))
    products = graph.add("MatMul", query, graph.add("Transpose", key, perm=[0, 2, 3, 1]))
    scaled = graph.add("Div", products, graph.constant(np.float32(np.sqrt(width // heads))))
    mixed = graph.add("MatMul", graph.add("Softmax", graph.add("Add", scaled, bias), axis=-1), value)
    joined = graph.add(
        "Reshape", graph.add("Transpose", mixed, perm=[0, 2, 1, 3]), graph.constant(np.array([0, 0, width]))
    )
    attended = graph.add("Add", graph.linear(joined, f"{name}.attention.output.dense"), states)
    states = graph.norm(attended, f"{name}.attention.output.LayerNorm", epsilon)
    inner = graph.add("Gelu", graph.linear(states, f"{name}.intermediate.dense"))
    return graph.norm(
        graph.add("Add", graph.linear(inner, f"{name}.output.dense"), states), f"{name}.output.LayerNorm", epsilon
    )
