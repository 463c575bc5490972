# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from thresher.core.documents.batch import DocumentBatch
from thresher.core.planning.task_types import task_types
from thresher.core.task import FileGroupTask
from thresher.errors import UsageError
from thresher.stages.io.jsonl.writer import JsonlWriter
from thresher.stages.io.parquet.writer import ParquetWriter

WRITERS = [JsonlWriter, ParquetWriter]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_writer_does_nothing_before_the_run(tmp_path: Path, writer):
    writer(str(tmp_path / "out"), mode="overwrite", target_file_size="1GB")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"path": ""}, ["path", "''", "folder or a URL"]),
        ({"path": 3}, ["path", "3", "folder or a URL"]),
        ({"mode": "over-write"}, ["mode", "over-write", "error, overwrite, append", "Did you mean 'overwrite'?"]),
        ({"compression": "ztd"}, ["compression", "ztd", "gzip", "Did you mean 'zstd'?"]),
        ({"compression": 7}, ["compression", "7"]),
        ({"fields": "text"}, ["fields", "'text'", "['text']"]),
        ({"fields": []}, ["fields", "[]"]),
        ({"fields": [1]}, ["fields", "[1]"]),
        ({"target_file_size": "big"}, ["target_file_size", "big", "64MB"]),
        ({"storage_options": "key"}, ["storage_options", "(not shown)", "mapping of names to values"]),
    ],
)
def test_a_wrong_setting_is_named_with_its_value_and_what_is_legal(writer, settings, said):
    with pytest.raises(UsageError) as refused:
        writer(**({"path": "out"} | settings))

    message = str(refused.value)
    assert message.startswith(writer.__name__ + ".")
    assert [text for text in said if text not in message] == []


@pytest.mark.parametrize("writer", WRITERS)
def test_a_size_may_be_written_as_people_write_it(writer):
    assert writer("out", target_file_size="2MB").target_file_size == 2_000_000


@pytest.mark.parametrize("writer", WRITERS)
def test_the_planner_sees_what_a_writer_takes_and_gives(writer):
    assert task_types(writer("out")) == (DocumentBatch, FileGroupTask)


def test_a_path_object_is_a_path(tmp_path: Path):
    assert JsonlWriter(tmp_path).path == str(tmp_path)
