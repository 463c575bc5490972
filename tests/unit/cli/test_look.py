# SPDX-License-Identifier: Apache-2.0
"""Commands that show something and change nothing: stages, recipes, init, plan."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from thresher.cli.main import main
from thresher.core.recipes.recipe import load_recipe
from thresher.core.registry import entries
from thresher.kernels.build.compile import CannotCompile


def test_stages_lists_every_name_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stages"]) == 0
    out = capsys.readouterr().out
    for entry in entries().values():
        assert f"  {entry.name}" in out
        assert entry.summary() in out


def test_stages_as_json_has_name_kind_and_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stages", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["stages"]
    assert {(stage["name"], stage["kind"]) for stage in found} == {(e.name, e.kind) for e in entries().values()}


def test_one_stage_is_shown_with_parameters_defaults_and_types(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stages", "WordCountFilter"]) == 0
    out = capsys.readouterr().out
    assert "WordCountFilter (filter)" in out
    assert "  min_words  default 50      a whole number\n" in out
    assert "parameters of ScoreFilter, which a recipe wraps it in" in out
    assert "  text_field   default 'text'  a text, a list of texts or a list of lists of texts\n" in out
    assert "  max_attempts  a whole number or null\n" in out
    assert out.endswith("in a recipe\n  - WordCountFilter\n")


@pytest.mark.parametrize("name", ["JsonlReader", "ParquetReader", "JsonlWriter", "ParquetWriter"])
def test_every_parameter_of_readers_and_writers_is_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stages", name, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [p["name"] for p in shown["parameters"] if f"`{p['name']}`: " not in shown["parameters_doc"]] == []
    assert ("standard" in shown["doc"] + shown["parameters_doc"]) == name.startswith("Jsonl")


def test_a_list_of_objects_is_described_without_an_article(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stages", "ScoreFilter"]) == 0
    assert "a DocumentFilter or a list of DocumentFilter objects" in capsys.readouterr().out


def test_a_required_parameter_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stages", "JsonlWriter"]) == 0
    out = capsys.readouterr().out
    assert "  path              required         a text\n" in out
    assert out.endswith("in a recipe\n  - JsonlWriter: {path: …}\n")


@pytest.mark.parametrize("name", sorted(entries()))
def test_every_stage_can_be_shown_as_json(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stages", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["name"] == name
    assert found["doc"].startswith(found["summary"])
    assert all({"name", "type", "required"} <= set(parameter) for parameter in found["parameters"])


def test_an_unknown_stage_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stages", "UrlFilter"]) == 2
    assert "Did you mean 'UrlsFilter'?" in capsys.readouterr().err


def test_recipes_shows_what_must_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    out = capsys.readouterr().out
    assert "quick-text: Five quick rules" in out
    assert "    input_path   must be given\n" in out
    assert "    min_words    50\n" in out
    assert main(["recipes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recipes"]["quick-text"]["params"]["min_words"] == 50


def test_init_writes_a_recipe_that_loads_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "recipe.yaml\n"
    assert "then: thresher run recipe.yaml" in shown.err
    recipe = load_recipe(tmp_path / "recipe.yaml")
    assert set(recipe.params) == {"input_path", "output_path", "min_words"}
    assert "{{" not in (tmp_path / "recipe.yaml").read_text()


def test_the_examples_in_the_comments_of_the_recipe_are_right(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    assert main(["init", str(file)]) == 0
    lines = file.read_text().splitlines()
    text = "\n".join(
        line.removeprefix("# ") if line.startswith(("# executor", "# options")) else line for line in lines
    )
    recipe = load_recipe(text + "\n")
    assert recipe.executor["workers"] == 2
    assert recipe.options["dropped_to"] == "data/dropped"


def test_init_never_overwrites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text("mine")
    for target in (file, tmp_path):
        assert main(["init", str(target)]) == 2
        assert f"{file} exists and is left as it is" in capsys.readouterr().err
    assert file.read_text() == "mine"


def test_init_says_why_it_cannot_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "none" / "recipe.yaml")]) == 2
    assert "recipe.yaml cannot be written: No such file or directory" in capsys.readouterr().err


def test_plan_shows_stages_groups_workers_memory_and_units_and_writes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(["plan", "recipe.yaml", "--workers", "3", "--memory", "9GB"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("small: a recipe for tests\n")
    assert "  workers  3 shared\n  memory   9.0 GB\n  mode     streaming\n" in out
    assert "  WordCountFilter  ScoreFilter  DocumentBatch -> DocumentBatch  cpus 1\n" in out
    assert "  1. any shared worker: JsonlReader + WordCountFilter + JsonlWriter\n" in out
    assert "  1 file, 27.0 kB: 1 unit\n" in out
    assert out.endswith("output\n  output\n")
    assert not (folder / "output").exists()


def test_plan_as_json_has_the_same_facts(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    arguments = ["JsonlReader.blocksize=10kB", "WordCountFilter.num_workers=2", "--executor", "serial", "--json"]
    assert main(["plan", "recipe.yaml", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["executor"] == {"name": "serial", "workers": 1, "memory_bytes": None, "execution_mode": "streaming"}
    assert found["units"] == {
        "units": 3,
        "streams": 0,
        "files": 1,
        "bytes": (folder / "input/part.jsonl").stat().st_size,
    }
    assert [group["stages"] for group in found["routes"]["unit"]] == [
        ["JsonlReader"],
        ["WordCountFilter"],
        ["JsonlWriter"],
    ]
    assert found["routes"]["unit"][1]["dedicated"]
    assert found["routes"]["unit"][1]["workers"] == 1, "the serial executor has one worker for each stage"


def test_plan_tells_files_that_cannot_be_split(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    (folder / "input" / "more.jsonl.gz").write_bytes(gzip.compress(os.urandom(5000)))
    assert main(["plan", "recipe.yaml", "JsonlReader.blocksize=1kB"]) == 0
    out = capsys.readouterr().out
    assert "(files that must be unpacked from their start)" in out
    assert "  1. any shared worker: JsonlReader (unpacks)\n" in out
    assert " units and 1 compressed file, cut into units as they are read\n" in out


def test_plan_names_a_column_that_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(["plan", "recipe.yaml", "JsonlReader.fields=[id]"]) == 2
    assert "WordCountFilter needs the column 'text'" in capsys.readouterr().err


def test_plan_refuses_what_the_executor_would_ignore(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    arguments = ["plan", "recipe.yaml", "--executor", "serial", "--workers", "2"]
    assert main(arguments) == 2
    assert (
        "executor 'serial' does not honour 'workers' (workers=2): everything runs in this process; "
        "it is honoured by: local" in capsys.readouterr().err
    )
    assert main([*arguments, "--allow-unsupported"]) == 0
    assert "thresher: warning: executor 'serial' does not honour 'workers'" in capsys.readouterr().err


def test_warm_up_compiles_everything_and_says_where_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[object] = []
    monkeypatch.setattr("thresher.kernels.build.compile.compile_all", lambda announcer: asked.append(announcer) is None)
    assert main(["warm-up", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["compiled"] is True
    assert os.path.isdir(told["folder"])
    assert main(["warm-up", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert len(asked) == 2


def test_warm_up_that_cannot_compile_fails_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(announcer: object) -> bool:
        raise CannotCompile("not compiled: places")

    monkeypatch.setattr("thresher.kernels.build.compile.compile_all", refuse)
    assert main(["warm-up"]) == 1
    assert "not compiled: places" in capsys.readouterr().err


def test_what_is_shown_of_a_stage_is_written_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    for entry in entries().values():
        assert main(["stages", entry.name]) == 0
    assert "Initialize self" not in capsys.readouterr().out
