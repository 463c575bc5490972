# SPDX-License-Identifier: Apache-2.0
"""Supervised fastText models: labels of a text, with their probabilities."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from thresher.errors import InputError, MissingPackageError
from thresher.models.surrogates import without_surrogates

LABEL = "__label__"
"""What fastText puts before the name of a label."""


def check_package(rule: str) -> None:
    """Refuse a rule whose package is not installed, before any work."""
    if importlib.util.find_spec("fasttext") is None:
        raise MissingPackageError(f"{rule} needs the package fasttext: pip install 'thresher[fasttext]'")


def check_model_file(rule: str, path: str) -> None:
    """Refuse a path that leads to no file."""
    if not os.path.isfile(path):
        raise InputError(f"{rule}.model_path: there is no file {path!r}; give a fastText model (.bin or .ftz)")


class FastTextModel:
    """A model that is loaded; it gives an answer for every text."""

    def __init__(self, rule: str, path: str) -> None:
        """`rule` is who asks, for errors."""
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
        """The most probable label and its probability; an empty label and 0.0 where the model says nothing."""
        labels, found = self._predict(text, 1)
        return (labels[0], _probability(found[0])) if labels else ("", 0.0)

    def probabilities(self, text: str) -> dict[str, float]:
        """The probability of every label that the model gives one."""
        labels, found = self._predict(text, -1)
        return {label: _probability(value) for label, value in zip(labels, found, strict=True)}

    def _predict(self, text: str, count: int) -> tuple[Any, Any]:
        # A line feed ends the text for fastText.
        return self._model.predict(without_surrogates(text).replace("\n", " "), k=count)  # type: ignore[no-any-return]


def _probability(value: Any) -> float:
    """fastText adds a little to every probability on its way, so that some come out above 1."""
    return min(float(value), 1.0)
