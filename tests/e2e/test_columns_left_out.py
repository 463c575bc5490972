# SPDX-License-Identifier: Apache-2.0
"""Columns of Parquet that make no difference to the output are not read, and still can be asked about."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thresher.cli.main import main

RECIPE = """\
name: left-out
stages:
  - ParquetReader: {file_paths: in.parquet}
  - JsonlWriter: {path: output, fields: [text]}
"""


def test_why_knows_columns_that_the_run_did_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = {"text": ["some words of a text", "and of another"], "note": ["first remark", "second remark"]}
    pq.write_table(pa.table(rows), tmp_path / "in.parquet")
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    assert main(["run", "recipe.yaml", "--quiet"]) == 0
    assert main(["why", "output", "--text", "second remark", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["id"].endswith(":r1")
    assert "second remark" in json.dumps(told["record"])
