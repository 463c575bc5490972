# SPDX-License-Identifier: Apache-2.0
"""Prompts with the names of columns in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.errors import UsageError
from thresher.stages.text.llm.prompt import PromptTemplate


def test_columns_are_filled_in_and_doubled_braces_are_braces() -> None:
    template = PromptTemplate("prompt", 'Say {{"a": 1}} to {name} of {my column}: {text:3}{name}')
    assert template.columns == ("name", "my column", "text")
    filled = template.fill({"name": "Ann", "my column": [1, None], "text": "abcdef"})
    assert filled == 'Say {"a": 1} to Ann of [1,null]: abcAnn'


@given(st.text(), st.text())
def test_what_a_document_says_is_never_taken_for_a_template(before: str, value: str) -> None:
    text = before.replace("{", "{{").replace("}", "}}") + "{text}"
    assert PromptTemplate("prompt", text).fill({"text": value}) == before + value


@pytest.mark.parametrize("text", ["{", "a } b", "{}", "{ }", "{text", "{text:many}", "{:5}", "{a{b}}"])
def test_a_brace_that_names_no_column_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(UsageError, match=r"S\.prompt: '.*' at character \d+ is not the name of a column"):
        PromptTemplate("S.prompt", text)
