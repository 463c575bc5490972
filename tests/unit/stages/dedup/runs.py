# SPDX-License-Identifier: Apache-2.0
"""Runs of a deduplication over a few documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from thresher import JsonlReader, JsonlWriter, Pipeline, RunResult, SerialExecutor


def write_corpus(folder: Path, documents: Sequence[dict[str, Any]], files: int = 1) -> Path:
    """Write documents to some files, in order."""
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-len(documents) // files)
    for number in range(files):
        lines = [json.dumps(document) + "\n" for document in documents[number * size : (number + 1) * size]]
        path = folder / f"{number}.jsonl"
        if not path.exists() or path.read_text() != "".join(lines):  # a run that goes on refuses changed files
            path.write_text("".join(lines))
    return folder


def run_over(
    documents: Sequence[dict[str, Any]], folder: Path, *stages: Any, blocksize: int | str = "64MB", **options: Any
) -> RunResult:
    """Run stages over documents."""
    corpus = write_corpus(folder / "in", documents)
    pipeline = Pipeline(
        "dedup", stages=[JsonlReader(str(corpus), blocksize=blocksize), *stages, JsonlWriter(str(folder / "out"))]
    )
    return pipeline.run(SerialExecutor(), progress="none", **options)


def written(result: RunResult) -> list[dict[str, Any]]:
    """The documents of a run, in the order of the input."""
    return [json.loads(line) for path in result.output_paths for line in Path(path).read_text().splitlines()]


def clusters(result: RunResult) -> list[dict[str, Any]]:
    """The rows of the clusters of a run."""
    import pyarrow.parquet as pq

    assert result.run_dir is not None
    path = Path(result.run_dir) / "clusters.parquet"
    return list(pq.read_table(path).to_pylist()) if path.exists() else []
