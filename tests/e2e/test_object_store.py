# SPDX-License-Identifier: Apache-2.0
"""A whole run from an object store to an object store, on a real S3 server on loopback."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from thresher import GlobalShuffle, JsonlReader, JsonlWriter, LocalExecutor, ParquetWriter, Pipeline, Split

pytestmark = pytest.mark.s3


def test_a_run_from_s3_to_s3_commits_and_resumes(bucket: str, s3_options: dict[str, Any]) -> None:
    import s3fs

    file_system = s3fs.S3FileSystem(**s3_options, skip_instance_cache=True)
    lines = [json.dumps({"n": n, "text": "word " * 30}) for n in range(600)]
    file_system.pipe(f"{bucket}/in/a.jsonl", ("\n".join(lines[:400]) + "\n").encode())
    file_system.pipe(f"{bucket}/in/b.jsonl.gz", gzip.compress(("\n".join(lines[400:]) + "\n").encode()))

    def run() -> Any:
        reader = JsonlReader(f"s3://{bucket}/in", blocksize="20kB", storage_options=s3_options)
        writer = JsonlWriter(f"s3://{bucket}/out", storage_options=s3_options)
        return Pipeline("cloud", stages=[reader, writer]).run(LocalExecutor(workers=2), progress="none")

    result = run()
    assert result.counts["written"] == 600
    written = [line for path in result.output_paths for line in file_system.cat(path).decode().splitlines()]
    assert written == lines
    assert file_system.exists(f"{bucket}/out/_thresher/manifest.jsonl")
    assert not any("/tmp/" in path for path in file_system.find(f"{bucket}/out/_thresher"))
    assert run().status == "nothing-to-do"


def test_documents_are_shuffled_from_s3_to_s3(bucket: str, s3_options: dict[str, Any]) -> None:
    import s3fs

    file_system = s3fs.S3FileSystem(**s3_options, skip_instance_cache=True)
    lines = [json.dumps({"n": n, "text": "word " * 30}) for n in range(600)]
    file_system.pipe(f"{bucket}/in/a.jsonl", ("\n".join(lines) + "\n").encode())
    reader = JsonlReader(f"s3://{bucket}/in", blocksize="20kB", storage_options=s3_options)
    writer = JsonlWriter(f"s3://{bucket}/shuffled", storage_options=s3_options)
    stages = [reader, GlobalShuffle(seed=1, blocksize="30kB"), writer]
    result = Pipeline("cloud", stages=stages).run(LocalExecutor(workers=2), progress="none")
    written = [line for path in result.output_paths for line in file_system.cat(path).decode().splitlines()]
    assert written != lines
    assert sorted(written) == sorted(lines)
    assert len(result.output_paths) > 2
    assert not file_system.find(f"{bucket}/shuffled/_thresher/phases")


def test_outlets_work_from_s3_to_s3(bucket: str, s3_options: dict[str, Any]) -> None:
    import s3fs

    file_system = s3fs.S3FileSystem(**s3_options, skip_instance_cache=True)
    lines = [json.dumps({"n": n, "text": "word " * (1 + n % 10)}) for n in range(600)]
    file_system.pipe(f"{bucket}/branched/in/a.jsonl", ("\n".join(lines) + "\n").encode())
    reader = JsonlReader(f"s3://{bucket}/branched/in", blocksize="5kB", storage_options=s3_options)
    split = Split("some", share=0.3)
    writer = JsonlWriter(f"s3://{bucket}/branched/main", storage_options=s3_options)
    pipeline = Pipeline("cloud", stages=[reader, split, writer])
    pipeline.outlet("some").add_stage(JsonlWriter(f"s3://{bucket}/branched/some", storage_options=s3_options))
    result = pipeline.run(LocalExecutor(workers=2), progress="none")
    found = [*result.output_paths, *result.outlets["some"].output_paths]
    written = [line for path in found for line in file_system.cat(path).decode().splitlines()]
    assert sorted(written) == sorted(lines)
    assert 100 < result.outlets["some"].counts["written"] < 260
    left = file_system.find(f"{bucket}/branched/main/_thresher/outlets")
    assert [path.rsplit("/", 1)[-1] for path in left] == ["_done"]
    again = pipeline.run(LocalExecutor(workers=2), progress="none")
    assert (again.status, again.outlets["some"].status) == ("nothing-to-do", "nothing-to-do")


@pytest.mark.parametrize("target", [None, 4000])
def test_parquet_files_on_s3_have_one_schema(bucket: str, s3_options: dict[str, Any], target: int | None) -> None:
    import io

    import pyarrow.parquet as pq
    import s3fs

    file_system = s3fs.S3FileSystem(**s3_options, skip_instance_cache=True)
    for number, value in enumerate(("null", "1", "2.5", '"three"')):
        line = f'{{"text": "text {number}", "value": {value}}}\n'
        file_system.pipe(f"{bucket}/types/{number}.jsonl", line.encode())
    reader = JsonlReader(f"s3://{bucket}/types", files_per_partition=1, storage_options=s3_options)
    writer = ParquetWriter(f"s3://{bucket}/typed-{target}", target_file_size=target, storage_options=s3_options)
    result = Pipeline("typed", stages=[reader, writer]).run(LocalExecutor(workers=2), progress="none")
    tables = [pq.read_table(io.BytesIO(file_system.cat(path))) for path in result.output_paths]
    assert sum(table.num_rows for table in tables) == 4
    assert len({table.schema for table in tables}) == 1
    assert not file_system.find(f"{bucket}/typed-{target}/_thresher/parts")
