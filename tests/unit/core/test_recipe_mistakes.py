# SPDX-License-Identifier: Apache-2.0
"""What is said about each mistake in a recipe: line, path, value, what is legal, the nearest name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from thresher.core.recipes.recipe import load_recipe
from thresher.errors import RecipeError, ThresherError

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


def message(stages: str) -> str:
    """What is wrong with a recipe with these stages; the first one is in line 3."""
    with pytest.raises(RecipeError) as caught:
        load_recipe(f"name: test\nstages:\n{stages}")
    return str(caught.value)


MISTAKES = [
    (
        "  - WordCountFilter: {min_words: '5'}\n",
        "recipe:3: stages[0].WordCountFilter.min_words: '5' is a text; it must be a whole number. Write it without",
    ),
    (
        "  - UrlsFilter\n  - WordCountFilter:\n      min_words: true\n",
        "recipe:5: stages[1].WordCountFilter.min_words: true is a truth value; it must be a whole number",
    ),
    (
        "  - WordCountFilter: {min_word: 5}\n",
        (
            "recipe:3: stages[0].WordCountFilter.min_word: WordCountFilter has no parameter 'min_word'. Did you mean "
            "'min_words'? It takes: min_words, max_words, lang, text_field, score_field, invert, name, resources, "
            "batch_size, num_workers, timeout_s, max_attempts, drops_to"
        ),
    ),
    (
        "  - WordCounFilter\n",
        (
            "recipe:3: stages[0]: 'WordCounFilter' is not a stage, filter or modifier that Thresher knows. "
            "Did you mean 'WordCountFilter'? `thresher stages` lists them all"
        ),
    ),
    ("  - JsonlWriter\n", "recipe:3: stages[0].JsonlWriter.path: JsonlWriter needs it and it is not given: a text"),
    (
        "  - JsonlReader: {file_paths: [a, 5]}\n",
        'recipe:3: stages[0].JsonlReader.file_paths[1]: 5 is a whole number; it must be a text. Put it in quotes: "5"',
    ),
    (
        "  - JsonlReader: {file_paths: x, blocksize: 64XB}\n",
        "recipe:3: stages[0].JsonlReader.blocksize: '64XB' is not a size",
    ),
    (
        "  - JsonlWriter: {path: x, mode: replace}\n",
        "recipe:3: stages[0].JsonlWriter.mode: 'replace' is not one of error",
    ),
    (
        "  - AddId: {id_field: x, batch_size: 0}\n",
        "recipe:3: stages[0].AddId.batch_size: 0 is not a whole number of 1 or more",
    ),
    (
        "  - AddId: {id_field: x, resources: {cpu: 1}}\n",
        "recipe:3: stages[0].AddId.resources.cpu: Resources has no parameter 'cpu'. Did you mean 'cpus'?",
    ),
    (
        "  - AddId: {id_field: x, resources: 2}\n",
        "recipe:3: stages[0].AddId.resources: 2 is a whole number; it must be a Resources",
    ),
    (
        "  - AddId: {id_field: x, resources: {gpus: 1.5}}\n",
        "stages[0].AddId.resources.gpus: 1.5; a fraction is legal below 1",
    ),
    (
        "  - ScoreFilter: {filter_obj: [{UrlsFiler: {}}]}\n",
        (
            "recipe:3: stages[0].ScoreFilter.filter_obj[0]: 'UrlsFiler' is not a stage, filter or modifier "
            "that Thresher knows. Did you mean 'UrlsFilter'?"
        ),
    ),
    (
        "  - ScoreFilter: {filter_obj: [{UrlsFilter: {max_url_to_text_ratio: high}}]}\n",
        (
            "recipe:3: stages[0].ScoreFilter.filter_obj[0].UrlsFilter.max_url_to_text_ratio: 'high' is a text; it must "
            "be a number"
        ),
    ),
    (
        "  - 5\n",
        "recipe:3: stages[0]: 5 is not a stage; write Name, {Name: {parameter: value}} or {_target_: package.Class}",
    ),
    (
        "  - WordCountFilter: 5\n",
        "recipe:3: stages[0].WordCountFilter: 5 is not a mapping of parameters; write WordCountFilter: {",
    ),
    (
        "  - WordCountFilter:\n    min_words: 5\n",
        (
            "recipe:3: stages[0]: {'WordCountFilter': None, 'min_words': 5} is not a stage; write Name, {Name: "
            "{parameter: value}} or {_target_: package.Class}. Its parameters must stand below its name, further in"
        ),
    ),
    (
        "  - JsonlWriter: {path: '${out}'}\n",
        "stages[0].JsonlWriter.path: ${out}: there is no param 'out'. Params: none",
    ),
]


@pytest.mark.parametrize(("stages", "expected"), MISTAKES)
def test_a_mistake_in_a_stage_is_told_with_line_path_value_and_what_is_legal(stages: str, expected: str) -> None:
    assert expected in message(stages)


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("\n", "recipe: the recipe is empty; it needs at least `name` and `stages`"),
        ("- a\n- b\n", "recipe: the recipe holds ['a', 'b'], which is not a mapping"),
        ("stages: [UrlsFilter]\n", "recipe: name: every recipe needs a name of letters, digits, - and _"),
        (
            "name: a b\nstages: [UrlsFilter]\n",
            "recipe:1: name: 'a b' is not a name; a name has letters, digits, - and _ only",
        ),
        ("name: 5\nstages: [UrlsFilter]\n", "recipe:1: name: 5 is not a name"),
        ("name: x\n", "recipe: stages: is missing; a recipe needs a list with at least one stage"),
        ("name: x\nstages: []\n", "recipe:2: stages: [] is not a list of stages"),
        ("name: x\nstages: UrlsFilter\n", "recipe:2: stages: 'UrlsFilter' is not a list of stages"),
        (
            "name: x\nstage: []\nstages: [UrlsFilter]\n",
            (
                "recipe:2: stage: a recipe has no key 'stage'. Did you mean 'stages'? It has: name, description, "
                "params, executor, options, stages, outlets"
            ),
        ),
        ("name: x\ndescription: 5\nstages: [UrlsFilter]\n", "recipe:2: description: 5 is not a text; put it in quotes"),
        ("name: x\nparams: [a]\nstages: [UrlsFilter]\n", "recipe:2: params: ['a'] is not a mapping of names to values"),
        ("name: x\nexecutor: 5\nstages: [UrlsFilter]\n", "recipe:2: executor: 5 is neither a name nor a mapping"),
        (
            "name: x\nexecutor: rai\nstages: [UrlsFilter]\n",
            "recipe:2: executor: 'rai' is not an executor. Did you mean 'ray",
        ),
        (
            "name: x\nexecutor: {name: loca}\nstages: [UrlsFilter]\n",
            "recipe:2: executor.name: 'loca' is not an executor.",
        ),
        (
            "name: x\noptions: {max_error: 5}\nstages: [UrlsFilter]\n",
            "recipe:2: options.max_error: options has no parameter 'max_error'. Did you mean 'max_errors'?",
        ),
        (
            "name: x\noptions: {max_errors: few}\nstages: [UrlsFilter]\n",
            "recipe:2: options.max_errors: 'few' is neither",
        ),
        (
            "name: x\noptions: {dropped_to: 5}\nstages: [UrlsFilter]\n",
            "recipe:2: options.dropped_to: 5 is a whole number",
        ),
    ],
)
def test_a_mistake_in_the_frame_of_a_recipe_is_told_with_what_is_legal(recipe: str, expected: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(recipe)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({}, "recipe:3: params.input_path: must be given: add input_path=VALUE to the command line"),
        (
            {**PATHS, "min_word": 5},
            "min_word=5: the recipe has no param 'min_word'. Did you mean 'min_words'? Params: ",
        ),
        (
            {**PATHS, "WordFilter.x": 5},
            "WordFilter.x=5: there is no stage 'WordFilter'. Did you mean 'WordCountFilter'?",
        ),
        ({**PATHS, "WordCountFilter.min": 5}, "stages[1].WordCountFilter.min: WordCountFilter has no parameter 'min'"),
        ({**PATHS, "executor.name": "rai"}, "executor.name: 'rai' is not an executor"),
        ({**PATHS, "options.keep": 1}, "options.keep: options has no parameter 'keep'"),
        (
            {**PATHS, "output_path": 2024},
            "stages[3].JsonlWriter.path: 2024 is a whole number; it must be a text. Put it in",
        ),
    ],
)
def test_a_mistake_on_the_command_line_is_told_with_what_is_legal(overrides: dict[str, Any], expected: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(READ_AND_WRITE, overrides)
    assert expected in str(caught.value)


def test_all_mistakes_are_told_at_once() -> None:
    text = message("  - WordCountFilter: {min_words: x}\n  - UrlFilter\n  - JsonlWriter\n")
    assert text.startswith("recipe: 3 problems:\n")
    assert [line.split(": ")[0] for line in text.splitlines()[1:]] == [
        "  1. recipe:3",
        "  2. recipe:4",
        "  3. recipe:5",
    ]


def test_a_file_is_named_in_the_message(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: x\nstages: [Nothing]\n")
    with pytest.raises(RecipeError, match=rf"^{file}:2: stages\[0\]: 'Nothing' is not a stage"):
        load_recipe(file)


def test_what_is_no_recipe_file_is_told_from_a_recipe_with_mistakes(tmp_path: Path) -> None:
    junk = tmp_path / "junk"
    junk.write_bytes(b"name: \xff\xfe\x00")
    large = tmp_path / "large"
    large.write_bytes(b"a" * 1_000_001)
    secret = tmp_path / "secret.yaml"
    secret.write_text("name: x\n")
    secret.chmod(0)
    cases = [
        (tmp_path, "a folder, not a recipe; name a YAML file in it"),
        (junk, "not a recipe: byte 6 is not UTF-8 text"),
        (large, "larger than 1,000,000 bytes, so not a recipe"),
        (tmp_path / "none.yaml", "there is no such file, and no built-in recipe of that name."),
    ]
    if os.geteuid() != 0:  # root reads everything
        cases.append((secret, "the recipe cannot be read: Permission denied"))
    for path, expected in cases:
        with pytest.raises(RecipeError) as caught:
            load_recipe(path)
        assert str(caught.value).startswith(f"{path}: {expected}")


def test_a_missing_recipe_suggests_the_nearest_built_in_one() -> None:
    with pytest.raises(RecipeError, match=r"Did you mean 'quick-text'\? Built-in recipes: "):
        load_recipe("quik-text")


def test_every_mistake_ends_with_exit_code_2() -> None:
    for broken in ("\n", "name: x\n", "name: x\nstages: [Nothing]\n", "a: [\n"):
        with pytest.raises(ThresherError) as caught:
            load_recipe(broken)
        assert caught.value.exit_code == 2
