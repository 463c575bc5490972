# SPDX-License-Identifier: Apache-2.0
"""Runs of line ends become two."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from thresher.stages.text.modifiers.line_remover import NewlineNormalizer

normalize = NewlineNormalizer().modify_document


def test_three_and_more_line_feeds_become_two() -> None:
    assert normalize("a\n\n\nb\n\n\n\n\nc\n\nd\ne") == "a\n\nb\n\nc\n\nd\ne"


def test_carriage_returns_with_line_feeds_become_two_of_their_kind() -> None:
    assert normalize("a\r\n\r\n\r\n\r\nb\r\n\r\nc") == "a\r\n\r\nb\r\n\r\nc"


@given(st.text(alphabet="ab \r\n"))
def test_nothing_else_changes_and_a_second_time_changes_nothing(text: str) -> None:
    once = normalize(text)
    assert not re.search(r"\n{3}|(\r\n){3}", once)
    assert once.split() == text.split()
    assert normalize(once) == once
