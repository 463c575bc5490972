# SPDX-License-Identifier: Apache-2.0
"""Decontamination drops or marks documents that hold parts of evaluation sets, and says which."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.core.json_batches import batch_of, written
from thresher.core.documents.batch import DocumentBatch
from thresher.errors import InputError, UsageError
from thresher.stages.text import index_file
from thresher.stages.text.decontamination import Decontamination
from thresher.stages.text.evaluation_sets import texts_of

QUESTION = "Which of the following planets is the largest one in our own solar system today?"
DOCUMENT = "Quiz. WHICH of the following planets is the largest one in our own, solar system... today and tomorrow"
OTHER = "A document about something else that has more than thirteen words in it, and none of them from a quiz."


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setattr(index_file, "cache_folder", lambda: str(folder))


@pytest.fixture
def quiz(tmp_path: Path) -> str:
    path = tmp_path / "quiz.jsonl"
    path.write_text(json.dumps({"id": "q1", "question": QUESTION, "choices": ["Mars", "Jupiter"]}) + "\n")
    return str(path)


def processed(stage: Decontamination, texts: list[str]) -> DocumentBatch:
    return stage.process(batch_of([{"text": text} for text in texts]))


def test_a_document_with_thirteen_words_of_a_set_is_dropped_under_the_name_of_the_set(quiz: str) -> None:
    made = processed(Decontamination(quiz), [OTHER, DOCUMENT, ""])
    assert [record["text"] for record in written(made)] == [OTHER, ""]
    (dropped,) = made._dropped
    assert dropped.rule == "quiz"
    assert dropped.threshold == {"n": 13, "min_share": 0.0}
    assert dropped.scores == [
        {
            "evaluation_set": "quiz",
            "ngram": "WHICH of the following planets is the largest one in our own, solar",
            "share": 3 / 6,
        }
    ]


def test_twelve_words_are_not_enough(quiz: str) -> None:
    twelve = " ".join(QUESTION.split()[:12])
    assert written(processed(Decontamination(quiz), [twelve + " galaxy"]))
    assert not written(processed(Decontamination(quiz, n=12), [twelve + " galaxy"]))


def test_a_share_may_be_asked_for(quiz: str) -> None:
    assert not written(processed(Decontamination(quiz, min_share=0.5), [DOCUMENT]))
    assert written(processed(Decontamination(quiz, min_share=0.51), [DOCUMENT]))


def test_documents_may_be_marked_instead(quiz: str) -> None:
    made = processed(Decontamination(quiz, action="mark", mark_field="seen"), [OTHER, DOCUMENT])
    clean, marked = written(made)
    assert clean == {"text": OTHER}
    assert marked["seen"]["evaluation_set"] == "quiz"
    assert not made._dropped


def test_a_run_in_several_sets_counts_for_the_first(quiz: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.txt"
    copy.write_text(QUESTION + "\n")
    for sets, first in (({"a": quiz, "b": str(copy)}, "a"), ({"b": str(copy), "a": quiz}, "b")):
        assert processed(Decontamination(sets), [DOCUMENT])._dropped[0].rule == first


def test_documents_of_several_sets_are_dropped_each_under_its_own(tmp_path: Path) -> None:
    texts = {name: " ".join(f"{name}{number}" for number in range(13)) for name in ("x", "y")}
    for name, text in texts.items():
        (tmp_path / f"{name}.txt").write_text(text)
    stage = Decontamination([str(tmp_path / "y.txt"), str(tmp_path / "x.txt")])
    made = processed(stage, [texts["y"], OTHER, texts["x"], texts["y"]])
    assert [(rows.rule, len(rows.batch)) for rows in made._dropped] == [("x", 1), ("y", 2)]
    assert [record["text"] for record in written(made)] == [OTHER]


def test_where_batches_are_cut_makes_no_difference(quiz: str) -> None:
    stage = Decontamination(quiz, action="mark")
    batch = batch_of([{"text": text} for text in (DOCUMENT, OTHER, DOCUMENT + " again", "", OTHER)])
    whole = written(stage.process(batch))
    assert whole == [record for row in range(5) for record in written(stage.process(batch.take([row])))]


def test_a_record_without_text_is_set_aside(quiz: str) -> None:
    made = Decontamination(quiz).process(batch_of([{"text": 5}, {"text": OTHER}, {}]))
    assert [record["text"] for record in written(made)] == [OTHER]
    assert sorted(rows.error for rows in made._failed) == ["field-missing", "not-a-string"]


def test_a_batch_may_be_empty_or_without_texts(quiz: str) -> None:
    for action in ("drop", "mark"):
        stage = Decontamination(quiz, action=action)  # type: ignore[arg-type]  # both are legal
        assert written(stage.process(batch_of([]))) == []
        assert written(stage.process(batch_of([{"text": 5}]))) == []


def test_sets_may_be_json_lines_parquet_or_text_packed_or_not(tmp_path: Path) -> None:
    record: dict[str, Any] = {"q": "one", "more": {"a": ["two", 3, "four"]}, "n": 5}
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(json.dumps(record).encode() + b"\n\n"))
    pq.write_table(pa.Table.from_pylist([{"q": "one", "more": ["two"]}]), tmp_path / "b.parquet")
    (tmp_path / "c.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo")
    assert list(texts_of(str(tmp_path / "a.jsonl.gz"))) == ["one", "two", "four"]
    assert list(texts_of(str(tmp_path / "a.jsonl.gz"), ["more"])) == ["two", "four"]
    assert list(texts_of(str(tmp_path / "b.parquet"))) == ["one", "two"]
    assert list(texts_of(str(tmp_path / "b.parquet"), ["more"])) == ["two"]
    assert list(texts_of(str(tmp_path / "c.txt"))) == ["one", "two"]


def test_the_index_is_built_once_and_again_when_a_set_changes(
    quiz: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    write = index_file.write_index
    monkeypatch.setattr(index_file, "write_index", lambda path, index: (built.append(path), write(path, index)))
    Decontamination(quiz).setup_on_node()
    Decontamination(quiz).setup()
    assert len(built) == 1
    Path(quiz).write_text(json.dumps({"question": OTHER}) + "\n")
    assert not written(processed(Decontamination(quiz), [OTHER]))
    assert len(built) == 2


def test_the_index_knows_how_many_texts_are_too_short(quiz: str) -> None:
    facts = Decontamination(quiz)._found_index().facts
    assert facts == {"n": 13, "sets": {"quiz": {"texts": 4, "too_short": 3, "ngrams": 3}}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"evaluation_sets": []}, "is not a file name"),
        ({"evaluation_sets": "x.txt", "n": 0}, r"Decontamination\.n: 0 is not a whole number from 1 to 1000"),
        ({"evaluation_sets": "x.txt", "min_share": 2}, r"min_share: 2 is not a share from 0 to 1"),
        ({"evaluation_sets": "x.txt", "action": "burn"}, "neither 'drop' nor 'mark'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Decontamination(**arguments)


def test_a_set_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_text("too short\n")
    with pytest.raises(InputError, match=r"no text of 'short' has 13 words \(1 texts were found\)"):
        Decontamination(str(short)).setup()
    bad = tmp_path / "bad.jsonl"
    bad.write_text("[1]\n")
    with pytest.raises(InputError, match=r"line 1 of '.*bad\.jsonl' is not a JSON object"):
        Decontamination(str(bad)).setup()
    with pytest.raises(InputError, match=r"no record of '.*' has a field 'answer'"):
        list(texts_of(_written(tmp_path / "q.jsonl", '{"question": "x"}'), ["answer"]))
    with pytest.raises(InputError, match="missing"):
        Decontamination(str(tmp_path / "missing.txt")).setup()


def _written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)
