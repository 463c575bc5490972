# SPDX-License-Identifier: Apache-2.0
"""Models that find names of people in a text. None comes with Thresher: the user names one, or hands one over."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any, Protocol

from thresher.errors import InputError, MissingPackageError, UsageError


class NameModel(Protocol):
    """Anything that finds names."""

    def find_names(self, text: str) -> Iterable[tuple[int, int]]:
        """Where names stand: from, and up to but not including, in characters."""
        ...


def checked(given: Any) -> Any:
    """A model, or the name of one; anything else is refused."""
    if given is None or (isinstance(given, str) and given) or callable(getattr(given, "find_names", None)):
        return given
    raise UsageError(
        f"PiiRedactor.name_model: {given!r} is no model; give the name or folder of a GLiNER model, "
        "or an object with find_names(text), which returns pairs of places"
    )


def load(given: Any) -> NameModel:
    """The model behind a name; an object is the model itself."""
    if not isinstance(given, str):
        model: NameModel = given
        return model
    try:
        gliner = importlib.import_module("gliner")
    except ImportError as error:
        raise MissingPackageError(
            f"PiiRedactor.name_model: {given!r} is a GLiNER model, and the package is not installed ({error}): "
            "pip install gliner, or give an object with find_names(text), or leave 'name' out of the kinds"
        ) from error
    try:
        return _Gliner(gliner.GLiNER.from_pretrained(given))
    except Exception as error:  # the package raises whatever it likes
        raise InputError(f"PiiRedactor.name_model: {given!r} cannot be loaded: {error}") from error


class _Gliner:
    """A GLiNER model, asked for people. It sees a few hundred words at a time, so a text is given to it in pieces."""

    _PIECE = 1000
    _LABEL = "person"

    def __init__(self, model: Any) -> None:
        self._model = model

    def find_names(self, text: str) -> Iterable[tuple[int, int]]:
        """Where the names of people stand."""
        start = 0
        while start < len(text):
            end = self._between_words(text, start + self._PIECE)
            for found in self._model.predict_entities(text[start:end], [self._LABEL]):
                yield start + int(found["start"]), start + int(found["end"])
            start = end

    @staticmethod
    def _between_words(text: str, place: int) -> int:
        while place < len(text) and not text[place].isspace():
            place += 1
        return min(place, len(text))
