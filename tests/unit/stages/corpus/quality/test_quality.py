# SPDX-License-Identifier: Apache-2.0
"""From scores to decisions: ensembles, percentiles and buckets."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of, written
from thresher import (
    Blend,
    JsonlReader,
    JsonlWriter,
    LocalExecutor,
    PercentileRank,
    Pipeline,
    QualityBuckets,
    ScoreEnsemble,
    SerialExecutor,
)
from thresher.core.tally import context_of
from thresher.errors import UsageError

SCORES = st.one_of(st.none(), st.integers(-5, 5), st.floats(-5, 5), st.just("no number"))


def column(stage: Any, records: list[dict[str, Any]], name: str) -> list[Any]:
    return [record[name] for record in written(stage.process(batch_of(records)))]


def test_a_mean_is_weighted_and_scales_are_brought_together() -> None:
    records = [{"edu": 5, "fluency": 0.5, "noise": 10}, {"edu": 0, "fluency": 1.0, "noise": 90}]
    ensemble = ScoreEnsemble({"edu": 2, "fluency": 1, "noise": 1}, ranges={"edu": [0, 5], "noise": [100, 0]})
    assert column(ensemble, records, "quality_score") == pytest.approx([(2 * 1 + 0.5 + 0.9) / 4, (0 + 1 + 0.1) / 4])


@pytest.mark.parametrize(
    ("method", "expected"), [("max", 0.9), ("min", 0.1), ("mean", 0.4), ("quantile", 0.2)], ids=lambda value: str(value)
)
def test_several_scores_become_one(method: str, expected: float) -> None:
    records = [{"a": 0.1, "b": 0.9, "c": 0.2}]
    found = column(ScoreEnsemble(["a", "b", "c"], method, score_field="all"), records, "all")
    assert found == pytest.approx([expected])


@given(st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=8), st.booleans())
def test_a_document_without_scores_is_set_aside_and_the_others_are_as_alone(rows: list[Any], lenient: bool) -> None:
    records = [{"n": n, "a": a, "b": b} for n, (a, b) in enumerate(rows)]
    stage = ScoreEnsemble({"a": 1, "b": 3}, allow_missing=lenient)
    expected = {}
    for n, row in enumerate(rows):
        there = [(value, weight) for value, weight in zip(row, (1, 3), strict=True) if isinstance(value, int | float)]
        if len(there) == 2 or (lenient and there):
            expected[n] = sum(value * weight for value, weight in there) / sum(weight for _, weight in there)
    made = stage.process(batch_of(records))
    assert {record["n"]: record["quality_score"] for record in written(made)} == pytest.approx(expected)
    assert sum(failed.total for failed in made.take_failed()) == len(rows) - len(expected)


def test_a_score_on_an_edge_belongs_above_it_and_buckets_are_charted() -> None:
    stage = QualityBuckets([0.3, 0.7])
    records = [{"quality_score": score} for score in (-1, 0.29, 0.3, 0.69, 0.7, 9)]
    assert column(stage, records, "quality") == ["low", "low", "medium", "medium", "high", "high"]
    (chart,) = context_of(stage).noted.charts().values()
    assert {bar["bar"]: bar["n"] for bar in chart} == {"low": 2, "medium": 2, "high": 2}


def _inputs(folder: Path, values: list[Any]) -> str:
    folder.mkdir()
    for part in range(3):
        lines = (json.dumps({"n": n, "s": value}) for n, value in enumerate(values) if n % 3 == part)
        (folder / f"{part}.jsonl").write_text("".join(line + "\n" for line in lines))
    return str(folder)


def test_percentiles_are_exact_and_equal_values_have_the_same_on_every_executor(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    values: list[Any] = [*rng.integers(0, 40, 300).tolist(), *rng.normal(20, 9, 100).tolist(), *[None] * 9]
    source = _inputs(tmp_path / "in", values)
    numbers = sorted(value for value in values if value is not None)
    expected = {
        n: None if value is None else 20 * sum(other < value for other in numbers) // len(numbers)
        for n, value in enumerate(values)
    }
    files = []
    for executor in (SerialExecutor(), LocalExecutor(workers=2)):
        output = tmp_path / executor.name
        stages = [JsonlReader(source), PercentileRank("s", levels=20, blocksize="2KB"), JsonlWriter(str(output))]
        result = Pipeline("rank", stages=stages).run(executor, progress="none")
        lines = [line for path in result.output_paths for line in Path(path).read_text().splitlines()]
        assert {(one := json.loads(line))["n"]: one.get("s_percentile") for line in lines} == expected
        files.append({Path(path).name: Path(path).read_bytes() for path in result.output_paths})
        assert len(files[-1]) > 3
    assert files[0] == files[1]


def test_classifiers_of_different_scales_agree_by_percentiles_and_buckets_are_sampled(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    records = [{"n": n, "one": n / 100, "two": -((n - 50) ** 2)} for n in range(100)]
    (folder / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    stages = [
        JsonlReader(str(folder)),
        PercentileRank("one"),
        PercentileRank("two"),
        ScoreEnsemble(["one_percentile", "two_percentile"], "max"),
        QualityBuckets([50, 90]),
        Blend("quality", {"high": 2, "medium": 1, "low": 0}),
        JsonlWriter(str(tmp_path / "out")),
    ]
    result = Pipeline("quality", stages=stages).run("serial", progress="none")
    lines = [json.loads(line) for path in result.output_paths for line in Path(path).read_text().splitlines()]
    times = {n: [line["n"] for line in lines].count(n) for n in range(100)}
    assert times[99] == times[50] == 2
    assert times[75] == 1
    assert times[5] == 0
    assert all(math.isfinite(line["quality_score"]) for line in lines)


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: ScoreEnsemble("a"), "is not a list of columns"),
        (lambda: ScoreEnsemble([]), "name one or more"),
        (lambda: ScoreEnsemble(["a"], "median"), "is not one of mean, max, min, quantile"),
        (lambda: ScoreEnsemble({"a": 1}, "max"), "weights belong to the method mean"),
        (lambda: ScoreEnsemble({"a": -1}), "not all 0 or more"),
        (lambda: ScoreEnsemble(["a"], ranges={"b": [0, 1]}), "not one of the columns a"),
        (lambda: ScoreEnsemble(["a"], ranges={"a": [1, 1]}), "not a lowest and a highest"),
        (lambda: ScoreEnsemble(["a"], "quantile", quantile=2), "not between 0 and 1"),
        (lambda: QualityBuckets([]), "not a list of 1 numbers or more"),
        (lambda: QualityBuckets([2, 1]), "do not grow"),
        (lambda: QualityBuckets([1]), "not 2 different names"),
        (lambda: PercentileRank("a", levels=1), "not a whole number of 2 or more"),
    ],
)
def test_a_mistake_is_refused_where_it_is_made(make: Any, fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        make()
