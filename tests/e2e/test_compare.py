# SPDX-License-Identifier: Apache-2.0
"""`thresher compare` and `report.html` say what the files of real runs say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from thresher.cli.main import main

RECIPE = """\
name: compared
stages:
  - JsonlReader: {{file_paths: {folder}/input, blocksize: 4kB}}
  - WordCountFilter: {{min_words: {words}}}
  - UrlsFilter
  - JsonlWriter: {{path: {folder}/{output}}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Input of 60 documents of 1 to 60 words, one with a URL and one that is no JSON."""
    folder = tmp_path_factory.mktemp("compare")
    (folder / "input").mkdir()
    lines = [json.dumps({"text": "word " * n}) for n in range(1, 61)]
    lines += [json.dumps({"text": "http://example.org/" + "a" * 300 + " word" * 40}), "no json"]
    (folder / "input" / "a.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def run(folder: Path, output: str, words: int, *flags: str) -> Path:
    """Run the recipe and return its run folder."""
    recipe = folder / f"{output}.yaml"
    recipe.write_text(RECIPE.format(folder=folder, words=words, output=output), encoding="utf-8")
    assert main(["run", str(recipe), "--executor", "serial", "--quiet", "--max-errors", "50%", *flags]) == 0
    return folder / output / "_thresher"


@pytest.fixture(scope="module")
def runs(folder: Path) -> tuple[Path, Path]:
    """A run that keeps its dropped records, and one with another threshold that keeps its scores."""
    return (
        run(folder, "first", 20, "--dropped-to", str(folder / "dropped")),
        run(folder, "second", 30, "--keep-scores"),
    )


def compared(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """Return what `thresher compare --json` prints."""
    capsys.readouterr()
    assert main(["compare", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_counts_reasons_recipe_and_documents(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(capsys, str(runs[0]), str(runs[1]))
    assert found["counts"]["written"] == {"before": 41, "after": 31}
    assert found["drop_reasons"] == {"WordCountFilter/WordCountFilter": {"before": 19, "after": 29}}
    assert found["recipe"] == {"WordCountFilter.min_words": {"before": 20, "after": 30}}
    (move,) = found["moves"]
    assert (move["before"], move["after"]) == ("passed", "WordCountFilter/WordCountFilter")
    assert move["documents"] == 10, "every document of 20 to 29 words, and no other"
    assert [one["score"] for one in move["examples"]] == [20, 21, 22]


def test_the_other_way_round_the_dropped_record_is_shown(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (move,) = compared(capsys, str(runs[1]), str(runs[0]))["moves"]
    assert (move["before"], move["after"], move["documents"]) == ("WordCountFilter/WordCountFilter", "passed", 10)


def test_a_run_equals_itself(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(capsys, str(runs[0]), str(runs[0]))
    assert (found["moves"], found["recipe"], found["drop_reasons"]) == ([], {}, {})
    assert main(["compare", str(runs[0]), str(runs[0])]) == 0
    assert "has the same fate in both" in capsys.readouterr().out


def test_without_kept_records_it_says_what_to_do(
    folder: Path, runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    plain = run(folder, "plain", 20)
    found = compared(capsys, str(plain), str(runs[0]))
    assert found["units_compared"] == 0
    assert "--dropped-to" in found["notes"][0]


def test_what_is_no_run_is_refused(runs: tuple[Path, Path], tmp_path: Path) -> None:
    assert main(["compare", str(runs[0]), str(tmp_path)]) == 2


def test_every_run_leaves_a_page_beside_its_report(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    page = (runs[1] / "report.html").read_text(encoding="utf-8")
    assert "WordCountFilter" in page
    assert "report RUN --html" in page, "histograms of a short run are drawn on demand"
    assert main(["report", str(runs[1]), "--html"]) == 0
    assert capsys.readouterr().out.strip() == str(runs[1] / "report.html")
    page = (runs[1] / "report.html").read_text(encoding="utf-8")
    assert "Scores of all 61 documents" in page
    assert "min_words = 30" in page


def test_a_page_that_cannot_be_drawn_does_not_fail_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("thresher.runtime.report_file.write_page", fails)
    left = run(folder, "without-page", 20)
    assert (left / "report.json").exists()
    assert not (left / "report.html").exists()


@pytest.mark.s3
def test_the_page_of_a_run_behind_a_url_is_there_and_its_timeline_too(
    bucket: str, s3_options: dict[str, Any], folder: Path
) -> None:
    from thresher import JsonlReader, JsonlWriter, Pipeline
    from thresher.ledger.stores.store import open_store

    writer = JsonlWriter(f"s3://{bucket}/out", storage_options=s3_options)
    Pipeline("far", stages=[JsonlReader(str(folder / "input")), writer]).run(
        "serial", progress="none", max_errors="50%"
    )
    store = open_store(f"s3://{bucket}/out/_thresher", s3_options)
    page = (store.read("report.html") or b"").decode()
    assert "far" in page
    assert store.read("events/001/timeline.jsonl")
