# SPDX-License-Identifier: Apache-2.0
"""Loading a recipe runs no code but that of registered stages and of modules that were trusted by name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from thresher.core import registry
from thresher.core.recipes.recipe import Recipe, load_recipe
from thresher.core.stage import ProcessingStage
from thresher.errors import RecipeError
from thresher.stage_errors import Terminated


def load(stages: str, trust: tuple[str, ...] = ()) -> Recipe:
    """A recipe with these stages."""
    return load_recipe(f"name: test\nstages:\n{stages}", {}, trust)


def message(stages: str, trust: tuple[str, ...] = ()) -> str:
    """What is wrong with a recipe with these stages; the first one is in line 3."""
    with pytest.raises(RecipeError) as caught:
        load(stages, trust)
    return str(caught.value)


def stage(recipe: Recipe) -> Any:
    return recipe.stages[0]


MODULE = """\
from thresher import DocumentFilter, ProcessingStage, processing_stage

print("imported")


class Mine(ProcessingStage):
    def __init__(self, size: int = 1) -> None:
        if size > 10:
            raise ValueError("too large")
        self.size = size


class Long(DocumentFilter):
    def __init__(self, least: int) -> None:
        self.least = least

    def score_document(self, text: str) -> int:
        return len(text)

    def keep_document(self, score: int) -> bool:
        return score >= self.least


@processing_stage(name="shorten")
def shorten(task):
    return task


def factory(size: int) -> ProcessingStage:
    return Mine(size)


number = 5
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package of a user's own, that prints when it is imported."""
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").write_text("")
    (tmp_path / "own_package" / "stages.py").write_text(MODULE)
    (tmp_path / "own_package" / "broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "own_package"]:
        monkeypatch.delitem(sys.modules, name)
    return "own_package"


def test_code_that_is_not_trusted_is_not_even_imported(package: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = message("  - {_target_: own_package.stages.Mine, size: 3}\n", trust=("other", "own", "own_package.other"))
    assert "recipe:3: stages[0]._target_: 'own_package.stages.Mine' is not registered" in text
    assert f"If you trust it, add --trust {package}" in text
    assert "imported" not in capsys.readouterr().out
    assert "own_package.stages" not in sys.modules


@pytest.mark.parametrize("trust", ["own_package", "own_package.stages"])
def test_a_trusted_class_is_built_and_checked_like_any_other(package: str, trust: str) -> None:
    recipe = load("  - {_target_: own_package.stages.Mine, size: 3, batch_size: 2}\n", trust=(trust,))
    assert stage(recipe).size == 3
    assert (stage(recipe).name, stage(recipe).batch_size) == ("Mine", 2)
    text = message("  - {_target_: own_package.stages.Mine, size: big}\n", trust=(trust,))
    assert text == "recipe:3: stages[0].size: 'big' is a text; it must be a whole number"


def test_a_trusted_filter_is_wrapped_and_may_stand_inside_a_stage(package: str) -> None:
    recipe = load("  - {_target_: own_package.stages.Long, least: 3, text_field: body}\n", trust=(package,))
    assert (type(stage(recipe)).__name__, stage(recipe).name, stage(recipe).text_field) == (
        "ScoreFilter",
        "Long",
        "body",
    )
    recipe = load("  - ScoreFilter: {filter_obj: [{_target_: own_package.stages.Long, least: 3}]}\n", trust=(package,))
    assert stage(recipe).filter_obj[0].least == 3


def test_a_trusted_function_may_be_a_stage_or_make_one(package: str) -> None:
    recipe = load("  - {_target_: own_package.stages.shorten, batch_size: 3}\n", trust=(package,))
    assert (stage(recipe).name, stage(recipe).batch_size) == ("shorten", 3)
    assert stage(load("  - {_target_: 'own_package.stages:factory', size: 4}\n", trust=(package,))).size == 4


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("{_target_: own_package.stages.Nine}", "stages[0]._target_: the module 'own_package.stages' has no 'Nine'"),
        (
            "{_target_: own_package.nothing.X}",
            "'own_package.nothing' cannot be imported: ModuleNotFoundError: No module",
        ),
        (
            "{_target_: own_package.broken.X}",
            "'own_package.broken' cannot be imported: ZeroDivisionError: division by zero",
        ),
        ("{_target_: own_package.stages.Mine, size: 11}", "refused its parameters: ValueError: too large"),
        ("{_target_: own_package.stages.number}", "own_package.stages.number"),
        ("{_target_: Mine}", "stages[0]._target_: 'Mine' is not a path of a class; write it as package.module.Class"),
        ("{_target_: 5}", "stages[0]._target_: 5 is not a path of a class"),
    ],
)
def test_a_trusted_target_that_does_not_work_says_why(package: str, item: str, expected: str) -> None:
    assert expected in message(f"  - {item}\n", trust=(package,))


def test_our_own_modules_are_no_way_around_trust() -> None:
    text = message("  - {_target_: thresher.core.registry.resolve, target: 'os:system'}\n")
    assert "add --trust thresher" in text


def test_a_registered_class_needs_no_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plug(ProcessingStage[Any, Any]):
        """A plug-in."""

        def __init__(self, size: int = 1, **more: Any) -> None:
            self.size, self.more = size, more

    monkeypatch.setattr(registry, "_plug_ins", {})
    registry.register(Plug)
    made = stage(load("  - Plug: {size: 2, color: red, max_attempts: 1}\n"))
    assert (made.size, made.more, made.max_attempts) == (2, {"color": "red"}, 1)


@pytest.mark.parametrize("where", ["import", "constructor"])
def test_a_signal_while_a_stage_is_made_is_no_fault_of_the_stage(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = "    raise Terminated(143)\n"
    body = {"import": "if True:\n" + raised, "constructor": "def Stopped():\n" + raised}[where]
    (tmp_path / f"stopped_in_{where}.py").write_text(f"from thresher.stage_errors import Terminated\n{body}")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Terminated):
        load(f"  - {{_target_: stopped_in_{where}.Stopped}}\n", (f"stopped_in_{where}",))
