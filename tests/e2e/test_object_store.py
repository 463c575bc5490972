# SPDX-License-Identifier: Apache-2.0
"""A whole run from an object store to an object store, on a real S3 server on loopback."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest

from thresher import JsonlReader, JsonlWriter, LocalExecutor, Pipeline

pytestmark = pytest.mark.s3

pytest.importorskip("s3fs")
moto_server = pytest.importorskip("moto.server")


@pytest.fixture
def store() -> Iterator[tuple[Any, dict[str, Any]]]:
    import s3fs

    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    options = {"endpoint_url": f"http://{host}:{port}", "key": "test", "secret": "test"}
    file_system = s3fs.S3FileSystem(**options, use_listings_cache=False, skip_instance_cache=True)
    file_system.mkdir("bucket")
    yield file_system, options
    server.stop()


def test_a_run_from_s3_to_s3_commits_and_resumes(store: tuple[Any, dict[str, Any]]) -> None:
    file_system, options = store
    lines = [json.dumps({"n": n, "text": "word " * 30}) for n in range(600)]
    file_system.pipe("bucket/in/a.jsonl", ("\n".join(lines[:400]) + "\n").encode())
    file_system.pipe("bucket/in/b.jsonl.gz", gzip.compress(("\n".join(lines[400:]) + "\n").encode()))

    def run() -> Any:
        reader = JsonlReader("s3://bucket/in", blocksize="20kB", storage_options=options)
        writer = JsonlWriter("s3://bucket/out", storage_options=options)
        return Pipeline("cloud", stages=[reader, writer]).run(LocalExecutor(workers=2), progress="none")

    result = run()
    assert result.counts["written"] == 600
    written = [line for path in result.output_paths for line in file_system.cat(path).decode().splitlines()]
    assert written == lines
    assert file_system.exists("bucket/out/_thresher/manifest.jsonl")
    assert not any("/tmp/" in path for path in file_system.find("bucket/out/_thresher"))
    assert run().status == "nothing-to-do"
