# SPDX-License-Identifier: Apache-2.0
"""A whole run from an object store to an object store, on a real S3 server on loopback."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from thresher import JsonlReader, JsonlWriter, LocalExecutor, Pipeline

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
