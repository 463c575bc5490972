# SPDX-License-Identifier: Apache-2.0
"""Rules of a user's own."""

from __future__ import annotations

from typing import Any

import pytest

from thresher.stages.text.judging.rule import DocumentFilter


class Capitals(DocumentFilter):
    def __init__(self, max_share: float = 0.5, min_length: int = 3, strict: bool = True, label: str = "x") -> None:
        self._max_share = max_share
        self.min_length = min_length
        self.strict = strict
        self.label = label
        self.calls = 0

    def score_document(self, text: str) -> float:
        return sum(c.isupper() for c in text) / max(len(text), 1)

    def keep_document(self, score: Any) -> bool:
        return bool(score <= self._max_share)


class OtherNames(DocumentFilter):
    def __init__(self, limit: int) -> None:
        self._cutoff = limit


def test_a_rule_is_named_after_its_class_unless_it_says_otherwise() -> None:
    class Named(Capitals):
        name = "shouting"

    assert Capitals().name == "Capitals"
    assert Named().name == "shouting"


def test_thresholds_are_the_parameters_that_are_numbers() -> None:
    assert Capitals(0.25).thresholds() == {"max_share": 0.25, "min_length": 3}


def test_thresholds_stored_under_other_names_are_still_reported() -> None:
    assert OtherNames(3).thresholds() == {"cutoff": 3}


@pytest.mark.parametrize(("method", "argument"), [("score_document", "text"), ("keep_document", 1)])
def test_a_rule_without_its_methods_says_which_one_to_write(method: str, argument: Any) -> None:
    with pytest.raises(TypeError, match=f"OtherNames must define {method}"):
        getattr(OtherNames(1), method)(argument)
