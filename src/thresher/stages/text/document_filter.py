# SPDX-License-Identifier: Apache-2.0
"""The form of a rule that judges documents: one method finds a score, another says whether it is good enough."""

from __future__ import annotations

import functools
import inspect
from typing import Any


class DocumentFilter:
    """Subclass it for a rule of your own, write `score_document` and `keep_document`, and wrap it in `ScoreFilter`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    name: str = "DocumentFilter"
    """What reports call the rule; the name of the class unless it says otherwise."""

    def score_document(self, text: str) -> Any:
        """What the rule finds in a text: any value that JSON can hold."""
        raise TypeError(f"{type(self).__name__} must define score_document(text)")

    def keep_document(self, score: Any) -> bool:
        """Whether a document with this score is kept."""
        raise TypeError(f"{type(self).__name__} must define keep_document(score)")

    def model_check_or_download(self) -> None:
        """Once per machine, before `load_model`."""

    def load_model(self) -> None:
        """Once per worker, before the first document."""

    def thresholds(self) -> dict[str, Any]:
        """What the rule allows, for reports: the constructor's parameters that are numbers.

        They are read from the attributes of the same name, with or without an underscore in front. A constructor that
        stores them under other names gets all its attributes that are numbers.
        """
        numbers = {name.lstrip("_"): value for name, value in vars(self).items() if _is_number(value)}
        own: Any = type(self)
        parameters = _parameters(own)
        named = {name: value for name, value in numbers.items() if name in parameters}
        return named or numbers


@functools.cache
def _parameters(cls: Any) -> frozenset[str]:
    return frozenset(inspect.signature(cls).parameters)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
