# SPDX-License-Identifier: Apache-2.0
"""Makes the files beside it: a toy classifier that counts words of three topics, as an ONNX graph with a tokenizer.

It shows the files that a model folder has, and needs no download. To run it: `pip install onnx tokenizers`.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import tokenizers
from onnx import TensorProto, helper, numpy_helper

FOLDER = Path(__file__).resolve().parent
TOPICS = {
    "computing": "computer software program code data file server network memory algorithm page web internet",
    "nature": "sea river tree forest animal bird water mountain wind rain sun stone island",
    "people": "man woman father mother king queen friend child wife brother heart love war",
}
OTHER = "other"


def main() -> None:
    """Write tokenizer.json, config.json and model.onnx."""
    labels = [*TOPICS, OTHER]
    words = [(word, label) for label, text in TOPICS.items() for word in text.split()]
    vocabulary = {"[PAD]": 0, "[UNK]": 1} | {word: place for place, (word, _) in enumerate(words, start=2)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(FOLDER / "tokenizer.json"))
    names = {str(place): label for place, label in enumerate(labels)}
    (FOLDER / "config.json").write_text(json.dumps({"id2label": names, "vocab_size": len(vocabulary)}) + "\n")

    weights = np.zeros((len(vocabulary), len(labels)), dtype=np.float32)
    for word, label in words:
        weights[vocabulary[word], labels.index(label)] = 1.0
    bias = np.array([0, 0, 0, 0.5], dtype=np.float32)
    constants = [
        numpy_helper.from_array(weights, "weights"),
        numpy_helper.from_array(bias, "bias"),
        numpy_helper.from_array(np.array([1]), "words"),
        numpy_helper.from_array(np.array([2]), "last"),
    ]
    nodes = [
        helper.make_node("Gather", ["weights", "input_ids"], ["votes"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["kept"]),
        helper.make_node("Mul", ["votes", "kept"], ["counted"]),
        helper.make_node("ReduceSum", ["counted", "words"], ["sums"], keepdims=0),
        helper.make_node("Add", ["sums", "bias"], ["logits"]),
    ]
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, ["n", "w"]) for n in ("input_ids", "attention_mask")]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", len(labels)])]
    graph = helper.make_graph(nodes, "topics", inputs, outputs, constants)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), FOLDER / "model.onnx"
    )


if __name__ == "__main__":
    main()
