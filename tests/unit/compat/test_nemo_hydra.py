# SPDX-License-Identifier: Apache-2.0
"""Configurations of NeMo Curator as recipes: stages, references, values from the command line, executors, workflows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from thresher.cli.main import main
from thresher.compat.nemo.hydra import load_hydra
from thresher.core.recipes.recipe import Recipe, load_recipe
from thresher.errors import RecipeError

HEAD = """\
defaults: [_self_, override hydra/job_logging: none]
hydra: {run: {dir: .}, output_subdir: null}
documentation: |
  What it is for.
input_path: ???
output_path: ???
text_field: text
"""
TEXT = "nemo_curator.stages.text"
STAGES = f"""\
stages:
  - _target_: {TEXT}.io.reader.JsonlReader
    file_paths: ${{input_path}}
    files_per_partition: null
    blocksize: null
  - _target_: {TEXT}.filters.score_filter.ScoreFilter
    filter_obj: {{_target_: {TEXT}.filters.heuristic.string.WordCountFilter, min_words: 50}}
    text_field: ${{text_field}}
    score_field: null
  - _target_: {TEXT}.modifiers.modifier.Modify
    modifier_fn: {{_target_: {TEXT}.modifiers.string.NewlineNormalizer}}
    resources: {{cpus: 0.5}}
  - _target_: {TEXT}.io.writer.JsonlWriter
    path: ${{output_path}}/kept
"""
PATHS = {"input_path": "in", "output_path": "out"}


def load(tmp_path: Path, text: str, **settings: Any) -> Recipe:
    path = tmp_path / "their file.yaml"
    path.write_text(text)
    return load_hydra(str(path), {key.replace("__", "."): value for key, value in settings.items()})


def test_a_configuration_is_the_recipe_that_one_would_write_by_hand(tmp_path: Path) -> None:
    found = load(tmp_path, HEAD + STAGES, **PATHS)
    by_hand = load_recipe(
        {
            "name": "their_file",
            "stages": [
                {"JsonlReader": {"file_paths": "in"}},
                {"WordCountFilter": {"min_words": 50}},
                {"NewlineNormalizer": {"resources": {"cpus": 0.5}}},
                {"JsonlWriter": {"path": "out/kept"}},
            ],
        }
    )
    assert [type(stage) for stage in found.stages] == [type(stage) for stage in by_hand.stages]
    assert [stage.name for stage in found.stages] == [stage.name for stage in by_hand.stages]
    assert [stage.resources for stage in found.stages] == [stage.resources for stage in by_hand.stages]
    assert found.name == by_hand.name


def test_the_recipe_in_the_run_folder_needs_nothing_of_hydra(tmp_path: Path) -> None:
    found = load(tmp_path, HEAD + STAGES, **PATHS)
    assert [stage.name for stage in load_recipe(found.resolved).stages] == [stage.name for stage in found.stages]


def test_values_of_the_command_line_reach_keys_list_entries_and_stages(tmp_path: Path) -> None:
    settings = {**PATHS, "text_field": "body", "stages.1.filter_obj.min_words": 7, "+stages.0.limit": 9}
    path = tmp_path / "c.yaml"
    path.write_text(HEAD + STAGES)
    reader, words, _, _ = load_hydra(str(path), settings).stages
    assert (reader.limit, words.text_field, words.filter_obj.min_words) == (9, "body", 7)  # type: ignore[attr-defined]  # of their kind
    again = load_hydra(str(path), {**PATHS, "WordCountFilter.min_words": 8, "executor.workers": 3})
    assert again.stages[1].filter_obj.min_words == 8  # type: ignore[attr-defined]  # a ScoreFilter
    assert again.executor["workers"] == 3


def test_everything_that_must_be_given_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="add input_path=VALUE, output_path=VALUE to the command line"):
        load(tmp_path, HEAD + STAGES)


def test_references_nest_and_read_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA", "from-environment")
    text = HEAD.replace("input_path: ???", "root: {in: '${oc.env:DATA}'}\ninput_path: ${root.in}/raw")
    text = text.replace("output_path: ???", "output_path: ${oc.env:NOT_SET,out}")
    reader, *_, writer = load(tmp_path, text + STAGES).stages
    assert (reader.file_paths, writer.path) == ("from-environment/raw", "out/kept")  # type: ignore[attr-defined]  # of their kind


@pytest.mark.parametrize(
    ("line", "executor"),
    [
        ("", {}),
        ("backend: xenna\nexecution_mode: batch\n", {"name": "xenna", "execution_mode": "batch"}),
        ("backend: ray_data\n", {"name": "ray-data"}),
        ("execution_mode: batch\n", {"execution_mode": "batch"}),
        ("ray_client: {_target_: nemo_curator.core.client.RayClient, num_cpus: 3, num_gpus: 4}\n", {"workers": 3}),
    ],
)
def test_backend_and_ray_client_choose_the_executor(tmp_path: Path, line: str, executor: dict[str, Any]) -> None:
    assert load(tmp_path, HEAD + line + STAGES, **PATHS).executor == executor


def test_a_workflow_is_its_pipeline(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "a"}\n')
    text = f"""\
input_path: {tmp_path}/in
workflow:
  - _target_: nemo_curator.stages.deduplication.fuzzy.workflow.FuzzyDeduplicationWorkflow
    input_path: ${{input_path}}
    output_path: {tmp_path}/out
    cache_path: {tmp_path}/cache
    input_blocksize: 1GiB
    perform_removal: false
    num_bands: 10
    minhashes_per_band: 4
    use_64_bit_hash: false
    bands_per_iteration: 5
    env_vars: null
"""
    found = load(tmp_path, text)
    reader, stage, writer = found.stages
    assert [type(one).__name__ for one in (reader, stage, writer)] == [
        "JsonlReader",
        "FuzzyDeduplication",
        "ParquetWriter",
    ]
    assert writer.path == f"{tmp_path}/out/FuzzyDuplicateIds"  # type: ignore[attr-defined]  # a writer
    assert found.options == {"run_dir": f"{tmp_path}/cache"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stages: []\n", "either `stages`, a list, or `workflow`"),
        ("stages: [{_target_: nemo_curator.stages.audio.common.ManifestReader}]\n", r"stages\[0\].*task type"),
        (f"stages: [{{_target_: {TEXT}.io.JsonlReader, file_paths: a, read_kwargs: {{nrows: 3}}}}]\n", "'nrows'"),
        (f"stages: [{{_target_: {TEXT}.io.JsonlReader, file_paths: '${{nope}}'}}]\n", r"\$\{nope\}: there is nothing"),
        ("a: ${b}\nb: ${a}\nstages: [{_target_: nemo_curator.x.Y, b: '${a}'}]\n", "refers to itself"),
        ("stages: [{_target_: own.Stage}]\n", "--trust own"),
        ("backend: dask\nstages: [{_target_: nemo_curator.x.Y}]\n", "has nothing that stands for|is not one of"),
        ("defaults: [other]\nstages: []\n", "into one file"),
    ],
)
def test_what_cannot_be_translated_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load(tmp_path, text)


def test_a_recipe_that_names_a_class_of_theirs_stays_a_recipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        f"name: own\nparams: {{a: b}}\nstages: [{{_target_: {TEXT}.io.JsonlReader, file_paths: '${{a}}'}}]\n"
    )
    assert main(["plan", str(path)]) == 2
    assert "--trust nemo_curator" in capsys.readouterr().err


def test_a_configuration_may_be_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "a"}\n')
    stages = [
        {"_target_": f"{TEXT}.io.JsonlReader", "file_paths": "${input_path}"},
        {"_target_": f"{TEXT}.io.JsonlWriter", "path": f"{tmp_path}/out"},
    ]
    (tmp_path / "c.json").write_text(json.dumps({"input_path": "???", "stages": stages}, indent=1))
    assert main(["plan", str(tmp_path / "c.json"), f"input_path={tmp_path}/in", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["output"] == f"{tmp_path}/out"


def test_a_key_that_the_configuration_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"Did you mean 'text_field'\? Write \+text_feild=VALUE to add it"):
        load(tmp_path, HEAD + STAGES, **PATHS, text_feild="body")
