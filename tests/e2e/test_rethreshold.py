# SPDX-License-Identifier: Apache-2.0
"""Kept scores change nothing of the output, and `thresher rethreshold` gives what a full run gives, byte for byte."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.e2e import commands

OWN = """\
from thresher import DocumentBatch, DocumentFilter, ProcessingStage


class Letters(DocumentFilter):
    def __init__(self, letters="a", least=1):
        self.letters = letters
        self.least = least

    def score_document(self, text):
        if "raises" in text:
            raise ValueError("as it should")
        return sum(text.count(letter) for letter in self.letters)

    def keep_document(self, score):
        return score >= self.least


class Whole(ProcessingStage[DocumentBatch, DocumentBatch]):
    row_wise = False

    def process(self, task):
        return task


class Chance(ProcessingStage[DocumentBatch, DocumentBatch]):
    deterministic = False

    def process(self, task):
        return task
"""
STAGES = """\
name: scored
stages:
  - READER: {file_paths: input, blocksize: 20kB}
  - WordCountFilter: {min_words: 10}
  - UrlsFilter
  - NewlineNormalizer
  - Score: {score_fn: {MeanWordLengthFilter: {}}, score_field: mean}
  - ScoreFilter: {filter_obj: [{RepeatedLinesFilter: {}}, {NonAlphaNumericFilter: {}}], score_field: [lines, null]}
  - {_target_: own.Letters, letters: ae, least: 2}
  - WRITER: {path: output}
"""


def thresher(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return commands.thresher(folder, "own", *arguments)


def run(folder: Path, *arguments: str) -> dict[str, Any]:
    done = thresher(folder, *arguments, "--trust", "own", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def sidecars(run_dir: Path) -> dict[str, bytes]:
    return files(run_dir / "scores")


def used(report: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """By stage: scores that were there, and that were not."""
    counts = {stage["name"]: stage["user_counts"] for stage in report["stages"]}
    return {
        name: (found["scores_reused"], found["scores_missing"])
        for name, found in counts.items()
        if "scores_reused" in found
    }


def texts(seed: int, count: int) -> list[Any]:
    chance = random.Random(seed)
    words = ["apple", "on", "Tee", "große", "https://a.example/b", "!!!", "", "\n\n\n\n", "same\nsame\n", "x" * 20]
    made: list[Any] = [" ".join(chance.choices(words, k=chance.randint(0, 60))) for _ in range(count)]
    for row in range(0, count, 97):
        made[row] = None
    for row in range(11, count, 101):
        made[row] = f"raises {made[row] or 'something'}"
    return made


def make_folder(folder: Path, kind: str) -> Path:
    (folder / "input").mkdir()
    (folder / "own.py").write_text(OWN)
    reader, writer = ("ParquetReader", "ParquetWriter") if kind == "parquet" else ("JsonlReader", "JsonlWriter")
    (folder / "recipe.yaml").write_text(STAGES.replace("READER", reader).replace("WRITER", writer))
    for number in range(3):
        records = [{"n": n, "text": text} for n, text in enumerate(texts(number, 300))]
        lines = "".join(json.dumps(record) + "\n" for record in records) + '{"text": 5}\nbroken\n'
        path = folder / "input" / f"part-{number}"
        if kind == "parquet":
            pd.DataFrame(records).to_parquet(path.with_suffix(".parquet"), row_group_size=50)
        elif kind == "gz":
            path.with_suffix(".jsonl.gz").write_bytes(gzip.compress(lines.encode()))
        else:
            path.with_suffix(".jsonl").write_text(lines)
    return folder


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that kept its scores, in `kept`."""
    folder = make_folder(tmp_path_factory.mktemp("kept"), "jsonl")
    run(folder, "run", "recipe.yaml", "JsonlWriter.path=kept", "--dropped-to", "kept-dropped", "--keep-scores")
    return folder


def test_keeping_scores_changes_no_byte_of_the_output(kept: Path) -> None:
    run(kept, "run", "recipe.yaml", "JsonlWriter.path=plain", "--dropped-to", "plain-dropped")
    assert files(kept / "kept") == files(kept / "plain")
    assert files(kept / "kept-dropped") == files(kept / "plain-dropped")
    assert not (kept / "plain" / "_thresher" / "scores").exists()


def test_every_rule_of_a_fused_group_has_scored_every_document(kept: Path) -> None:
    frames = [pd.read_parquet(path) for path in sorted((kept / "kept" / "_thresher" / "scores").iterdir())]
    scores = pd.concat(frames)
    assert list(scores.columns) == [
        "id",
        "WordCountFilter/WordCountFilter",
        "UrlsFilter/UrlsFilter",
        "Score/MeanWordLengthFilter",
        "ScoreFilter/RepeatedLinesFilter",
        "ScoreFilter/NonAlphaNumericFilter",
        "Letters/Letters",
    ]
    report = json.loads((kept / "kept" / "_thresher" / "report.json").read_text())
    stage = {entry["name"]: entry for entry in report["stages"]}
    counted = scores.notna().sum()
    documents = stage["WordCountFilter"]["in_docs"] - stage["WordCountFilter"]["quarantined"]
    assert stage["WordCountFilter"]["dropped"] > 0
    assert counted["WordCountFilter/WordCountFilter"] == counted["UrlsFilter/UrlsFilter"] == documents
    behind = stage["Score"]["in_docs"]
    assert stage["ScoreFilter"]["dropped"] > 0
    assert stage["Letters"]["quarantined"] > 0
    assert counted["ScoreFilter/NonAlphaNumericFilter"] == counted["Score/MeanWordLengthFilter"] == behind < documents
    assert behind > counted["Letters/Letters"] > stage["Letters"]["out_docs"]


@pytest.mark.parametrize("executor", ["local", "serial"])
def test_other_workers_and_executors_keep_the_same_bytes(executor: str, kept: Path) -> None:
    output = kept / f"by-{executor}"
    one = () if executor == "serial" else ("--workers", "1")
    run(kept, "run", "recipe.yaml", f"JsonlWriter.path={output}", "--keep-scores", "--executor", executor, *one)
    assert sidecars(output / "_thresher") == sidecars(kept / "kept" / "_thresher")


CHANGES = {
    "stricter": ["WordCountFilter.min_words=40"],
    "looser": ["WordCountFilter.min_words=0", "UrlsFilter.max_url_to_text_ratio=0.9"],
    "own rule": ["Letters.least=9"],
    "own score": ["Letters.letters=x", "Letters.least=1"],
    "inverted": ["UrlsFilter.invert=true"],
    "in a chain": [
        "ScoreFilter.filter_obj=[{RepeatedLinesFilter: {max_repeated_line_fraction: 0.95}}, NonAlphaNumericFilter]"
    ],
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_output_is_that_of_a_full_run(change: str, kept: Path) -> None:
    settings, name = CHANGES[change], change.replace(" ", "-")
    full = run(kept, "run", "recipe.yaml", *settings, f"JsonlWriter.path={name}", "--dropped-to", f"{name}-dropped")
    arguments = ["--output", f"{name}-again", "--dropped-to", f"{name}-again-dropped"]
    again = run(kept, "rethreshold", "kept", *settings, *arguments)
    assert files(kept / name) == files(kept / f"{name}-again") != files(kept / "kept")
    assert files(kept / f"{name}-dropped") == files(kept / f"{name}-again-dropped")
    for key in ("counts", "drop_reasons", "quarantine_reasons", "units_total"):
        assert full[key] == again[key]
    reused = used(again)
    documents = next(stage for stage in full["stages"] if stage["name"] == "WordCountFilter")["in_docs"]
    assert sum(reused["WordCountFilter"]) == documents
    assert (
        reused["WordCountFilter"][1]
        == next(stage for stage in full["stages"] if stage["name"] == "WordCountFilter")["quarantined"]
    )
    if change == "stricter":
        assert all(missing <= documents // 50 for _, missing in reused.values())
    if change == "own score":
        assert reused["Letters"][0] == 0


@pytest.mark.parametrize("kind", ["parquet", "gz"])
def test_it_holds_for_other_inputs_and_without_fusion(kind: str, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, kind)
    writer = "ParquetWriter" if kind == "parquet" else "JsonlWriter"
    settings = ["WordCountFilter.min_words=30", "Letters.least=5"]
    run(folder, "run", "recipe.yaml", f"{writer}.path=kept", "--keep-scores", "executor.fusion=false")
    run(folder, "run", "recipe.yaml", f"{writer}.path=full", *settings)
    again = run(folder, "rethreshold", "kept", *settings, "--output", "again", "--keep-scores")
    assert files(folder / "again") == files(folder / "full")
    assert all(reused > missing for reused, missing in used(again).values())
    third = run(folder, "rethreshold", "again", "WordCountFilter.min_words=31", "Letters.least=5", "--output", "third")
    run(folder, "run", "recipe.yaml", f"{writer}.path=full-third", "WordCountFilter.min_words=31", "Letters.least=5")
    assert files(folder / "third") == files(folder / "full-third")
    assert used(third)["UrlsFilter"][1] == 0


def test_the_same_command_again_has_nothing_to_do(kept: Path) -> None:
    arguments = ("rethreshold", "kept", "WordCountFilter.min_words=25", "--output", "twice")
    assert run(kept, *arguments)["status"] == "finished"
    assert run(kept, *arguments)["status"] == "nothing-to-do"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["WordCountFilter.min_words=5"], "the following arguments are required: --output"),
        (["--output", "o"], "nothing is changed; give STAGE.PARAM=VALUE"),
        (["min_words=5", "--output", "o"], "min_words: params are filled in already; write STAGE.PARAM=VALUE."),
        (
            ["WordFilter.min_words=5", "--output", "o"],
            "there is no stage 'WordFilter'. Did you mean 'WordCountFilter'?",
        ),
        (["WordCountFilter.min_word=5", "--output", "o"], "Did you mean 'min_words'?"),
        (["NewlineNormalizer.input_fields=n", "--output", "o"], "NewlineNormalizer does more than judge"),
        (["JsonlReader.blocksize=1MB", "--output", "o"], "JsonlReader does more than judge"),
    ],
)
def test_what_cannot_be_changed_is_refused(arguments: list[str], expected: str, kept: Path) -> None:
    done = thresher(kept, "rethreshold", "kept", *arguments, "--trust", "own")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert expected in done.stderr
    assert not (kept / "o").exists()


def test_untrusted_code_is_not_loaded_from_a_run_folder(kept: Path) -> None:
    done = thresher(kept, "rethreshold", "kept", "Letters.least=3", "--output", "o")
    assert done.returncode == 2
    assert "add --trust own" in done.stderr


def test_a_run_without_scores_and_an_output_of_another_run_are_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "jsonl")
    run(folder, "run", "recipe.yaml")
    done = thresher(folder, "rethreshold", "output", "Letters.least=3", "--output", "o", "--trust", "own")
    assert done.returncode == 2
    assert "this run kept no scores. Run it with --keep-scores" in done.stderr
    run(folder, "run", "recipe.yaml", "JsonlWriter.path=kept", "--keep-scores")
    done = thresher(folder, "rethreshold", "kept", "Letters.least=3", "--output", "output", "--trust", "own")
    assert done.returncode == 4
    assert "belongs to a run of a different pipeline" in done.stderr


@pytest.mark.parametrize("output", ["kept", "./kept/", "kept/_thresher"])
def test_the_run_whose_scores_are_used_is_never_replaced(output: str, kept: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in sorted((kept / "kept").rglob("*"))}
    arguments = ("Letters.least=3", "--output", output, "--trust", "own", "--fresh")
    done = thresher(kept, "rethreshold", "kept", *arguments)
    assert (done.returncode, "Traceback" in done.stderr) == (4, False)
    assert f"--output {output} belongs to the run whose scores are used; choose another path" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in sorted((kept / "kept").rglob("*"))} == before


def test_a_changed_input_is_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "jsonl")
    run(folder, "run", "recipe.yaml", "--keep-scores")
    with (folder / "input" / "part-1.jsonl").open("a") as file:
        file.write('{"text": "one more"}\n')
    done = thresher(folder, "rethreshold", "output", "Letters.least=3", "--output", "o", "--trust", "own")
    assert done.returncode == 2
    assert "the input is not what it was when its scores were kept (changed: part-1.jsonl)" in done.stderr


@pytest.mark.parametrize(
    ("stage", "place", "change", "expected"),
    [
        (
            "Whole",
            7,
            "WordCountFilter.min_words=5",
            "Whole is not row-wise (row_wise=False) and follows WordCountFilter",
        ),
        ("Chance", 1, "WordCountFilter.min_words=5", "Chance is not deterministic"),
        ("Whole", 1, "WordCountFilter.min_words=5", ""),
    ],
)
def test_a_stage_that_looks_at_several_records_must_not_follow(
    stage: str, place: int, change: str, expected: str, tmp_path: Path
) -> None:
    folder = make_folder(tmp_path, "jsonl")
    name, stages, *lines = (folder / "recipe.yaml").read_text().splitlines()
    lines.insert(place, f"  - {{_target_: own.{stage}}}")
    (folder / "recipe.yaml").write_text("\n".join([name, stages, *lines]) + "\n")
    run(folder, "run", "recipe.yaml", "--keep-scores")
    done = thresher(folder, "rethreshold", "output", change, "--output", "o", "--trust", "own")
    assert done.returncode == (2 if expected else 0), done.stderr
    assert expected in done.stderr


def test_changed_code_of_a_rule_is_noticed_and_scored_again(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "jsonl")
    run(folder, "run", "recipe.yaml", "--keep-scores")
    (folder / "own.py").write_text(OWN.replace("sum(text", "1 + sum(text"))
    again = run(folder, "rethreshold", "output", "Letters.least=6", "--output", "again")
    run(folder, "run", "recipe.yaml", "JsonlWriter.path=full", "Letters.least=6")
    assert files(folder / "again") == files(folder / "full")
    assert used(again)["Letters"][0] == 0 < used(again)["WordCountFilter"][0]
