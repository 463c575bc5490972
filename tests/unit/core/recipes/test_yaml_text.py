# SPDX-License-Identifier: Apache-2.0
"""Recipes are read as plain data: what looks like a text is a text, and nothing in a file can run code or never end."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from thresher.core.recipes.yaml_text import read_scalar, read_yaml
from thresher.errors import RecipeError


def data(text: str) -> Any:
    return read_yaml(text, "recipe.yaml")[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("5", 5),
        ("-5", -5),
        ("1_000_000", 1_000_000),
        ("0x1f", 31),
        ("0.25", 0.25),
        (".5", 0.5),
        ("1e-3", 0.001),
        ("1e5", 100000.0),
        (".inf", math.inf),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("007", "007"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("5%", "5%"),
        ("64MB", "64MB"),
        ("???", "???"),
    ],
)
def test_scalars_are_what_they_look_like(text: str, value: Any) -> None:
    found = data(f"key: {text}\n")["key"]
    assert found == value
    assert type(found) is type(value)
    assert read_scalar(text, "key") == value


def test_three_question_marks_need_no_quotes_inside_braces() -> None:
    assert data("params: {a: ???, b: ???, c: 50}") == {"params": {"a": "???", "b": "???", "c": 50}}
    assert data("[???, 1]") == ["???", 1]
    assert data("{a: '???'}") == {"a": "???"}


def test_a_complex_key_is_still_no_text() -> None:
    with pytest.raises(RecipeError, match="is not a key; keys are texts"):
        data("{? [a, b] : 1}")


def test_every_value_has_its_line() -> None:
    _, lines = read_yaml("name: x\nstages:\n  - A\n  - B:\n      size: 3\n", "recipe.yaml")
    assert lines[("name",)] == 1
    assert lines[("stages", 0)] == 3
    assert lines[("stages", 1, "B", "size")] == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "recipe.yaml:3: the key 'a' is given twice; the first one is in line 1. Remove one"),
        ("a: {b: 1, b: 2}", "recipe.yaml:1: the key 'b' is given twice; the first one is in line 1. Remove one"),
        ("a: [1, 2", "recipe.yaml:1:9: not readable as YAML: expected ',' or ']', but got '<stream end>'"),
        ("a:\n\tb: 1", "recipe.yaml:2:1: not readable as YAML: found character '\\t' that cannot start any token"),
        ("a: {b: ${c}}", "Inside braces put ${param} in quotes"),
        ("a: *b", "recipe.yaml:1:4: not readable as YAML: found undefined alias 'b'"),
        ("1: x", "recipe.yaml:1: '1' is not a key; keys are texts, put it in quotes"),
        ("a: !!python/object/apply:os.system [ls]", "recipe.yaml:1:4: not readable as YAML: could not determine"),
        ("a: !!set {x}", "recipe.yaml:1:4: not readable as YAML: could not determine a constructor"),
        ("a: &a [*a]", "recipe.yaml: nested too deeply"),
        ("[" * 20_000, "recipe.yaml: nested too deeply"),
        ("a: " + "9" * 5000, "recipe.yaml: a value cannot be read: Exceeds the limit"),
        ("a: b\n---\nc: d", "recipe.yaml:2:1: not readable as YAML: but found another document"),
        ("a: \x00", "recipe.yaml: not readable as YAML: unacceptable character"),
    ],
)
def test_what_cannot_be_read_is_told_with_line_and_column(text: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        data(text)
    assert message in str(caught.value)


def test_aliases_that_repeat_each_other_are_refused_before_they_fill_the_memory() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(RecipeError, match="more than 100,000 values"):
        data("\n".join(rows))


def test_anchors_and_merge_keys_work() -> None:
    assert data("a: &x {b: 1}\nc: {<<: *x, d: 2}") == {"a": {"b": 1}, "c": {"b": 1, "d": 2}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("*.jsonl", "*.jsonl"),
        ("a: b", "a: b"),
        ("@x", "@x"),
        (" padded ", " padded "),
        ("'5'", "5"),
        ('"a b"', "a b"),
        ("[a, 2]", ["a", 2]),
        ("{a: 1}", {"a": 1}),
        ("- x", "- x"),
        ("a #b", "a #b"),
    ],
)
def test_values_of_the_command_line_need_no_quotes_unless_they_are_lists_or_numbers(text: str, value: Any) -> None:
    assert read_scalar(text, "key") == value


def test_a_broken_list_on_the_command_line_names_its_key() -> None:
    with pytest.raises(RecipeError, match=r"^fields:1:4: not readable as YAML"):
        read_scalar("[a,", "fields")


def plain_data(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    return st.recursive(
        st.none() | st.booleans() | numbers | texts,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=12,
    )


def is_number_in_yaml_12_alone(text: str) -> bool:
    """PyYAML writes YAML 1.1, where `0E0` is a text that needs no quotes."""
    return re.fullmatch(r"[-+]?[0-9.]+[eE][-+]?[0-9]+|0o[0-7]+", text) is not None


@given(plain_data(st.text(max_size=100)))  # YAML ends a key that is not quoted after 1,024 characters
def test_json_is_read_as_the_same_data(value: Any) -> None:
    assert data(json.dumps(value)) == value


@given(plain_data(st.text(max_size=100).filter(lambda text: not is_number_in_yaml_12_alone(text))))
def test_what_pyyaml_writes_is_read_as_the_same_data(value: Any) -> None:
    assert data(yaml.safe_dump(value)) == value


def reads_or_refuses(read: Callable[[str], Any], text: str) -> bool:
    try:
        read(text)
    except RecipeError as refused:
        return bool(str(refused))
    return True


@given(st.text())
def test_any_text_is_read_or_refused_with_a_recipe_error(text: str) -> None:
    for read in (data, lambda text: read_scalar(text, "key")):
        assert reads_or_refuses(read, text)
