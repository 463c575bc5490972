# SPDX-License-Identifier: Apache-2.0
"""Recipes: the grammar, what a command line may change, and what is kept of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.core.recipes.params import Substitution
from thresher.core.recipes.recipe import Recipe, built_in_recipes, load_recipe
from thresher.core.recipes.yaml_text import read_yaml
from thresher.credentials import with_credentials
from thresher.errors import RecipeError, UnsupportedError, UsageError

READ_AND_WRITE = """\
name: english
description: what it is for
params: {input_path: ???, output_path: ???, min_words: 50}
executor: {name: local, workers: 2, memory: 4GB}
options: {max_errors: 5%, keep_scores: false, dropped_to: null}
stages:
  - JsonlReader: {file_paths: "${input_path}", blocksize: 64MB}
  - WordCountFilter: {min_words: "${min_words}"}
  - ScoreFilter: {filter_obj: [{UrlsFilter: {}}, {NonAlphaNumericFilter: {}}], text_field: text}
  - JsonlWriter: {path: "${output_path}"}
"""
PATHS = {"input_path": "in", "output_path": "out"}


def load(
    stages: str, overrides: dict[str, Any] | None = None, *, head: str = "", trust: tuple[str, ...] = ()
) -> Recipe:
    """A recipe with these stages."""
    return load_recipe(f"name: test\n{head}stages:\n{stages}", overrides, trust)


def message(
    stages: str, overrides: dict[str, Any] | None = None, *, head: str = "", trust: tuple[str, ...] = ()
) -> str:
    """What is wrong with a recipe with these stages; the first stage is in line 3 unless there is a head."""
    with pytest.raises(RecipeError) as caught:
        load(stages, overrides, head=head, trust=trust)
    return str(caught.value)


def stage(recipe: Recipe, number: int = 0) -> Any:
    return recipe.stages[number]


# -- grammar ----------------------------------------------------------------------------------------------------------


def test_the_example_of_the_documentation_becomes_a_pipeline() -> None:
    recipe = load_recipe(READ_AND_WRITE, PATHS)
    assert recipe.name == "english"
    assert recipe.description == "what it is for"
    assert recipe.params == {"input_path": "in", "output_path": "out", "min_words": 50}
    assert recipe.executor == {"name": "local", "workers": 2, "memory": "4GB"}
    assert recipe.options == {"max_errors": "5%", "keep_scores": False, "dropped_to": None}
    pipeline = recipe.pipeline()
    assert pipeline.name == "english"
    assert [s.name for s in pipeline.stages] == ["JsonlReader", "WordCountFilter", "ScoreFilter", "JsonlWriter"]
    assert stage(recipe, 1).filter_obj.min_words == 50
    assert [type(rule).__name__ for rule in stage(recipe, 2).filter_obj] == ["UrlsFilter", "NonAlphaNumericFilter"]


def test_json_is_a_recipe_too(tmp_path: Path) -> None:
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps({"name": "x", "stages": [{"AddId": {"id_field": "id"}}]}))
    assert stage(load_recipe(file)).id_field == "id"


def test_a_mapping_is_a_recipe_too_and_stays_as_it_is() -> None:
    given: dict[str, Any] = {"name": "x", "params": {"field": "a"}, "stages": [{"AddId": {"id_field": "${field}"}}]}
    before = json.dumps(given)
    assert stage(load_recipe(given, {"AddId.overwrite": True})).id_field == "a"
    assert json.dumps(given) == before


@pytest.mark.parametrize("item", ["WordCountFilter", "WordCountFilter:", "WordCountFilter: {}"])
def test_a_stage_without_parameters_is_written_in_three_ways(item: str) -> None:
    assert stage(load(f"  - {item}\n")).filter_obj.min_words == 50


def test_a_filter_is_wrapped_and_takes_the_parameters_of_its_wrapper() -> None:
    made = stage(load("  - WordCountFilter: {min_words: 3, text_field: body, score_field: words, invert: true}\n"))
    assert type(made).__name__ == "ScoreFilter"
    assert made.name == "WordCountFilter"
    assert made.filter_obj.min_words == 3
    assert (made.text_field, made.score_field, made.invert) == ("body", "words", True)


def test_a_modifier_is_wrapped_and_takes_the_parameters_of_its_wrapper() -> None:
    made = stage(load("  - NewlineNormalizer: {input_fields: body}\n"))
    assert type(made).__name__ == "Modify"
    assert made.name == "NewlineNormalizer"
    assert made.input_fields == "body"


def test_any_stage_takes_the_settings_of_the_framework() -> None:
    made = stage(
        load(
            "  - AddId: {id_field: id, name: number, resources: {cpus: 0.5}, batch_size: 4, num_workers: 2,"
            " timeout_s: 1.5, max_attempts: 1}\n"
        )
    )
    assert made.name == "number"
    assert made.resources.cpus == 0.5
    assert made.batch_size == 4
    assert made.num_workers() == 2
    assert made.timeout_s == 1.5
    assert made.max_attempts == 1


def test_the_second_of_a_kind_gets_a_number() -> None:
    recipe = load("  - UrlsFilter\n  - UrlsFilter\n  - UrlsFilter: {name: links}\n  - UrlsFilter\n")
    assert [s.name for s in recipe.stages] == ["UrlsFilter", "UrlsFilter-2", "links", "UrlsFilter-3"]


def test_a_number_does_not_collide_with_a_name_that_was_given() -> None:
    recipe = load("  - UrlsFilter: {name: UrlsFilter-2}\n  - UrlsFilter\n  - UrlsFilter\n")
    assert [s.name for s in recipe.stages] == ["UrlsFilter-2", "UrlsFilter", "UrlsFilter-3"]


def test_rules_inside_a_stage_are_written_like_stages() -> None:
    recipe = load("  - Score: {score_fn: WordCountFilter, score_field: words}\n")
    assert type(stage(recipe).score_fn).__name__ == "WordCountFilter"
    recipe = load("  - ScoreFilter: {filter_obj: {WordCountFilter: {min_words: 7}}}\n")
    assert stage(recipe).filter_obj.min_words == 7
    recipe = load("  - Modify: {modifier_fn: [NewlineNormalizer]}\n")
    assert [type(m).__name__ for m in stage(recipe).modifier_fn] == ["NewlineNormalizer"]


def test_the_built_in_recipes_load() -> None:
    assert "quick-text" in built_in_recipes()
    for name in built_in_recipes():
        needed = {"tokenizer": "tiktoken:gpt2"} if name == "tokenize-megatron" else {}
        params = read_yaml(built_in_recipes()[name].read_text(encoding="utf-8"), name)[0]["params"]
        given = {param: "http://127.0.0.1:9/v1" for param, value in params.items() if value == "???"}
        recipe = load_recipe(name, {**given, **PATHS, **needed})
        assert recipe.name == name
        assert recipe.description


def test_a_file_goes_before_a_built_in_recipe_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quick-text").write_text("name: mine\nstages: [UrlsFilter]\n")
    assert load_recipe("quick-text").name == "mine"


# -- params -----------------------------------------------------------------------------------------------------------


def test_a_value_that_is_one_param_keeps_its_type() -> None:
    head = "params: {n: 7, fields: [a, b]}\n"
    assert stage(load("  - WordCountFilter: {min_words: '${n}'}\n", head=head)).filter_obj.min_words == 7
    assert stage(load("  - JsonlReader: {file_paths: x, fields: '${fields}'}\n", head=head)).fields == ["a", "b"]


def test_a_param_inside_a_text_is_written_into_it() -> None:
    head = "params: {base: data, n: 7, on: true, none: null}\n"
    recipe = load("  - JsonlWriter: {path: '${base}/v${n}/${on}${none}'}\n", head=head)
    assert stage(recipe).path == "data/v7/true"


def test_two_dollars_keep_a_reference_as_it_is() -> None:
    recipe = load("  - JsonlWriter: {path: 'a/$${b}'}\n")
    assert stage(recipe).path == "a/${b}"


def test_params_work_in_executor_and_options_too() -> None:
    recipe = load(
        "  - UrlsFilter\n", head="params: {n: 3, d: x}\nexecutor: {workers: '${n}'}\noptions: {dropped_to: '${d}'}\n"
    )
    assert recipe.executor == {"workers": 3}
    assert recipe.options == {"dropped_to": "x"}


@given(st.dictionaries(st.sampled_from("abc"), st.integers() | st.booleans() | st.none() | st.text(), min_size=1))
def test_substitution_gives_back_every_value_and_leaves_texts_without_references_alone(params: dict[str, Any]) -> None:
    filling = Substitution(params)
    for name, value in params.items():
        found = filling.fill(f"${{{name}}}")
        assert found == value
        assert type(found) is type(value)
        assert filling.fill([{"x": name}]) == [{"x": name}]
    assert not filling.problems


# -- key=value --------------------------------------------------------------------------------------------------------


def test_a_param_can_be_given() -> None:
    assert load_recipe(READ_AND_WRITE, {**PATHS, "min_words": 80}).params["min_words"] == 80


def test_a_parameter_of_a_stage_can_be_given_by_the_name_of_the_stage() -> None:
    stages = "  - WordCountFilter\n  - WordCountFilter: {min_words: 5}\n"
    recipe = load(
        stages, {"WordCountFilter-2.min_words": 80, "WordCountFilter.max_words": 90, "WordCountFilter.name": "w"}
    )
    assert stage(recipe, 0).filter_obj.max_words == 90
    assert stage(recipe, 1).filter_obj.min_words == 80


def test_a_key_inside_a_parameter_can_be_given() -> None:
    stages = "  - JsonlReader: {file_paths: x, storage_options: {anon: true}}\n"
    recipe = load(stages, {"JsonlReader.storage_options.endpoint_url": "http://here"})
    assert stage(recipe).storage_options == {"anon": True, "endpoint_url": "http://here"}


def test_options_of_the_executor_and_of_the_run_can_be_given() -> None:
    recipe = load("  - UrlsFilter\n", {"executor.workers": 4, "options.max_errors": 0}, head="executor: serial\n")
    assert recipe.executor == {"name": "serial", "workers": 4}
    assert recipe.options == {"max_errors": 0}
    assert load("  - UrlsFilter\n", {"executor": "serial"}).executor == {"name": "serial"}


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_the_resolved_recipe_is_a_recipe_that_gives_the_same_pipeline() -> None:
    recipe = load_recipe(READ_AND_WRITE, {**PATHS, "WordCountFilter.max_words": 90})
    again = load_recipe(recipe.resolved)
    assert again.resolved == recipe.resolved
    assert stage(again, 1).filter_obj.max_words == 90
    assert json.loads(json.dumps(recipe.resolved)) == recipe.resolved


def test_secrets_are_hidden_in_the_resolved_recipe_and_given_to_the_stage() -> None:
    head = "params: {password: hunter2, place: s3://me:hunter3@bucket/in}\n"
    recipe = load(
        "  - JsonlReader:\n      file_paths: '${place}'\n"
        "      storage_options: {anon: false, client_kwargs: {p: '${password}'}}\n",
        head=head,
    )
    reader = stage(recipe)
    assert reader.file_paths == "s3://bucket/in"
    options = {"anon": False, "client_kwargs": {"p": "hunter2"}, "key": "me", "secret": "hunter3"}
    assert with_credentials(reader.file_paths, reader.storage_options) == ("s3://bucket/in", options)
    kept = json.dumps(recipe.resolved)
    assert "hunter" not in kept
    assert recipe.resolved["params"] == {"password": "***", "place": "s3://***@bucket/in"}
    assert recipe.resolved["stages"][0]["JsonlReader"]["storage_options"] == {
        "anon": False,
        "client_kwargs": {"p": "***"},
    }


@pytest.mark.parametrize(
    ("stages", "overrides"),
    [
        ("  - JsonlReader: {file_paths: x, storage_options: hunter2}\n", {}),
        ("  - JsonlReader: {file_paths: x}\n", {"JsonlReader.storage_options": "hunter2"}),
        ("  - JsonlReader: {file_paths: x}\n", {"Reader.storage_options.key": "hunter2"}),
    ],
)
def test_secrets_are_hidden_in_messages(stages: str, overrides: dict[str, Any]) -> None:
    assert "hunter2" not in message(stages, overrides)


# -- executors --------------------------------------------------------------------------------------------------------


def test_the_executor_is_made_with_its_options_and_the_caller_wins() -> None:
    recipe = load("  - UrlsFilter\n", head="executor: {name: local, workers: 3}\n")
    assert recipe.make_executor().limits().shared_workers == 3
    assert recipe.make_executor({"workers": 1}).limits().shared_workers == 1
    assert load("  - UrlsFilter\n").make_executor().name == "local"


def test_a_setting_that_an_executor_would_ignore_is_refused_or_told() -> None:
    recipe = load("  - UrlsFilter\n", head="executor: {name: serial, workers: 3}\n")
    with pytest.raises(
        UnsupportedError, match=r"'serial' does not honour 'workers' \(workers=3\): .*; it is honoured by: local"
    ):
        recipe.make_executor()
    told: list[str] = []
    assert recipe.make_executor(warn=told.append).name == "serial"
    assert told == [
        (
            "executor 'serial' does not honour 'workers' (workers=3): everything runs in this process; "
            "the run goes on without it"
        )
    ]


def test_an_option_that_no_executor_has_is_an_error_in_any_case() -> None:
    recipe = load("  - UrlsFilter\n", head="executor: {workrs: 3}\n")
    for warn in (None, print):
        with pytest.raises(UsageError, match=r"unknown option 'workrs'\. Did you mean 'workers'\?"):
            recipe.make_executor(warn=warn)
