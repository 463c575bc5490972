# SPDX-License-Identifier: Apache-2.0
"""Values are checked against a constructor's signature, and nothing is converted on the way."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, Optional, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.core.arguments.parameters import (
    REQUIRED,
    UNKNOWN,
    Problem,
    accepts_objects,
    describe,
    find_problems,
    parameters_of,
    show_value,
    value_problem,
)

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypeCheckers


class Color(enum.Enum):
    """An enumeration."""

    RED = 1
    BLUE = 2


@dataclass
class Thing:
    """Something that plain data cannot be."""

    size: int = 1


class Example:
    """What the tests construct."""

    def __init__(self, size: int, ratio: float = 0.5, fields: list[str] | None = None, mode: str = "error") -> None:
        self.given = (size, ratio, fields, mode)


UserId = NewType("UserId", int)
FITS: list[tuple[Any, Any]] = [
    (5, int),
    (5, float),
    (0.5, float),
    (True, bool),
    ("x", str),
    (None, None),
    (None, int | None),
    (None, Optional[int]),  # noqa: UP045  # the old form is what some users write
    (3, Union[int, str]),  # noqa: UP007  # the old form is what some users write
    ("error", Literal["error", "append"]),
    ([1, 2], list[int]),
    ((1, 2), Sequence[int]),
    ([], list[str]),
    ([1, "x"], list[int | str]),
    ([1, 2], list),
    ({"a": 1}, dict[str, int]),
    ({"a": 1}, Mapping[str, int]),
    ({"a": [1]}, dict[str, list[int]]),
    ({"a": object()}, dict[str, Any]),
    (5, Annotated[int, "bytes"]),
    (5, UserId),
    (len, Callable[[str], int]),
    (Thing(), Thing),
    ([Thing()], Thing | list[Thing]),
    (Color.RED, Color),
    (object(), Any),
    (object(), UNKNOWN),
]
DIFFERS: list[tuple[Any, Any]] = [
    ("5", int),
    (5.0, int),
    (True, int),
    (False, float),
    (1, bool),
    ("true", bool),
    (5, str),
    (None, str),
    (None, int),
    ("abc", list[str]),
    ({"a": 1}, list[str]),
    ([1], dict[str, int]),
    ("fast", Literal["error", "append"]),
    (True, Literal[1, 2]),
    (1, Literal[True]),
    ("x", Thing),
    ({"size": 1}, Thing),
    ("len", Callable[[str], int]),
    ("RED", Color),
    (5, Annotated[str, "name"]),
]


@pytest.mark.parametrize(("value", "hint"), FITS)
def test_a_value_that_fits_its_type_is_no_problem(value: Any, hint: Any) -> None:
    assert value_problem(value, hint) is None


@pytest.mark.parametrize(("value", "hint"), DIFFERS)
def test_a_value_of_another_type_is_a_problem_and_never_converted(value: Any, hint: Any) -> None:
    assert value_problem(value, hint) is not None


@pytest.mark.parametrize(
    ("value", "hint", "text"),
    [
        ("5", int, "'5' is a text; it must be a whole number. Write it without quotes"),
        ("0.5", float, "'0.5' is a text; it must be a number. Write it without quotes"),
        ("many", int, "'many' is a text; it must be a whole number"),
        (True, int, "true is a truth value; it must be a whole number"),
        (None, str, "null is not allowed; it must be a text"),
        (2024, str, '2024 is a whole number; it must be a text. Put it in quotes: "2024"'),
        (5, list[str] | None, "5 is a whole number; it must be a list of texts or null"),
        ("fast", Literal["error", "append"], "'fast' is a text; it must be one of 'error', 'append'"),
        ([1], str | dict[str, Any], "[1] is a list; it must be a text or a mapping of keys to values"),
        (5, Thing, "5 is a whole number; it must be a Thing"),
        ("x", Callable[[str], int], "'x' is a text; it must be a function"),
        (5, Color, "5 is a whole number; it must be one of 'RED', 'BLUE'"),
    ],
)
def test_the_message_names_the_value_what_it_is_and_what_is_legal(value: Any, hint: Any, text: str) -> None:
    problem = value_problem(value, hint)
    assert problem is not None
    assert problem.text == text


@pytest.mark.parametrize(
    ("value", "hint", "path"),
    [
        (["a", 5], list[str], (1,)),
        (["a", 5], list[str] | None, (1,)),
        ({"a": 1, "b": "x"}, dict[str, int], ("b",)),
        ({"a": [1, "x"]}, dict[str, list[int]], ("a", 1)),
        ([{"a": None}], list[dict[str, int]], (0, "a")),
    ],
)
def test_the_deepest_place_that_is_wrong_is_named(value: Any, hint: Any, path: tuple[Any, ...]) -> None:
    problem = value_problem(value, hint)
    assert problem is not None
    assert problem.path == path


def test_the_value_of_a_secret_is_not_shown() -> None:
    def connect(storage_options: dict[str, str]) -> None:
        del storage_options

    (problem,) = find_problems(connect, {"storage_options": "hunter2"})
    assert "hunter2" not in str(problem)
    assert str(problem).startswith("storage_options: the value (not shown) is a text; it must be a mapping")


def test_an_unknown_key_suggests_the_nearest_and_lists_what_there_is() -> None:
    (problem,) = find_problems(Example, {"size": 1, "rato": 0.5})
    assert str(problem) == (
        "rato: Example has no parameter 'rato'. Did you mean 'ratio'? It takes: size, ratio, fields, mode"
    )


def test_a_required_parameter_that_is_missing_is_named_with_its_type() -> None:
    (problem,) = find_problems(Example, {"ratio": 0.5})
    assert str(problem) == "size: Example needs it and it is not given: a whole number"


def test_all_problems_are_found_at_once() -> None:
    problems = find_problems(Example, {"ratio": "high", "fields": [1], "speed": 3})
    assert {problem.path for problem in problems} == {("size",), ("ratio",), ("fields", 0), ("speed",)}


def test_a_constructor_that_takes_any_name_has_no_unknown_ones() -> None:
    def anything(size: int, **more: Any) -> None:
        del size, more

    assert find_problems(anything, {"size": 1, "color": "red"}) == []


def test_a_class_without_a_constructor_takes_nothing() -> None:
    class Bare:
        pass

    assert parameters_of(Bare) == {}
    (problem,) = find_problems(Bare, {"size": 1})
    assert problem.text.endswith("It takes none")


def test_a_hint_that_only_type_checkers_know_does_not_hide_the_others() -> None:
    def build(size: int, amount: OnlyForTypeCheckers | None = None) -> None:
        del size, amount

    found = parameters_of(build)
    assert found["size"].hint is int
    assert found["amount"].hint is UNKNOWN
    assert [problem.path for problem in find_problems(build, {"size": "x", "amount": object()})] == [("size",)]


def test_parameters_carry_their_defaults() -> None:
    found = parameters_of(Example)
    assert list(found) == ["size", "ratio", "fields", "mode"]
    assert found["size"].default is REQUIRED
    assert found["ratio"].default == 0.5


@pytest.mark.parametrize("hint", [Thing, Thing | None, list[Thing], Callable[[str], int], str | Thing, UNKNOWN])
def test_types_that_plain_data_cannot_be_are_recognised(hint: Any) -> None:
    assert accepts_objects(hint)


@pytest.mark.parametrize("hint", [int, str | None, list[str], dict[str, Any], Any, Literal["a"], list[int | None]])
def test_types_that_plain_data_can_be_are_recognised(hint: Any) -> None:
    assert not accepts_objects(hint)


def test_paths_read_like_the_recipe() -> None:
    assert (
        str(Problem(("stages", 2, "WordCountFilter", "min_words"), "no")) == "stages[2].WordCountFilter.min_words: no"
    )
    assert str(Problem(("min_words",), "no").under("stages", 0)) == "stages[0].min_words: no"
    assert str(Problem((), "no")) == "no"


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
HINTS = st.recursive(
    st.sampled_from([int, float, bool, str, None, Any, Literal["a", 1]]),
    lambda inner: st.one_of(
        inner.map(lambda hint: list[hint]),  # type: ignore[valid-type]  # built at run time
        inner.map(lambda hint: dict[str, hint]),  # type: ignore[valid-type]  # built at run time
        st.tuples(inner, inner).map(lambda pair: Union[pair[0], pair[1]]),  # noqa: UP007  # built at run time
    ),
    max_leaves=4,
)


@given(PLAIN, HINTS)
def test_every_pair_of_value_and_type_gets_an_answer_that_can_be_shown(value: Any, hint: Any) -> None:
    problem = value_problem(value, hint)
    if problem is not None:
        assert "it must be " + describe(hint)[:5] in problem.text or problem.path
        assert len(str(problem)) < 2000


@given(PLAIN)
def test_a_union_takes_what_one_of_its_members_takes(value: Any) -> None:
    members = [int, float, bool, str, type(None), list[Any], dict[str, Any]]
    assert value_problem(value, Union[tuple(members)]) is None  # noqa: UP007  # built at run time


@given(PLAIN)
def test_shown_values_stay_short(value: Any) -> None:
    assert len(show_value(value)) <= 100
