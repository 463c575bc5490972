# SPDX-License-Identifier: Apache-2.0
"""Inputs at which a deduplication could need quadratic time or memory, or have no defined result."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.memory_room import memory_beside_this_process
from tests.unit.stages.dedup.runs import clusters, run_over, write_corpus, written
from thresher import ExactDeduplication, FuzzyDeduplication, JsonlReader, JsonlWriter, LocalExecutor, Pipeline
from thresher.stages.dedup.files.keys import Keys, candidates, grouped

STAGES = {
    "exact": ExactDeduplication,
    "fuzzy": FuzzyDeduplication,
    "verified": lambda: FuzzyDeduplication(threshold=0.8, verify=True),
}
SAME = "the same short text, again and again"


def edges_of(result: Any, name: str) -> int:
    return int(next(stage for stage in result.stages if stage["name"].endswith(name))["in_docs"])


@pytest.mark.parametrize(
    ("method", "documents"), [("exact", 200_000), ("fuzzy", 50_000), pytest.param("verified", 20_000)]
)
def test_a_cluster_of_very_many_identical_documents_costs_few_edges_for_each(
    tmp_path: Path, method: str, documents: int
) -> None:
    result = run_over([{"text": SAME}] * documents, tmp_path, STAGES[method](), blocksize="512KB")
    assert result.counts["written"] == 1
    assert edges_of(result, "-graph") <= 2 * documents
    found = clusters(result)
    assert len(found) == documents
    assert {row["size"] for row in found} == {documents}
    assert sum(row["kept"] for row in found) == 1


def test_a_key_that_all_documents_share_gives_at_most_two_pairs_for_each() -> None:
    documents = np.arange(100_000, dtype=np.uint64)
    keys = Keys(np.ones_like(documents), None, documents)
    assert len(grouped(keys)[1]) == len(documents) - 1
    assert len(candidates(keys)) < 2 * len(documents)


@pytest.mark.parametrize("method", STAGES)
def test_empty_and_short_documents_have_a_defined_result(tmp_path: Path, method: str) -> None:
    texts = ["", "a", "", " ", "a", "ab", " ", "\u0000", "x" * 23, "x" * 23, "x" * 24]
    result = run_over([{"n": n, "text": text} for n, text in enumerate(texts)], tmp_path, STAGES[method]())
    kept = [document["n"] for document in written(result)]
    empty = [] if method == "exact" else [2]  # an empty text is the same as another, and similar to none
    assert kept == sorted([0, 1, 3, 5, 7, 8, 10, *empty])


@pytest.mark.parametrize("method", STAGES)
def test_documents_that_differ_in_one_character(tmp_path: Path, method: str) -> None:
    text = " ".join(f"word{n}" for n in range(400))
    result = run_over([{"text": text}, {"text": f"{text[:1500]}#{text[1501:]}"}], tmp_path, STAGES[method]())
    assert result.counts["written"] == (2 if method == "exact" else 1)


def test_a_document_that_is_larger_than_a_unit(tmp_path: Path) -> None:
    large = " ".join(f"{n * 7919 % 100_003}" for n in range(300_000))
    documents = [{"text": large}, {"text": "small"}, {"text": f"{large} and an end"}, {"text": "small"}]
    stage = FuzzyDeduplication(threshold=0.8, verify=True)
    result = run_over(documents, tmp_path, stage, blocksize="100KB")
    assert [document["text"][:5] for document in written(result)] == [large[:5], "small"]


@pytest.mark.parametrize("method", STAGES)
def test_the_result_depends_on_neither_workers_nor_memory_nor_block_size(tmp_path: Path, method: str) -> None:
    texts = [f"{SAME} {n % 60} {'and some more of it ' * (n % 9)}{n // 300}" for n in range(900)]
    corpus = write_corpus(tmp_path / "in", [{"n": n, "text": text} for n, text in enumerate(texts)], files=3)

    def digest(name: str, executor: Any, blocksize: int | str) -> tuple[str, list[dict[str, Any]]]:
        reader = JsonlReader(str(corpus), blocksize=blocksize)
        pipeline = Pipeline("dedup", stages=[reader, STAGES[method](), JsonlWriter(str(tmp_path / name))])
        result = pipeline.run(executor, progress="none")
        content = b"".join(Path(path).read_bytes() for path in result.output_paths)
        return hashlib.sha256(content).hexdigest(), clusters(result)

    expected = digest("serial", "serial", "64MB")
    assert digest("blocks", "serial", 5000) == expected
    assert digest("local", LocalExecutor(workers=2), 20_000) == expected
    assert digest("one", LocalExecutor(workers=1, memory=memory_beside_this_process(600 * 10**6)), 9000) == expected
