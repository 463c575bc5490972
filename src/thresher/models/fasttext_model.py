# SPDX-License-Identifier: Apache-2.0
"""Supervised fastText models: labels of a text and their probabilities."""

from __future__ import annotations

import importlib.util
import os
import re
import struct
from typing import Any

from thresher.errors import InputError, MissingPackageError
from thresher.models.surrogates import without_surrogates

LABEL = "__label__"
"""Prefix of the names of labels in fastText."""


def check_package(rule: str) -> None:
    """Raise an error before any work if the package that a rule needs is not installed."""
    if importlib.util.find_spec("fasttext") is None:
        raise MissingPackageError(f"{rule} needs the package fasttext: pip install 'thresher[fasttext]'")


def check_model_file(rule: str, path: str) -> None:
    """Raise an error if a path is not a file."""
    if not os.path.isfile(path):
        raise InputError(f"{rule}.model_path: there is no file {path!r}; give a fastText model (.bin or .ftz)")


_MAGIC = struct.pack("<2i", 793712314, 12)
"""The first bytes of a model: magic number and format version."""
_ARGUMENTS = struct.calcsize("<12id")
_SIZES = struct.Struct("<3i2q")
"""Header after the arguments: numbers of entries, words and labels, of tokens seen, and of words left after pruning."""
_LABEL_ENTRY = re.compile(rb"(?s)(__label__[^\0]*)\0.{8}\x01")
"""An entry of the dictionary that is a label: its name, how often it was seen, its kind."""
_PIECE_BYTES = 2**20


def labels_in(rule: str, path: str) -> list[str]:
    """Return the labels of a model file, read from its dictionary, which takes milliseconds instead of the seconds of
    loading."""
    check_model_file(rule, path)
    with open(path, "rb") as file:
        head = file.read(len(_MAGIC) + _ARGUMENTS + _SIZES.size)
        if not head.startswith(_MAGIC) or len(head) < len(_MAGIC) + _ARGUMENTS + _SIZES.size:
            raise InputError(
                f"{rule}.model_path: {path!r} is not a fastText model; give a supervised one (.bin or .ftz)"
            )
        wanted = _SIZES.unpack_from(head, len(_MAGIC) + _ARGUMENTS)[2]
        found: list[str] = []
        rest = b""
        while len(found) < wanted and (piece := file.read(_PIECE_BYTES)):
            rest += piece
            end = 0
            for entry in _LABEL_ENTRY.finditer(rest):
                found.append(entry[1].decode("utf-8", "replace"))
                end = entry.end()
            rest = rest[max(end, len(rest) - _PIECE_BYTES) :]  # an entry may lie across two pieces
    return found[:wanted]


def codes_of(labels: list[str]) -> list[str]:
    """Return the labels without their prefix: for a model of languages, the codes that it knows."""
    return [label.removeprefix(LABEL) for label in labels]


class FastTextModel:
    """A loaded model."""

    def __init__(self, rule: str, path: str) -> None:
        """Load the model; `rule` is the name of the rule in error messages."""
        check_package(rule)
        check_model_file(rule, path)
        import fasttext

        try:
            self._model = fasttext.load_model(path)
            self._model.predict("")  # a model of word vectors alone refuses
        except ValueError as error:
            raise InputError(
                f"{rule}.model_path: {path!r} cannot be used: {error}. Give a supervised fastText model"
            ) from error
        self.labels: list[str] = list(self._model.get_labels())
        """All labels, with `__label__`."""

    def best(self, text: str) -> tuple[str, float]:
        """Return the most probable label and its probability; an empty label and 0.0 if the model predicts nothing."""
        labels, found = self._predict(text, 1)
        return (labels[0], _probability(found[0])) if labels else ("", 0.0)

    def probabilities(self, text: str) -> dict[str, float]:
        """Return the probability of every label that the model predicts."""
        labels, found = self._predict(text, -1)
        return {label: _probability(value) for label, value in zip(labels, found, strict=True)}

    def _predict(self, text: str, count: int) -> tuple[Any, Any]:
        # A line feed ends the text for fastText.
        return self._model.predict(without_surrogates(text).replace("\n", " "), k=count)  # type: ignore[no-any-return]


def _probability(value: Any) -> float:
    """Limit a probability to 1: fastText adds a small constant, so that some exceed it."""
    return min(float(value), 1.0)
