# SPDX-License-Identifier: Apache-2.0
"""AddId writes the records' own ids."""

from __future__ import annotations

import pytest

from tests.unit.core.json_batches import batch_of, written
from thresher.errors import UsageError
from thresher.stages.text.add_id import AddId


def test_the_id_is_the_records_own_wherever_batches_are_cut() -> None:
    batch = batch_of([{"text": "a"}, {"text": "bb"}, {"text": "c"}])
    whole = written(AddId("id").process(batch))
    parts = [record for rows in ([0], [1, 2]) for record in written(AddId("id").process(batch.take(rows)))]
    assert whole == parts
    assert [record["id"] for record in whole] == ["0123456789ab:0", "0123456789ab:14", "0123456789ab:29"]


def test_a_prefix_stands_before_it() -> None:
    assert written(AddId("id", id_prefix="web").process(batch_of([{}]))) == [{"id": "web_0123456789ab:0"}]


def test_a_record_that_has_the_field_is_set_aside() -> None:
    made = AddId("id").process(batch_of([{"id": 7}, {"text": "b"}, {"id": None}]))
    assert [record["id"] for record in written(made)] == ["0123456789ab:10", "0123456789ab:24"]
    assert [(rows.error, written(rows.batch)) for rows in made._failed if rows.batch is not None] == [
        ("id-field-exists", [{"id": 7}])
    ]
    assert "overwrite=True" in made._failed[0].messages[0]


def test_overwrite_replaces_it() -> None:
    assert written(AddId("id", overwrite=True).process(batch_of([{"id": 7, "n": 1}]))) == [
        {"id": "0123456789ab:0", "n": 1}
    ]


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match=r"AddId\.id_field: '' is not the name of a column"):
        AddId("")
