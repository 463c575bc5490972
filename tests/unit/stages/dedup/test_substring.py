# SPDX-License-Identifier: Apache-2.0
"""Stretches that occur earlier in the corpus are removed, exactly those of the plain definition."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.unit.stages.dedup.runs import run_over, write_corpus, written
from thresher import SubstringDeduplication
from thresher.cli.main import main
from thresher.errors import UsageError

LETTERS = "abcdefgh ÄÖ終🙂"


def random_texts(seed: int, count: int = 60) -> list[str]:
    """Random texts with passages of each other, and with one of their own repeated."""
    random = Random(seed)
    texts: list[str] = []
    for _ in range(count):
        text = "".join(random.choice(LETTERS) for _ in range(random.randrange(80)))
        for _ in range(random.randrange(3)):
            source = random.choice([*texts, text])
            start = random.randrange(len(source) + 1)
            at = random.randrange(len(text) + 1)
            text = text[:at] + source[start : start + random.randrange(70)] + text[at:]
        texts.append(text)
    return [*texts, "a" * 100, "ab" * 60]


def expected(texts: Sequence[str], length: int, keep: str) -> list[str]:
    """The definition: all stretches that begin earlier go; of a character, all bytes or none."""
    encoded = [text.encode() for text in texts]
    count: dict[bytes, int] = {}
    for text in encoded:
        for first in range(len(text) - length + 1):
            stretch = text[first : first + length]
            count[stretch] = count.get(stretch, 0) + 1
    seen: set[bytes] = set()
    made = []
    for text in encoded:
        gone = [False] * len(text)
        for first in range(len(text) - length + 1):
            stretch = text[first : first + length]
            if stretch in seen or (keep == "none" and count[stretch] > 1):
                gone[first : first + length] = [True] * length
            seen.add(stretch)
        at, left = 0, ""
        for character in text.decode():
            size = len(character.encode())
            left += "" if all(gone[at : at + size]) else character
            at += size
        made.append(left)
    return made


@pytest.mark.parametrize(
    ("length", "keep", "blocksize", "seed"), [(16, "first", "64MB", 1), (25, "first", 900, 2), (20, "none", 1500, 3)]
)
def test_stretches_that_begin_earlier_go(tmp_path: Path, length: int, keep: Any, blocksize: int, seed: int) -> None:
    texts = random_texts(seed)
    stage = SubstringDeduplication(length, keep, min_document_length=0, blocksize=2000)
    documents = [{"n": n, "text": text} for n, text in enumerate(texts)]
    found = written(run_over(documents, tmp_path, stage, blocksize=blocksize))
    wanted = expected(texts, length, keep)
    assert sum(map(len, wanted)) < 0.9 * sum(map(len, texts)), "something is removed"
    assert [one["text"] for one in found] == wanted
    assert [one["n"] for one in found] == list(range(len(texts)))


def test_documents_that_become_too_short_are_dropped(tmp_path: Path) -> None:
    passage = "This passage stands in both documents, word for word."
    documents = [{"n": 0, "text": passage}, {"n": 1, "text": f"{passage} x"}, {"n": 2, "text": f"Before it. {passage}"}]
    stage = SubstringDeduplication(40, min_document_length=5)
    result = run_over(documents, tmp_path, stage)
    assert [one["text"] for one in written(result)] == [passage, "Before it. "]
    assert result.drop_reasons == {"SubstringDeduplication/repeated-text": 1}
    (facts,) = [stage for stage in result.stages if stage["name"] == "SubstringDeduplication"]
    assert facts["user_counts"] == {"parts removed": 2}


def test_a_text_that_repeats_itself_shrinks_to_one_period(tmp_path: Path) -> None:
    documents = [{"text": "abc" * 2000}, {"text": "x" * 5000}]
    result = run_over(documents, tmp_path, SubstringDeduplication(30))
    assert [one["text"] for one in written(result)] == ["abc", "x"]


@pytest.mark.parametrize("documents", [[], [{"text": ""}], [{"text": "short"}], [{"text": "y" + "x" * 15}] * 1])
def test_nothing_to_remove(tmp_path: Path, documents: list[dict[str, Any]]) -> None:
    assert written(run_over(documents, tmp_path, SubstringDeduplication(16))) == documents


def test_identical_documents(tmp_path: Path) -> None:
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 300)))
    documents = [{"n": n, "text": text} for n in range(50)]
    result = run_over(documents, tmp_path, SubstringDeduplication(), blocksize=3000)
    assert written(result) == documents[:1]


@pytest.mark.parametrize(
    "arguments", [{"min_length": 15}, {"keep": "last"}, {"min_document_length": -1}, {"text_field": ""}]
)
def test_arguments_are_checked(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="SubstringDeduplication"):
        SubstringDeduplication(**arguments)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = random_texts(seed=4)
    corpus = write_corpus(tmp_path / "in", [{"n": n, "text": text} for n, text in enumerate(texts)], files=3)
    command = ["dedup", "substring", str(corpus), str(tmp_path / "out"), "min_length=20", "min_document_length=0"]
    assert main([*command, "--executor", "serial", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["written"] == len(texts)
    assert main(["audit", str(tmp_path / "out")]) == 0
