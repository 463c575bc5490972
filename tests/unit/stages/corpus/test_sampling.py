# SPDX-License-Identifier: Apache-2.0
"""Samples of an exact size, classes of values, and stages that choose by rank or group."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher import (
    BucketSample,
    JsonlReader,
    JsonlWriter,
    NGramCounts,
    PercentileRange,
    Pipeline,
    RunResult,
    SerialExecutor,
    StratifiedSample,
)
from thresher.errors import UsageError
from thresher.stages.corpus.sampling.permutation import drawn, permuted
from thresher.stages.corpus.statistics.bins import edges_of

FILES, ROWS = 3, 120


@given(st.integers(1, 3000), st.integers(0, 2**62))
def test_an_order_of_numbers_has_each_of_them_once(of: int, seed: int) -> None:
    assert sorted(permuted(np.arange(of), of, seed).tolist()) == list(range(of))


@given(st.integers(1, 500), st.integers(0, 600), st.integers(0, 2**62))
def test_a_sample_has_the_wanted_size_however_the_numbers_are_asked_for(of: int, wanted: int, seed: int) -> None:
    at_once = drawn(np.arange(of), of, wanted, seed)
    assert at_once.sum() == min(of, wanted)
    halves = [drawn(part, of, wanted, seed) for part in np.array_split(np.arange(of), 2)]
    assert np.concatenate(halves).tolist() == at_once.tolist()


def test_every_number_is_drawn_about_as_often() -> None:
    times = sum(drawn(np.arange(100), 100, 20, seed).astype(int) for seed in range(500))
    assert 60 < np.min(times) <= np.max(times) < 140


@given(*[st.floats(-1e9, 1e9)] * 3)
def test_classes_grow_and_begin_below_the_smallest_value(a: float, b: float, c: float) -> None:
    smallest, low, high = sorted((a, b, c))
    edges = edges_of(smallest, low, high)
    assert edges == sorted(set(edges))
    assert len(edges) <= 20
    assert edges[0] <= smallest + abs(smallest) * 1e-9 + 1e-9


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scores 0 to 359 in a mixed order, every tenth missing; languages of 180, 120 and 60 documents."""
    folder = tmp_path_factory.mktemp("corpus")
    for file in range(FILES):
        rows = [row * FILES + file for row in range(ROWS)]
        documents = [
            {
                "n": n,
                "text": "a rose is a rose " * (1 + n % 3),
                "language": ("en", "en", "en", "de", "de", "fr")[n % 6],
                "score": None if n % 10 == 9 else (n * 7) % 360,
            }
            for n in rows
        ]
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))
    return folder


def run(corpus: Path, out: Path, stage: Any) -> tuple[list[dict[str, Any]], RunResult]:
    reader = JsonlReader(str(corpus), blocksize=3_000)
    result = Pipeline("sample", stages=[reader, stage, JsonlWriter(str(out))]).run(SerialExecutor(), progress="none")
    lines = [line for path in result.output_paths for line in Path(path).read_text().splitlines()]
    return [json.loads(line) for line in lines], result


def test_percentiles_are_exact_and_ignore_documents_without_a_value(corpus: Path, tmp_path: Path) -> None:
    scores = sorted((n * 7) % 360 for n in range(FILES * ROWS) if n % 10 != 9)
    kept, result = run(corpus, tmp_path, PercentileRange("score", 20, 95, blocksize=2_000))
    expected = scores[math.ceil(0.2 * len(scores)) : math.ceil(0.95 * len(scores))]
    assert [document["score"] for document in kept] == expected
    (bars,) = result.stages[2]["charts"].values()
    assert sum(bar.get("parts", {}).get("kept", 0) for bar in bars) == len(kept)
    assert sum(bar["n"] for bar in bars) == FILES * ROWS
    assert bars[-1] == {"bar": "no value", "n": 36, "parts": {"dropped": 36}}


@pytest.mark.parametrize(
    ("cuts", "of"), [({"edges": [100, 200]}, (100, 200)), ({"quantiles": [0.25, 0.5]}, (None, None))]
)
def test_of_each_bucket_exactly_so_many_are_kept(
    corpus: Path, tmp_path: Path, cuts: dict[str, Any], of: tuple[Any, Any]
) -> None:
    scores = sorted((n * 7) % 360 for n in range(FILES * ROWS) if n % 10 != 9)
    low, high = of if of[0] is not None else (scores[81], scores[162])
    kept, _ = run(corpus, tmp_path / "n", BucketSample("score", **cuts, numbers=[0, 10, 1000], blocksize=2_000))
    found = [document["score"] for document in kept]
    assert found == sorted(found)
    assert sum(score < low for score in found) == 0
    assert sum(low <= score < high for score in found) == 10
    assert [score for score in found if score >= high] == [score for score in scores if score >= high]
    shares, _ = run(corpus, tmp_path / "s", BucketSample("score", **cuts, shares=[0.5, 0, 0.1], blocksize=2_000))
    below = sum(score < low for score in scores)
    assert sum(document["score"] < low for document in shares) == math.floor(below * 0.5 + 0.5)


@pytest.mark.parametrize("blocksize", [1_500, 10**6])
def test_of_each_value_exactly_so_many_are_kept(corpus: Path, tmp_path: Path, blocksize: int) -> None:
    kept, result = run(corpus, tmp_path / "n", StratifiedSample("language", number=70, blocksize=blocksize))
    assert Counter(document["language"] for document in kept) == {"en": 70, "de": 70, "fr": 60}
    assert result.drop_reasons == {"StratifiedSample-read/stratum": 160}
    (bars,) = result.stages[2]["charts"].values()
    assert bars[0] == {"bar": "en", "n": 180, "parts": {"dropped": 110, "kept": 70}}
    shares, _ = run(corpus, tmp_path / "s", StratifiedSample("language", share={"en": 0.1, "de": 0}))
    assert Counter(document["language"] for document in shares) == {"en": 18, "fr": 60}
    other, _ = run(corpus, tmp_path / "o", StratifiedSample("language", number=70, seed=1))
    assert sorted(document["n"] for document in other) != sorted(document["n"] for document in kept)


def test_counts_of_n_grams_are_those_of_a_plain_count(corpus: Path, tmp_path: Path) -> None:
    expected: Counter[str] = Counter()
    for path in corpus.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            words = json.loads(line)["text"].split()
            expected.update(map(" ".join, itertools.pairwise(words)))
    rows, result = run(corpus, tmp_path / "all", NGramCounts(2, blocksize=1_000))
    assert rows == [
        {"ngram": name, "count": n} for name, n in sorted(expected.items(), key=lambda item: (-item[1], item[0]))
    ]
    counts = {name: n for stage in result.stages for name, n in stage["user_counts"].items()}
    assert counts == {"distinct n-grams": len(expected), "n-grams": expected.total()}
    few, _ = run(corpus, tmp_path / "few", NGramCounts(2, top=2, min_count=900))
    assert few == [row for row in rows if row["count"] >= 900][:2]


def test_n_grams_that_do_not_fit_the_room_of_a_writer_are_counted_exactly(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from thresher.stages.corpus.statistics.ngram_counts import NGramWriter, UnitNGrams

    written: list[int] = []
    plain = UnitNGrams._write_partial
    monkeypatch.setattr(UnitNGrams, "_write_partial", lambda self: (written.append(1), plain(self)))
    opened = NGramWriter.open_writer

    def with_little_room(self: NGramWriter, local_path: str) -> Any:
        self.buffer_bytes = 16
        return opened(self, local_path)

    expected, _ = run(corpus, tmp_path / "a", NGramCounts(3))
    before, _ = len(written), monkeypatch.setattr(NGramWriter, "open_writer", with_little_room)
    spilled, _ = run(corpus, tmp_path / "b", NGramCounts(3))
    assert spilled == expected
    assert len(written) - before > before


def test_texts_without_n_grams_give_none(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": ""}\n{"text": "one"}\n{"text": null}\n')
    rows, result = run(tmp_path / "in", tmp_path / "out", NGramCounts(2))
    assert rows == []
    assert result.to_dict()["counts_add_up"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: PercentileRange("score", 95, 20),
        lambda: PercentileRange("score", -1),
        lambda: BucketSample("score", edges=[1], shares=[1]),
        lambda: BucketSample("score", edges=[2, 1], shares=[1, 1, 1]),
        lambda: BucketSample("score", quantiles=[1.5], shares=[1, 1]),
        lambda: BucketSample("score", edges=[1], shares=[2, 1]),
        lambda: StratifiedSample("language"),
        lambda: StratifiedSample("language", number=-1),
        lambda: StratifiedSample("language", share={"de": 2}),
        lambda: NGramCounts(0),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any) -> None:
    with pytest.raises(UsageError):
        make()
