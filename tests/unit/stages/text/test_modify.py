# SPDX-License-Identifier: Apache-2.0
"""Modify rewrites texts, and nothing but texts that change."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.core.json_batches import batch_of, batch_of_lines, written
from thresher.core.documents.batch import DocumentBatch
from thresher.core.tally import context_of
from thresher.errors import UsageError
from thresher.stages.text.columns.byte_tests import holding
from thresher.stages.text.document_modifier import DocumentModifier
from thresher.stages.text.modifiers.line_remover import NewlineNormalizer
from thresher.stages.text.modifiers.pii_redactor import PiiRedactor
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


def test_a_modifier_of_texts_that_returns_no_string_is_named() -> None:
    def count(text: str) -> int:
        return len(text)

    with pytest.raises(TypeError, match="returned an int for 'text'; a string is needed"):
        Modify(count).process(batch_of([{"text": "a"}]))


def test_a_function_that_returns_nothing_is_named() -> None:
    with pytest.raises(TypeError, match="returned None for 'n'; a value is needed"):
        Modify(lambda n: None, "n").process(batch_of([{"n": 1}]))


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


class Marked(DocumentModifier):
    """Changes texts with a mark, and says so by their bytes; notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.counted: dict[str, int] = {}

    def modify_document(self, text: str) -> str:
        self.asked.append(text)
        self.counted["marks"] = self.counted.get("marks", 0) + text.count("!")
        if "fail" in text:
            raise ValueError(text)
        return text.replace("!", ".")

    def may_change(self, texts: Any) -> Any:
        return holding(texts, b"!")

    def take_counts(self) -> dict[str, int]:
        counted, self.counted = self.counted, {}
        return counted


class TestTheTestOverBytes:
    def test_texts_that_it_says_no_to_are_never_looked_at(self) -> None:
        modifier = Marked()
        lines = [b'{"text":"a!"}', b'{"text" : "b"}', b'{"text":"\\u0021"}', b'{"text":"\xc3\xa9"}']
        changed = Modify(modifier).process(batch_of_lines(lines))
        assert modifier.asked == ["a!", "!"]
        assert [bytes(line) for line in changed.json_lines()] == [b'{"text":"a."}', lines[1], b'{"text":"."}', lines[3]]

    def test_later_stages_see_the_new_texts(self) -> None:
        changed = Modify([Marked(), Shout()]).process(batch_of([{"text": "a!"}, {"text": "é"}, {"text": ""}]))
        assert changed.values("text") == ["A.", "É", ""]
        table = DocumentBatch([{"text": "a!"}, {"text": "b"}])
        assert Modify(Marked()).process(table).values("text") == ["a.", "b"]

    def test_records_that_were_left_out_before_are_left_out_here(self) -> None:
        batch = Modify(Marked()).process(batch_of([{"text": f"{n}!"} for n in range(5)]))
        fewer = Modify(NewlineNormalizer()).process(batch.take([4, 1]))
        assert Modify(Marked()).process(fewer).values("text") == ["4.", "1."]

    def test_a_subclass_with_a_method_of_its_own_is_asked_about_every_text(self) -> None:
        class Other(Marked):
            def modify_document(self, text: str) -> str:
                return text + "?"

        assert Modify(Other()).process(batch_of([{"text": "a"}])).values("text") == ["a?"]

        class OtherRedactor(PiiRedactor):
            def modify_document(self, text: str) -> str:
                return "gone"

            def may_change(self, texts: Any) -> Any:
                return holding(texts, b"x")

        assert Modify(OtherRedactor()).process(batch_of([{"text": "x"}])).values("text") == ["gone"]

    def test_what_a_failed_call_counted_does_not_count(self) -> None:
        stage = Modify(Marked())
        with pytest.raises(ValueError, match="fail"):
            stage.process(batch_of([{"text": "a!"}, {"text": "fail!"}]))
        stage.process(batch_of([{"text": "b!!"}]))
        assert context_of(stage).noted.counts == {"marks": 2}

    def test_kernels_are_made_ready_before_workers_start(self) -> None:
        assert Modify(Shout()).preloads() == []
        always = [f"thresher.kernels.{name}" for name in ("json.text", "edits.rewrite", "json.patch")]
        exact = ["thresher.kernels.edits.mail_spans", "thresher.kernels.edits.ip_spans"]
        assert Modify(Marked()).preloads() == always
        assert Modify(PiiRedactor()).preloads() == [*always, *exact, "thresher.kernels.edits.pii"]
        assert Modify(PiiRedactor(kinds=["ip"])).preloads() == [*always, *exact]
        assert Modify(NewlineNormalizer()).preloads() == [*always, "thresher.kernels.edits.line_end_runs"]
        assert Modify(PiiRedactor(), output_fields="clean").preloads() == []
