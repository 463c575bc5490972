# SPDX-License-Identifier: Apache-2.0
"""Stages that need all documents before they give the first one: the same files on every executor, and counts that add
up over all phases."""

from __future__ import annotations

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from thresher import (
    DocumentBatch,
    GlobalShuffle,
    GlobalSort,
    GroupBy,
    JsonlReader,
    JsonlWriter,
    Pipeline,
    ReduceStage,
    RunResult,
    ScoreFilter,
    SerialExecutor,
    ShuffleStage,
    TopK,
    WordCountFilter,
)

FILES, ROWS = 4, 500
SMALL = 20_000
"""Bytes of a unit, so that the corpus has several."""


class WordCount(ReduceStage):
    """Counts words over the whole corpus."""

    def initial(self) -> dict[str, int]:
        return {}

    def accumulate(self, state: dict[str, int], batch: DocumentBatch) -> dict[str, int]:
        return self.merge(state, Counter(word for text in batch.values("text") for word in text.split()))

    def merge(self, state: dict[str, int], other: dict[str, int]) -> dict[str, int]:
        for word, n in other.items():
            state[word] = state.get(word, 0) + n
        return state

    def finish(self, state: dict[str, int]) -> DocumentBatch:
        return DocumentBatch([{"word": word, "n": n} for word, n in sorted(state.items())])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for file in range(FILES):
        rows = range(file * ROWS, (file + 1) * ROWS)
        lines = [
            json.dumps({"id": n, "text": f"word{n % 7} " * (1 + n % 9), "key": f"k{n * n % 91}", "n": -n}) for n in rows
        ]
        (folder / f"{file}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def run(executor: Any, corpus: Path, output: Path, *stages: Any) -> RunResult:
    pipeline = Pipeline(
        "phases", stages=[JsonlReader(str(corpus), blocksize=20_000), *stages, JsonlWriter(str(output))]
    )
    return pipeline.run(executor, progress="none")


def documents(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(output.glob("*.jsonl")) for line in path.read_text().splitlines()]


def files(output: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(output.glob("*.jsonl"))}


STAGES: dict[str, Callable[[], list[Any]]] = {
    "shuffle": lambda: [GlobalShuffle(seed=5, blocksize=SMALL)],
    "sort": lambda: [GlobalSort("key", blocksize=SMALL)],
    "groups": lambda: [GroupBy("key", {"documents": "count", "least": "min(n)", "mean": "mean(n)"}, 4_000)],
    "words": lambda: [WordCount()],
    "best": lambda: [TopK("key", k=123, blocksize=SMALL)],
    "filter, shuffle, filter, sort": lambda: [
        ScoreFilter(WordCountFilter(min_words=3, max_words=100)),
        GlobalShuffle(blocksize=SMALL),
        ScoreFilter(WordCountFilter(min_words=1, max_words=7)),
        GlobalSort("n", descending=True, blocksize=SMALL),
    ],
}


@pytest.fixture(scope="module")
def expected(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, str]]:
    """Run stages serially, once, and give their files."""

    @functools.cache
    def files_of(stages: str) -> dict[str, str]:
        folder = tmp_path_factory.mktemp("expected")
        run(SerialExecutor(), corpus, folder, *STAGES[stages]())
        return files(folder)

    return files_of


def test_three_phases_give_the_same_files_on_every_executor(
    every_executor: Any, corpus: Path, tmp_path: Path, expected: Callable[[str], dict[str, str]]
) -> None:
    stages = "filter, shuffle, filter, sort"
    result = run(every_executor, corpus, tmp_path, *STAGES[stages]())
    assert files(tmp_path) == expected(stages)
    assert result.counts["read"] == FILES * ROWS


@pytest.mark.parametrize("stages", [name for name in STAGES if "," not in name])
def test_every_stage_gives_the_same_files_wherever_it_runs(
    executor: Any, corpus: Path, tmp_path: Path, stages: str, expected: Callable[[str], dict[str, str]]
) -> None:
    result = run(executor, corpus, tmp_path, *STAGES[stages]())
    assert files(tmp_path) == expected(stages)
    assert result.counts["read"] == FILES * ROWS


class Concatenation(ReduceStage):
    """Joins texts in a way that shows in which order, and how, states were merged."""

    def initial(self) -> str:
        return ""

    def accumulate(self, state: str, batch: DocumentBatch) -> str:
        return self.merge(state, f"{min(batch.values('id'))}")

    def merge(self, state: str, other: str) -> str:
        return f"({state} {other})" if state and other else state or other

    def finish(self, state: str) -> DocumentBatch:
        return DocumentBatch([{"text": state}])


TREES: dict[str, Callable[[], Any]] = {
    "states": Concatenation,
    "files": lambda: GlobalShuffle(seed=3, blocksize=SMALL),
}


def run_of_many_units(executor: Any, corpus: Path, output: Path, joined: str) -> RunResult:
    stages = [JsonlReader(str(corpus), blocksize=1_500), TREES[joined](), JsonlWriter(str(output))]
    return Pipeline("tree", stages=stages).run(executor, progress="none")


@pytest.fixture(scope="module")
def expected_of_many_units(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Files of the serial runs."""
    found = {}
    for joined in TREES:
        folder = tmp_path_factory.mktemp(joined)
        run_of_many_units(SerialExecutor(), corpus, folder, joined)
        found[joined] = files(folder)
    return found


def test_states_and_files_of_many_units_are_joined_as_the_same_tree_on_every_executor(
    every_executor: Any, corpus: Path, tmp_path: Path, expected_of_many_units: dict[str, dict[str, str]]
) -> None:
    for joined, expected in expected_of_many_units.items():
        output = tmp_path / joined
        result = run_of_many_units(every_executor, corpus, output, joined)
        assert files(output) == expected
        assert result.counts["read"] == FILES * ROWS
        ledger = (output / "_thresher" / "ledger").glob("*.jsonl")
        units = [json.loads(line)["unit"] for path in ledger for line in path.read_text().splitlines()]
        assert any(unit.startswith("join-1-") for unit in units), "there were enough units for a tree"


def test_a_shuffle_keeps_every_document_once_and_depends_on_the_seed_alone(corpus: Path, tmp_path: Path) -> None:
    orders = []
    for number, seed in enumerate((1, 1, 2)):
        result = run(SerialExecutor(), corpus, tmp_path / str(number), GlobalShuffle(seed, blocksize=SMALL))
        orders.append([document["id"] for document in documents(tmp_path / str(number))])
        assert result.counts["written"] == FILES * ROWS
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == list(range(FILES * ROWS))
    assert len(files(tmp_path / "0")) > 3, "several units of the second phase"


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("by", ["key", "n"])
def test_a_sort_orders_the_corpus_and_leaves_equal_documents_in_input_order(
    corpus: Path, tmp_path: Path, by: str, descending: bool
) -> None:
    run(SerialExecutor(), corpus, tmp_path / "out", GlobalSort(by, descending, blocksize=SMALL))
    found = documents(tmp_path / "out")
    assert found == sorted(sorted(found, key=lambda d: d["id"]), key=lambda d: d[by], reverse=descending)


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [({"k": 77}, 77), ({"share": 0.1}, FILES * ROWS // 10), ({"k": 0}, 0), ({"k": 10**6}, FILES * ROWS)],
)
@pytest.mark.parametrize("smallest", [False, True])
def test_the_best_documents_are_kept_and_the_others_dropped_with_a_reason(
    corpus: Path, tmp_path: Path, arguments: dict[str, Any], kept: int, smallest: bool
) -> None:
    stage = TopK("key", smallest=smallest, blocksize=SMALL, **arguments)
    result = run(SerialExecutor(), corpus, tmp_path / "out", stage)
    whole = [json.loads(line) for path in sorted(corpus.iterdir()) for line in path.read_text().splitlines()]
    assert documents(tmp_path / "out") == sorted(whole, key=lambda d: d["key"], reverse=not smallest)[:kept]
    assert result.counts["dropped"] == FILES * ROWS - kept
    assert result.drop_reasons == ({"TopK-read/rank": FILES * ROWS - kept} if kept < FILES * ROWS else {})


def test_groups_count_every_document(corpus: Path, tmp_path: Path) -> None:
    result = run(SerialExecutor(), corpus, tmp_path / "out", GroupBy("key", {"documents": "count", "most": "max(id)"}))
    keys = [f"k{n * n % 91}" for n in range(FILES * ROWS)]
    found = {d["key"]: (d["documents"], d["most"]) for d in documents(tmp_path / "out")}
    assert found == {key: (n, max(i for i, k in enumerate(keys) if k == key)) for key, n in Counter(keys).items()}
    assert result.counts["merged"] == FILES * ROWS
    assert result.counts["created"] == result.counts["written"] == len(found)


def test_a_result_over_all_documents_goes_on_as_new_documents(corpus: Path, tmp_path: Path) -> None:
    run(SerialExecutor(), corpus, tmp_path / "out", WordCount())
    expected = Counter(f"word{n % 7}" for n in range(FILES * ROWS) for _ in range(1 + n % 9))
    assert {d["word"]: d["n"] for d in documents(tmp_path / "out")} == expected


def test_without_a_writer_the_caller_gets_the_result(executor: Any, corpus: Path) -> None:
    result = Pipeline("words", stages=[JsonlReader(str(corpus)), WordCount()]).run(executor, progress="none")
    assert len(result.to_arrow()) == 7


class Refuses(WordCount):
    """Raises for one document."""

    def accumulate(self, state: dict[str, int], batch: DocumentBatch) -> dict[str, int]:
        if 777 in batch.values("id"):
            raise ValueError("not this one")
        return super().accumulate(state, batch)


class PlacesUpTo(ShuffleStage):
    """Has no place for one document."""

    def places(self, batch: DocumentBatch) -> Any:
        return np.array([{777: None}.get(n, n) + 0 for n in batch.values("id")])


@pytest.mark.parametrize("stage", [Refuses(), PlacesUpTo()])
def test_a_document_on_which_the_code_raises_is_set_aside_alone(
    executor: Any, corpus: Path, tmp_path: Path, stage: Any
) -> None:
    result = run(executor, corpus, tmp_path / "out", stage)
    assert result.counts["quarantined"] == 1
    assert result.counts["merged"] + result.counts["written"] - result.counts["created"] == FILES * ROWS - 1


def test_nothing_of_the_phases_is_left_behind(executor: Any, corpus: Path, tmp_path: Path) -> None:
    run(executor, corpus, tmp_path / "out", GlobalShuffle(blocksize=SMALL), GlobalSort("id", blocksize=SMALL))
    assert not (tmp_path / "out" / "_thresher" / "phases").exists()


def test_no_documents_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    result = run(SerialExecutor(), tmp_path / "empty.jsonl", tmp_path / "out", GlobalShuffle(blocksize=SMALL))
    assert result.counts["written"] == 0
    assert files(tmp_path / "out") == {}
