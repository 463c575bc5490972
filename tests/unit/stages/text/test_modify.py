# SPDX-License-Identifier: Apache-2.0
"""Modify rewrites texts, and nothing but texts that change."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.core.json_batches import batch_of, batch_of_lines, written
from thresher.errors import UsageError
from thresher.stages.text.document_modifier import DocumentModifier
from thresher.stages.text.modifiers.newline_normalizer import NewlineNormalizer
from thresher.stages.text.modify import Modify


class Shout(DocumentModifier):
    def modify_document(self, text: str) -> str:
        return text.upper()


def test_only_texts_that_change_are_rewritten() -> None:
    lines = [b'{"text" : "ABC","n":1.0}', b'{"n":2.0,   "text":"x\\u0079z"}']
    changed = Modify(Shout()).process(batch_of_lines(lines))
    assert [bytes(line) for line in changed.json_lines()] == [lines[0], b'{"n":2.0,   "text":"XYZ"}']


def test_a_batch_in_which_nothing_changes_goes_on_itself() -> None:
    batch = batch_of([{"text": "a\n\nb"}])
    assert Modify(NewlineNormalizer()).process(batch) is batch


def test_a_list_is_a_chain() -> None:
    changed = Modify([NewlineNormalizer(), Shout(), str.strip]).process(batch_of([{"text": " a\n\n\n\nb "}]))
    assert written(changed) == [{"text": "A\n\nB"}]


def test_the_result_may_go_to_another_column() -> None:
    stage = Modify([Shout(), len_text], input_fields=["text", "loud"], output_fields=["loud", "length"])
    assert written(stage.process(batch_of([{"text": "abc"}]))) == [{"text": "abc", "loud": "ABC", "length": "3"}]
    assert stage.inputs() == (["data"], ["text"])
    assert stage.outputs() == (["data"], ["loud", "length"])


def len_text(text: str) -> str:
    return str(len(text))


def test_records_without_a_string_are_set_aside() -> None:
    changed = Modify(Shout()).process(batch_of([{"text": "a"}, {}, {"text": 1}]))
    assert written(changed) == [{"text": "A"}]
    assert [(rows.error, len(rows.batch or ())) for rows in changed._failed] == [
        ("not-a-string", 1),
        ("field-missing", 1),
    ]


def test_a_modifier_that_returns_no_string_is_named() -> None:
    with pytest.raises(TypeError, match="returned a int for 'text'; a string is needed"):
        Modify(len).process(batch_of([{"text": "a"}]))  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"modifier_fn": 3}, "neither a function of a text nor a DocumentModifier"),
        ({"modifier_fn": []}, "modifier_fn: an empty list"),
        ({"modifier_fn": [str.upper] * 3, "input_fields": ["a", "b"]}, "input_fields: 2 values for a chain of 3"),
        ({"modifier_fn": str.upper, "output_fields": 1}, "output_fields: 1 is not the name of a column"),
    ],
)
def test_a_wrong_parameter_is_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Modify(**arguments)
