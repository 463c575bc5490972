# SPDX-License-Identifier: Apache-2.0
"""Models that find names of people in a text. None ships with Thresher: the user names or passes one."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from typing import Any, Protocol

from thresher.errors import InputError, MissingPackageError, UsageError


class NameModel(Protocol):
    """A model that finds names."""

    def find_names(self, text: str) -> Iterable[tuple[int, int]]:
        """Return the start and end (exclusive) of each name, in characters."""
        ...


def checked(given: Any) -> Any:
    """Return a model or the name of one; refuse anything else."""
    if given is None or (isinstance(given, str) and given) or callable(getattr(given, "find_names", None)):
        return given
    raise UsageError(
        f"PiiRedactor.name_model: {given!r} is not a model; give the name or folder of a GLiNER model, "
        "or an object with find_names(text), which returns pairs of positions"
    )


def check_package(given: Any) -> None:
    """Refuse the name of a model if the package that loads it is missing; nothing is imported."""
    if isinstance(given, str) and importlib.util.find_spec("gliner") is None:
        raise _missing(given)


def _missing(given: str) -> MissingPackageError:
    return MissingPackageError(
        f"PiiRedactor.name_model: {given!r} is a GLiNER model, and the package gliner is not installed: "
        "pip install gliner, or give an object with find_names(text), or leave 'name' out of the kinds"
    )


def load(given: Any) -> NameModel:
    """Load a model by its name; return an object unchanged."""
    if not isinstance(given, str):
        model: NameModel = given
        return model
    try:
        gliner = importlib.import_module("gliner")
    except ImportError as error:
        raise _missing(given) from error
    try:
        return _Gliner(gliner.GLiNER.from_pretrained(given))
    except Exception as error:  # the package may raise any exception
        raise InputError(f"PiiRedactor.name_model: {given!r} cannot be loaded: {error}") from error


class _Gliner:
    """A GLiNER model that finds people. It reads a few hundred words at a time, so a text is passed to it in pieces."""

    _PIECE = 1000
    _LABEL = "person"

    def __init__(self, model: Any) -> None:
        self._model = model

    def find_names(self, text: str) -> Iterable[tuple[int, int]]:
        """Yield the start and end of each name of a person."""
        start = 0
        while start < len(text):
            end = self._between_words(text, start + self._PIECE)
            for found in self._model.predict_entities(text[start:end], [self._LABEL]):
                yield start + int(found["start"]), start + int(found["end"])
            start = end

    @staticmethod
    def _between_words(text: str, position: int) -> int:
        while position < len(text) and not text[position].isspace():
            position += 1
        return min(position, len(text))
