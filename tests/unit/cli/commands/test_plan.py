# SPDX-License-Identifier: Apache-2.0
"""`thresher plan` and `thresher run` tell all mistakes of a recipe before any work, in one message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Thresher
from thresher.cli.main import main

MISTAKES = """\
name: mistakes
stages:
  - JsonlReader: {file_paths: input}
  - UnigramLogProbFilter: {frequency_file: words.csv}
  - UrlBlocklistFilter: {domains: domains.txt}
  - JsonlWriter: {path: input/output}
"""


@pytest.mark.parametrize("command", [("plan",), ("run",), ("run", "--executor", "serial")])
def test_all_mistakes_that_a_plan_finds_are_one_message_and_exit_2(
    folder: Path, thresher: Thresher, command: tuple[str, ...]
) -> None:
    (folder / "mistakes.yaml").write_text(MISTAKES)
    done = thresher(command[0], "mistakes.yaml", *command[1:])
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "3 problems:" in done.stderr
    assert "1. UnigramLogProbFilter.frequency_file: there is no file 'words.csv'" in done.stderr
    assert "2. UrlBlocklistFilter.domains: there is no file 'domains.txt'" in done.stderr
    assert "3. the output input/output lies inside the input" in done.stderr
    assert not (folder / "input" / "output").exists()


def test_a_recipe_that_cannot_be_built_also_tells_what_the_plan_would_find(folder: Path, thresher: Thresher) -> None:
    recipe = MISTAKES.replace("  - JsonlWriter", "  - WordCountFilter: {min_words: 9, max_words: 3}\n  - JsonlWriter")
    (folder / "mistakes.yaml").write_text(recipe)
    done = thresher("plan", "mistakes.yaml")
    assert done.returncode == 2
    assert "1. mistakes.yaml:4: stages[1].UnigramLogProbFilter.frequency_file: there is no file" in done.stderr
    assert "3. mistakes.yaml:6: stages[3].WordCountFilter.min_words: 9 is above max_words, which is 3" in done.stderr


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize("name", ["not.json", "not.model"])
def test_a_file_that_is_no_tokenizer_is_refused_before_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    (tmp_path / name).write_text('{"a": 1}')
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    stages = [
        {"JsonlReader": {"file_paths": str(tmp_path / "a.jsonl")}},
        {"TokenCounter": {"tokenizer": str(tmp_path / name)}},
        {"JsonlWriter": {"path": str(tmp_path / "out")}},
    ]
    (tmp_path / "recipe.yaml").write_text(json.dumps({"name": "r", "stages": stages}))
    assert main([command, str(tmp_path / "recipe.yaml")]) == 2
    assert "cannot be loaded as a tokenizer" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_wrong_parameter_does_not_hide_other_mistakes_of_its_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = {"file_paths": str(tmp_path / "missing.jsonl"), "blocksize": "huh", "limit": 0}
    counter = {"tokenizer": str(tmp_path / "missing.json"), "text_field": 3}
    stages = [{"JsonlReader": reader}, {"TokenCounter": counter}]
    (tmp_path / "recipe.yaml").write_text(json.dumps({"name": "r", "stages": stages}))
    assert main(["plan", str(tmp_path / "recipe.yaml")]) == 2
    told = capsys.readouterr().err
    assert "5 problems" in told
    for mistake in ("blocksize: 'huh'", "limit: 0", "missing.jsonl does not exist", "text_field: 3", "missing.json'"):
        assert mistake in told
