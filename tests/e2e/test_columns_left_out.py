# SPDX-License-Identifier: Apache-2.0
"""Columns of Parquet that make no difference to the output are not read, and still can be asked about."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

RECIPE = """\
name: left-out
stages:
  - ParquetReader: {file_paths: in.parquet}
  - JsonlWriter: {path: output, fields: [text]}
"""


def test_why_knows_columns_that_the_run_did_not_read(tmp_path: Path) -> None:
    def thresher(*arguments: str) -> str:
        command = [sys.executable, "-m", "thresher", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=True).stdout

    rows = {"text": ["some words of a text", "and of another"], "note": ["first remark", "second remark"]}
    pq.write_table(pa.table(rows), tmp_path / "in.parquet")
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    thresher("run", "recipe.yaml")
    told = json.loads(thresher("why", "output", "--text", "second remark", "--json"))
    assert told["id"].endswith(":r1")
    assert "second remark" in json.dumps(told["record"])
