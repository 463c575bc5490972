# SPDX-License-Identifier: Apache-2.0
"""SamplerFilter keeps the same random part of the records on every run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.core.json_batches import SOURCE, batch_of, written
from thresher.core.documents.batch import DocumentBatch
from thresher.core.documents.records import RecordIds
from thresher.errors import UsageError
from thresher.stages.text.rules.sampler import SamplerFilter, draws

MANY = [{"text": "the same text", "n": n} for n in range(4000)]


def kept(stage: SamplerFilter, records: list[dict[str, Any]] = MANY) -> list[int]:
    return [record["n"] for record in written(stage.process(batch_of(records)))]


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_part_has_the_wanted_size(rate: float) -> None:
    assert abs(len(kept(SamplerFilter(rate))) / len(MANY) - rate) < 0.03


def test_none_and_all_may_be_wanted() -> None:
    assert kept(SamplerFilter(0)) == []
    assert len(kept(SamplerFilter(1))) == len(MANY)


def test_where_batches_are_cut_and_in_which_order_makes_no_difference() -> None:
    stage, batch = SamplerFilter(0.3), batch_of(MANY)
    whole = {record["n"] for record in written(stage.process(batch))}
    rows = np.random.default_rng(0).permutation(len(MANY))
    parts = [stage.process(batch.take(part)) for part in np.array_split(rows, 17)]
    assert {record["n"] for part in parts for record in written(part)} == whole


def test_a_larger_rate_keeps_all_that_a_smaller_one_keeps() -> None:
    assert set(kept(SamplerFilter(0.2))) < set(kept(SamplerFilter(0.4)))


def test_another_seed_makes_another_choice() -> None:
    one, other = set(kept(SamplerFilter(0.5, seed=1))), set(kept(SamplerFilter(0.5, seed=2)))
    assert abs(len(one & other) / len(MANY) - 0.25) < 0.03


def test_a_dropped_record_tells_its_number_and_the_rate() -> None:
    made = SamplerFilter(0.5).process(batch_of(MANY))
    (dropped,) = made._dropped
    assert dropped.rule == "SamplerFilter"
    assert dropped.threshold == {"rate": 0.5}
    assert dropped.scores is not None
    assert all(0.5 <= number < 1 for number in dropped.scores)


def test_the_number_follows_from_the_id_alone() -> None:
    plain = RecordIds((SOURCE,), np.array([3, 9], dtype=np.int64))
    mixed = RecordIds(
        (("other:", "x"), SOURCE),
        np.array([9, 3, 3], dtype=np.int64),
        np.array([1, 0, 1], dtype=np.int64),
        ("", "", "/0"),
    )
    assert draws(plain, 0)[1] == draws(mixed, 0)[0]
    assert len({*draws(plain, 0).tolist(), *draws(mixed, 0).tolist()}) == 4


@pytest.mark.parametrize("rate", [-0.1, 1.1, True, float("nan"), "0.5"])
def test_a_rate_that_is_no_share_is_refused(rate: Any) -> None:
    with pytest.raises(UsageError, match=r"SamplerFilter\.rate: .* is not a share from 0 to 1"):
        SamplerFilter(rate)


def test_records_that_have_no_id_yet_get_a_number_and_no_id() -> None:
    batch = DocumentBatch([{"n": n} for n in range(200)])
    made = SamplerFilter(0.5).process(batch)
    assert 60 < len(made) < 140
    assert made.ids is None


def test_an_empty_batch_stays_empty() -> None:
    assert written(SamplerFilter(0.5).process(batch_of([]))) == []
