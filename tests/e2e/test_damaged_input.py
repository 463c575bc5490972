# SPDX-License-Identifier: Apache-2.0
"""Runs over damaged files: lost rows are counted by number, and a loss of unknown size does not look like success."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thresher import JsonlReader, JsonlWriter, LocalExecutor, ParquetReader, Pipeline, SerialExecutor
from thresher.cli.main import main
from thresher.core.tally import counts_add_up
from thresher.errors import TooManyErrorsError
from thresher.stages.io.parquet.pages import find_pages, read_footer

ROWS, GROUP_ROWS = 6000, 3000


def damaged_parquet(path: Path, page_number: int = 2) -> tuple[int, int]:
    """A file with one damaged page; number of its first row, and how many rows it has."""
    table = pa.table({"n": range(ROWS), "text": [f"text {n} " * 4 for n in range(ROWS)]})
    layout: dict[str, Any] = {"row_group_size": GROUP_ROWS, "data_page_size": 16384, "write_batch_size": 100}
    pq.write_table(table, path, use_dictionary=False, write_page_checksum=True, **layout)
    with open(path, "rb") as source:
        found = find_pages(source, read_footer(source, path.stat().st_size), 1, "text")
    assert found is not None
    page = found.pages[page_number]
    content = bytearray(path.read_bytes())
    content[page.start + page.nbytes - 3] ^= 1
    path.write_bytes(content)
    return GROUP_ROWS + page.first_row, page.rows


def truncated_gz(path: Path) -> None:
    lines = "".join(json.dumps({"n": n, "text": f"text {n}"}) + "\n" for n in range(5000))
    path.write_bytes(gzip.compress(lines.encode())[:-5000])


@pytest.mark.parametrize("executor", [SerialExecutor(), LocalExecutor(workers=2)], ids=["serial", "local"])
def test_rows_of_a_damaged_page_are_counted_by_number(tmp_path: Path, executor: Any) -> None:
    first, lost = damaged_parquet(tmp_path / "a.parquet")
    out = tmp_path / "out"
    pipeline = Pipeline("damaged", stages=[ParquetReader(str(tmp_path / "a.parquet")), JsonlWriter(str(out))])
    result = pipeline.run(executor, progress="none", max_errors="50%")
    assert result.counts["read"] == ROWS
    assert result.counts["quarantined"] == lost > 100
    assert result.counts["written"] == ROWS - lost
    assert counts_add_up(result.counts)
    assert result.to_dict()["quarantine_reasons"] == {"ParquetReader/corrupt-page": lost}
    assert result.unknown_losses == 0
    (file,) = (out / "_thresher" / "quarantine").iterdir()
    entry = json.loads(file.read_text())
    assert (entry["position"], entry["records"]) == (first, lost)
    assert entry["id"].endswith(f":r{first}")


@pytest.mark.parametrize("max_errors", ["3%", 100])
@pytest.mark.parametrize("executor", [SerialExecutor(), LocalExecutor(workers=2)], ids=["serial", "local"])
def test_lost_rows_count_against_the_error_budget(tmp_path: Path, executor: Any, max_errors: str | int) -> None:
    _, lost = damaged_parquet(tmp_path / "a.parquet")
    reader = ParquetReader(str(tmp_path / "a.parquet"))
    pipeline = Pipeline("damaged", stages=[reader, JsonlWriter(str(tmp_path / "out"))])
    for _ in range(2):  # the same command again must not turn it into a success
        with pytest.raises(TooManyErrorsError, match=f"{lost:,} of {ROWS:,} records failed"):
            pipeline.run(executor, progress="none", max_errors=max_errors)


def test_every_command_understands_an_entry_for_many_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, lost = damaged_parquet(tmp_path / "a.parquet")
    out = tmp_path / "out"
    recipe = tmp_path / "damaged.yaml"
    stages = [{"ParquetReader": {"file_paths": str(tmp_path / "a.parquet")}}, {"JsonlWriter": {"path": str(out)}}]
    recipe.write_text(json.dumps({"name": "damaged", "stages": stages, "options": {"max_errors": "50%"}}))
    assert main(["run", str(recipe), "--workers", "1"]) == 0
    assert f"{ROWS:,} read = {ROWS - lost:,} written + 0 dropped + {lost:,} quarantined  ✓" in capsys.readouterr().out
    assert main(["quarantine", str(out)]) == 0
    told = capsys.readouterr().out
    assert f"{lost:,} records in quarantine" in told
    assert f":{first} to {first + lost - 1}  ({lost:,} records)" in told
    assert main(["audit", str(out)]) == 0
    capsys.readouterr()
    entry = json.loads(next((out / "_thresher" / "quarantine").iterdir()).read_text())
    file = entry["id"].split(":")[0]
    for row, kind in ((first, "quarantined"), (first + lost - 1, "quarantined"), (first + lost, "written")):
        assert main(["why", str(out), f"{file}:r{row}", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["ends"][0]["end"] == kind
    for attempts in (2, 3):
        assert main(["retry", str(out), "--workers", "1", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["tried"], told["quarantined"]) == (lost, lost)
        assert told["report"]["counts"]["quarantined"] == lost
        (again,) = (out / "_thresher" / "quarantine").glob("*.jsonl")
        entry = json.loads(again.read_text())
        assert (entry["position"], entry["records"], entry["attempts"]) == (first, lost, attempts)
    assert main(["audit", str(out)]) == 0


def cut_parquet(path: Path) -> None:
    damaged_parquet(path)
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("name", "reader", "damage"),
    [("b.jsonl.gz", JsonlReader, truncated_gz), ("b.parquet", ParquetReader, cut_parquet)],
)
def test_a_loss_of_unknown_size_is_no_success_unless_it_is_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, reader: Any, damage: Any
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    damage(source / name)
    if reader is ParquetReader:
        pq.write_table(pa.table({"text": ["a", "b"]}), source / "a.parquet")
    out = tmp_path / "out"
    recipe = tmp_path / "damaged.yaml"
    stages = [{reader.__name__: {"file_paths": str(source)}}, {"JsonlWriter": {"path": str(out)}}]
    recipe.write_text(json.dumps({"name": "damaged", "stages": stages}))
    for _ in range(2):
        assert main(["run", str(recipe), "--workers", "1"]) == 3
        assert "an unknown number of records is missing" in capsys.readouterr().err
    assert main(["run", str(recipe), "--workers", "1", "--max-errors", "100%"]) == 0
    told = capsys.readouterr().out
    assert "an unknown number of records is missing" in told
    assert "✓" not in told
    report = json.loads((out / "_thresher" / "report.json").read_text())
    assert report["unknown_losses"] == 1
    assert report["counts"]["written"] > 0
    assert main(["quarantine", str(out)]) == 0
    assert "an unknown number of records" in capsys.readouterr().out
    assert main(["audit", str(out)]) == 0
    assert "an unknown number of records is missing" in capsys.readouterr().err
    entry = json.loads(next((out / "_thresher" / "quarantine").iterdir()).read_text())
    assert entry["records"] is None
    assert main(["retry", str(out), "--workers", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tried"] == 0
