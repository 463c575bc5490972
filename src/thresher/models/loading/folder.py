# SPDX-License-Identifier: Apache-2.0
"""The files of a model folder: configuration, weights, tokenizer. Weights that are pickles are refused."""

from __future__ import annotations

import functools
import os
from typing import Any

import msgspec

from thresher.errors import InputError

GRAPHS = ("model.onnx", os.path.join("onnx", "model.onnx"))
"""Where the graph of an ONNX model is."""
_SAFE = ("model.safetensors", "model.safetensors.index.json", "adapter_model.safetensors")
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "adapter_model.bin", "model.pt", "pytorch_model.pt")
_MOST_TOKENS = 2**17
"""A larger `model_max_length` in the configuration of a tokenizer stands for no limit."""


class ModelFolder:
    """A local folder with a model in the layout of the Hugging Face Hub."""

    def __init__(self, path: str, caller: str, *, allow_pickle: bool = False) -> None:
        """`caller` is the stage and parameter in error messages."""
        self.path = path
        self.caller = caller
        self.allow_pickle = allow_pickle

    def file(self, name: str) -> str | None:
        """Return the path of a file if it is there."""
        path = os.path.join(self.path, name)
        return path if os.path.isfile(path) else None

    def json(self, name: str) -> dict[str, Any]:
        """Return the content of a JSON file; empty if it is not there."""
        path = self.file(name)
        if path is None:
            return {}
        try:
            with open(path, "rb") as file:
                found = msgspec.json.decode(file.read())
        except msgspec.DecodeError as error:
            raise InputError(f"{self.caller}: {path} is not JSON: {error}; fetch the model again") from error
        return found if isinstance(found, dict) else {}

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """Return `config.json`."""
        return self.json("config.json")

    @property
    def graph(self) -> str | None:
        """Return the path of the ONNX graph if there is one."""
        return next((path for name in GRAPHS if (path := self.file(name)) is not None), None)

    @property
    def labels(self) -> list[str]:
        """Return the labels of `config.json` in the order of the outputs; empty if it has none."""
        named = self.config.get("id2label")
        if not isinstance(named, dict):
            return []
        return [str(named[key]) for key in sorted(named, key=int)]

    @property
    def max_length(self) -> int | None:
        """Return how many tokens the model takes; `None` if its files do not say so."""
        sentence = self.json("sentence_bert_config.json").get("max_seq_length")
        if isinstance(sentence, int):
            return sentence
        limits = [self.json("tokenizer_config.json").get("model_max_length"), self._positions()]
        known = [int(limit) for limit in limits if isinstance(limit, int | float) and 0 < limit <= _MOST_TOKENS]
        return min(known, default=None)

    def limited(self, max_length: int | None) -> int | None:
        """Return how many tokens of a text are used where `max_length` are wanted: never more than there are positions.
        A model with relative positions takes any number."""
        if max_length is None:
            return self.max_length
        positions = None if self.config.get("position_biased_input") is False else self._positions()
        return max_length if positions is None else min(max_length, positions)

    def _positions(self) -> int | None:
        positions = self.config.get("max_position_embeddings")
        if not isinstance(positions, int):
            return None
        # RoBERTa and its kin count positions from the padding token on.
        is_roberta = "roberta" in str(self.config.get("model_type"))
        return positions - 2 if is_roberta else positions

    def weights(self) -> str:
        """Return the path of the safetensors weights, or of pickled ones where they are allowed."""
        for name in _SAFE:
            if (path := self.file(name)) is not None:
                return path
        pickled = next((path for name in _PICKLED if (path := self.file(name)) is not None), None)
        if pickled is None:
            raise InputError(
                f"{self.caller}: {self.path} has no weights; {', '.join(_SAFE[:2])} or {GRAPHS[0]} is needed"
            )
        if not self.allow_pickle:
            raise InputError(
                f"{self.caller}: {pickled} is a pickle, a format that can run code. Convert it to safetensors, or set "
                "allow_pickle=True if you trust where it comes from"
            )
        return pickled

    def has_weights(self) -> bool:
        """Return True if there are weights for torch, of any kind."""
        return any(self.file(name) is not None for name in (*_SAFE, *_PICKLED))

    def weight_names(self) -> list[str]:
        """Return the names of the tensors, without reading them; of a pickle, whose names are unknown, none."""
        path = self.weights()
        if path.endswith(".index.json"):
            return list(self.json(os.path.basename(path)).get("weight_map", {}))
        if not path.endswith(".safetensors"):
            return []
        with open(path, "rb") as file:
            header = msgspec.json.decode(file.read(int.from_bytes(file.read(8), "little")))
        return [name for name in header if name != "__metadata__"]

    def problems(self) -> list[str]:
        """Return what is certain to fail when the model is loaded."""
        if self.graph is not None:
            return []
        try:
            self.weights()
        except InputError as error:
            return [str(error)]
        return []
