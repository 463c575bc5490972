# SPDX-License-Identifier: Apache-2.0
"""Lines, paragraphs and sentences that occur earlier in the corpus are removed; everything else stays as it was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.unit.stages.dedup.runs import run_over, write_corpus, written
from thresher import JsonlReader, JsonlWriter, LineDeduplication, ParquetWriter, Pipeline, SerialExecutor
from thresher.cli.main import main
from thresher.errors import UsageError
from thresher.stages.dedup.passages.lines_split import passages_of, without
from thresher.workflows import LineDeduplicationWorkflow

SENTENCES = ["Alpha beta gamma.", "The cat sat!", "Why not?", "終わり。", "Ωmega is last.", "x", "One two three four."]
GAPS = [" ", "\n", "\n\n", "  \n \n", "\r\n"]


def random_texts(seed: int, count: int = 60) -> list[str]:
    random = Random(seed)
    return [
        "".join(random.choice(SENTENCES) + random.choice(GAPS) for _ in range(random.randrange(12)))
        for _ in range(count)
    ]


def expected(texts: Sequence[str], unit: str, span: int, least: int) -> list[str]:
    """The definition: of equal runs of passages all but the first go."""
    seen: set[tuple[str, ...]] = set()
    made = []
    for text in texts:
        passages = passages_of(text, unit)
        content = [text[start:end] for _, start, end in passages]
        removed: set[int] = set()
        for first in range(len(content) - span + 1):
            window = tuple(content[first : first + span])
            if sum(map(len, window)) < least:
                continue
            if window in seen:
                removed |= set(range(first, first + span))
            seen.add(window)
        made.append(without(text, passages, removed))
    return made


@pytest.mark.parametrize(
    ("unit", "span", "least", "blocksize"),
    [("line", 1, 0, "64MB"), ("line", 2, 10, 700), ("paragraph", 1, 5, 900), ("sentence", 3, 0, 400)],
)
def test_all_but_the_first_occurrence_goes(tmp_path: Path, unit: Any, span: int, least: int, blocksize: int) -> None:
    texts = random_texts(seed=span)
    stage = LineDeduplication(unit, least, span, min_document_length=0)
    documents = [{"n": n, "text": text, "other": {"kept": n}} for n, text in enumerate(texts)]
    result = run_over(documents, tmp_path, stage, blocksize=blocksize)
    found = written(result)
    assert [one["text"] for one in found] == expected(texts, unit, span, least)
    assert [(one["n"], one["other"]) for one in found] == [(n, {"kept": n}) for n in range(len(texts))]


def test_a_document_without_a_repeated_line_is_written_byte_for_byte(tmp_path: Path) -> None:
    line = b'{"text": "A line that is here only once.\\u00e9\\n",   "x": 1.0}\n'
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(line)
    stages = [JsonlReader(str(folder)), LineDeduplication(), JsonlWriter(str(tmp_path / "out"))]
    result = Pipeline("lines", stages=stages).run(SerialExecutor(), progress="none")
    assert Path(result.output_paths[0]).read_bytes() == line


def test_documents_that_become_too_short_are_dropped_with_their_whole_text(tmp_path: Path) -> None:
    long, short = "A line of more than twenty characters.", "Another line of more than twenty."
    texts = [long, f"{long}\nrest", long, "", f"{short}\nA whole line that stays as it is."]
    documents = [{"n": n, "text": text} for n, text in enumerate(texts)]
    stage = LineDeduplication(min_document_length=5)
    result = run_over(documents, tmp_path, stage, dropped_to=str(tmp_path / "dropped"))
    assert [one["n"] for one in written(result)] == [0, 3, 4], "an empty text that lost nothing stays"
    assert result.drop_reasons == {"LineDeduplication/repeated-lines": 2}
    (path,) = (tmp_path / "dropped").glob("*.jsonl")
    dropped = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(one["n"], one["text"]) for one in dropped] == [(1, texts[1]), (2, texts[2])]
    assert [one["_dropped"]["score"] for one in dropped] == [4, 0]
    assert dropped[0]["_dropped"]["threshold"] == {"min_document_length": 5}


def test_the_number_of_removed_passages_is_in_the_report(tmp_path: Path) -> None:
    line = "A line of more than twenty characters."
    documents = [{"text": f"{line}\nOnly here, and long enough: {n}\n{line}"} for n in range(3)]
    result = run_over(documents, tmp_path, LineDeduplication())
    (stage,) = [stage for stage in result.stages if stage["name"] == "LineDeduplication"]
    assert stage["user_counts"] == {"parts removed": 5}


def test_a_corpus_of_the_same_line(tmp_path: Path) -> None:
    line = "A line of more than twenty characters."
    documents = [{"n": n, "text": "\n".join([line] * 40)} for n in range(100)]
    result = run_over(documents, tmp_path, LineDeduplication(), blocksize=8_000)
    assert [(one["n"], one["text"]) for one in written(result)] == [(0, line)]


@pytest.mark.parametrize("documents", [[], [{"text": ""}], [{"text": "short"}], [{"text": " \n\n "}]])
def test_nothing_to_compare(tmp_path: Path, documents: list[dict[str, Any]]) -> None:
    assert written(run_over(documents, tmp_path, LineDeduplication())) == documents


def test_documents_without_a_text_are_quarantined(tmp_path: Path) -> None:
    documents = [{"n": 0, "text": "a"}, {"n": 1}, {"n": 2, "text": 5}]
    result = run_over(documents, tmp_path, LineDeduplication(), max_errors="100%")
    assert [one["n"] for one in written(result)] == [0]
    assert result.counts["quarantined"] == 2


@pytest.mark.parametrize(
    "arguments", [{"unit": "word"}, {"span": 0}, {"min_length": -1}, {"min_document_length": True}, {"text_field": ""}]
)
def test_arguments_are_checked(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="LineDeduplication"):
        LineDeduplication(**arguments)


def test_parquet_and_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = random_texts(seed=5)
    corpus = write_corpus(tmp_path / "in", [{"n": n, "text": text} for n, text in enumerate(texts)], files=3)
    stages = [JsonlReader(str(corpus)), ParquetWriter(str(tmp_path / "parquet"))]
    Pipeline("convert", stages=stages).run("serial", progress="none")
    workflow = LineDeduplicationWorkflow(
        str(tmp_path / "parquet"), str(tmp_path / "out"), min_length=1, min_document_length=0, output_filetype="jsonl"
    )
    found = written(workflow.run("serial", progress="none").run)
    assert [one["text"] for one in found] == expected(texts, "line", 1, 1)
    command = ["dedup", "lines", str(corpus), str(tmp_path / "out2"), "min_length=1", "min_document_length=0"]
    assert main([*command, "--executor", "serial", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["written"] == len(texts)
    assert main(["audit", str(tmp_path / "out2")]) == 0
