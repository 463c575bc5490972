# SPDX-License-Identifier: Apache-2.0
"""Recipes: a pipeline as YAML. Loading one reads, fills in and checks it, and builds its stages; it runs nothing.

name: english
params: {input_path: ???, output_path: ???, min_words: 50}
stages:
  - JsonlReader: {file_paths: "${input_path}"}
  - WordCountFilter: {min_words: "${min_words}"}
  - JsonlWriter: {path: "${output_path}"}

`outlets` holds further lists of stages, by the name of the outlet that they continue.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from thresher.core.arguments.options import ErrorBudget
from thresher.core.arguments.parameters import (
    SECRET_PARAMETERS,
    Parameter,
    Path,
    Problem,
    show_value,
    unknown_keys,
    value_problem,
)
from thresher.core.outlets import check_outlet_name
from thresher.core.pipeline import Pipeline
from thresher.core.planning.checks import stage_problems
from thresher.core.recipes.executors import make_executor
from thresher.core.recipes.params import Substitution, missing_params, without_secrets
from thresher.core.recipes.stages import (
    Stage,
    StageBuilder,
    StageItem,
    StageProblems,
    name_items,
    problem_at,
    read_item,
)
from thresher.core.registry import DEFAULT_EXECUTOR, executor_fault
from thresher.credentials import HIDDEN
from thresher.errors import RecipeError, UsageError, nearest, numbered

if TYPE_CHECKING:
    from thresher.core.pipeline import RunResult

KEYS = ("name", "description", "params", "executor", "options", "stages", "outlets")
OPTIONS: dict[str, Parameter] = {
    "max_errors": Parameter("max_errors", int | str, "5%"),
    "keep_scores": Parameter("keep_scores", bool, False),
    "dropped_to": Parameter("dropped_to", str | None, None),
}
"""Keys that `options` accepts."""

MAX_BYTES = 1_000_000
"""Size limit of a recipe; a larger file is data given by mistake."""

_NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Recipe:
    """A resolved recipe: params are filled in and stages are built."""

    name: str
    """Name of the pipeline."""
    description: str
    """Purpose of the pipeline."""
    params: dict[str, Any]
    """All params with their values."""
    executor: dict[str, Any]
    """`name` and the options of the executor; the default `name` is `local`."""
    options: dict[str, Any]
    """Options of the run: those of `OPTIONS` that were given."""
    stages: tuple[Stage, ...]
    """Stages in order, with unique names."""
    resolved: dict[str, Any] = field(repr=False)
    """The recipe as data, for the run folder; secrets are replaced by `***`."""
    outlets: dict[str, tuple[Stage, ...]] = field(default_factory=dict)
    """Stages that continue each outlet."""

    def pipeline(self) -> Pipeline:
        """Return a new pipeline of these stages."""
        pipeline = Pipeline(self.name, self.description, self.stages)
        for name, stages in self.outlets.items():
            for stage in stages:
                pipeline.outlet(name).add_stage(stage)
        return pipeline

    def make_executor(self, wins: Mapping[str, Any] | None = None, warn: Callable[[str], None] | None = None) -> Any:
        """Return the executor that the recipe specifies; the options in `wins` take precedence.

        With `warn`, unsupported options are left out with a warning; otherwise they raise.
        """
        options = {"name": DEFAULT_EXECUTOR, **self.executor, **(wins or {})}
        return make_executor(options.pop("name"), options, warn)

    def run(self, executor: Any = None, **options: Any) -> RunResult:
        """Run it like `thresher run`. Arguments are those of `Pipeline.run` and take precedence over the recipe."""
        executor = self.make_executor() if executor is None else executor
        return self.pipeline().run(executor, **{**self.options, "recipe": self.resolved, **options})


def load_recipe(
    source: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    trust: Collection[str] = (),
) -> Recipe:
    """Read, fill in and check a recipe.

    `source` is a file, the name of a built-in recipe, the text of a recipe (more than one line) or a mapping.
    `overrides` holds what the command line gives as `key=value`: a param, `Stage.parameter`, `executor.option` or
    `options.option`. `trust` names the modules whose classes `_target_` may name.
    """
    where, data, lines = _read(source)
    return _RecipeLoader(where, lines, dict(overrides or {}), trust).load(data)


def written_params(source: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the params of a recipe as written, `???` included; empty if they are not a mapping."""
    data = _read(source)[1]
    params = data.get("params") if isinstance(data, Mapping) else None
    return dict(params) if isinstance(params, Mapping) else {}


def built_in_recipes() -> dict[str, FilePath]:
    """Return the built-in recipes by name."""
    folder = FilePath(__file__).parents[2] / "recipes"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


# -- reading ----------------------------------------------------------------------------------------------------------


def _read(source: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[str, Any, dict[Path, int]]:
    """Return name, data and line numbers of a recipe."""
    if isinstance(source, Mapping):
        return "recipe", dict(source), {}
    from thresher.core.recipes.yaml_text import read_yaml

    text_given = isinstance(source, str) and "\n" in source
    where, text = ("recipe", str(source)) if text_given else _read_file(os.fspath(source))
    data, lines = read_yaml(text, where)
    return where, data, lines


def _read_file(name: str) -> tuple[str, str]:
    path = FilePath(name)
    if not os.path.lexists(path) and name in built_in_recipes():
        path = built_in_recipes()[name]
    try:
        if path.is_dir():
            raise RecipeError(f"{name}: a folder, not a recipe; name a YAML file in it")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        built_in = built_in_recipes()
        raise RecipeError(
            f"{name}: there is no such file, and no built-in recipe of that name.{nearest(name, built_in)}"
            f" Built-in recipes: {', '.join(built_in) or 'none'}. `thresher init` writes a recipe to start from"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RecipeError(f"{name}: the recipe cannot be read: {reason}") from None
    if len(content) > MAX_BYTES:
        raise RecipeError(f"{name}: larger than {MAX_BYTES:,} bytes, so not a recipe")
    try:
        return str(path), content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RecipeError(f"{name}: not a recipe: byte {error.start} is not UTF-8 text") from None


# -- checking ---------------------------------------------------------------------------------------------------------


class _RecipeLoader:
    """Loader of one recipe. It collects problems and reports them in one message."""

    def __init__(self, where: str, lines: dict[Path, int], overrides: dict[str, Any], trust: Collection[str]) -> None:
        self.where = where
        self.lines = lines
        self.overrides = overrides
        self.trust = trust
        self.problems: list[Problem] = []

    def load(self, data: Any) -> Recipe:
        """Return the recipe in `data`."""
        if not isinstance(data, dict):
            what = "is empty" if data is None else f"holds {show_value(data)}, which is not a mapping"
            raise RecipeError(f"{self.where}: the recipe {what}; it needs at least `name` and `stages`")
        self._check_keys(data)
        params = self._params(data)
        self._raise_problems()
        filling = Substitution(params)
        filled = {key: filling.fill(value, (key,)) for key, value in data.items() if key != "params"}
        self.problems += filling.problems
        self._raise_problems()
        executor, options = self._executor(filled, params), self._options(filled)
        items = self._items(filled["stages"], ("stages",))
        branches = {name: self._items(listed, ("outlets", name)) for name, listed in self._outlets(filled).items()}
        self._raise_problems()
        named = {f"{outlet}.{item.name}": item for outlet, listed in branches.items() for item in listed}
        self._override_stages({item.name: item for item in items} | named)
        stages = self._build(items)
        outlets = {name: tuple(self._build(listed)) for name, listed in branches.items()}
        self._raise_problems()
        shown_params = {key: HIDDEN if key in filling.secret_params else value for key, value in params.items()}
        resolved = {
            "name": data["name"],
            "description": data.get("description") or "",
            "params": shown_params,
            "executor": executor,
            "options": options,
            "stages": [item.as_data() for item in items],
        }
        if branches:
            resolved["outlets"] = {name: [item.as_data() for item in listed] for name, listed in branches.items()}
        return Recipe(
            data["name"],
            data.get("description") or "",
            params,
            executor,
            options,
            tuple(stages),
            without_secrets(resolved),
            outlets,
        )

    def _raise_problems(self) -> None:
        if not self.problems:
            return
        messages = [self._with_location(problem) for problem in sorted(dict.fromkeys(self.problems), key=self._line)]
        if len(messages) == 1:
            raise RecipeError(messages[0])
        raise RecipeError(f"{self.where}: {len(messages)} problems:\n{numbered(messages)}")

    def _with_location(self, problem: Problem) -> str:
        """Return the problem with its location: `recipe.yaml:7: stages[2].WordCountFilter.min_words: …`."""
        line = self._line(problem)
        return f"{self.where}{f':{line}' if line else ''}: {problem}"

    def _line(self, problem: Problem) -> int:
        """Return the line of a problem; 0 if it has none."""
        path = problem.path
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines[path] if path else 0

    def _check_keys(self, data: dict[str, Any]) -> None:
        for key in data:
            if key not in KEYS:
                text = f"a recipe has no key {key!r}.{nearest(str(key), KEYS)} It has: {', '.join(KEYS)}"
                self.problems.append(Problem((key,), text))
        name = data.get("name")
        if name is None:
            self.problems.append(Problem(("name",), "every recipe needs a name of letters, digits, - and _"))
        elif not isinstance(name, str) or not _NAME.fullmatch(name):
            text = f"{show_value(name)} is not a name; a name has letters, digits, - and _ only"
            self.problems.append(Problem(("name",), text))
        description = data.get("description")
        if description is not None and not isinstance(description, str):
            self.problems.append(
                Problem(("description",), f"{show_value(description)} is not a text; put it in quotes")
            )
        stages = data.get("stages")
        if not isinstance(stages, list) or not stages:
            shown = "is missing" if stages is None else f"{show_value(stages)} is not a list of stages"
            self.problems.append(Problem(("stages",), f"{shown}; a recipe needs a list with at least one stage"))

    def _params(self, data: dict[str, Any]) -> dict[str, Any]:
        params = data.get("params") or {}
        if not isinstance(params, dict):
            self.problems.append(Problem(("params",), f"{show_value(params)} is not a mapping of names to values"))
            return {}
        given = {key: value for key, value in self.overrides.items() if "." not in key}
        for key in given:
            if key not in params and not (key == "executor" and isinstance(given[key], str)):
                self.problems.append(Problem((), self._unknown_override(key, params)))
        values = {**params, **{key: value for key, value in given.items() if key in params}}
        self.problems += missing_params(values)
        return values

    def _shown(self, key: str) -> str:
        """Return `key=value`, without the value of a secret."""
        secret = not SECRET_PARAMETERS.isdisjoint(key.split("."))
        return f"{key}={HIDDEN if secret else show_value(self.overrides[key])}"

    def _unknown_override(self, key: str, params: Mapping[str, Any]) -> str:
        known = ", ".join(params) or "none"
        return (
            f"{self._shown(key)}: the recipe has no param {key!r}.{nearest(key, params)}"
            f" Params: {known}. A stage's parameter is written Stage.parameter=value"
        )

    def _executor(self, filled: dict[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
        given = filled.get("executor")
        if isinstance(given, str):
            given = {"name": given}
        if given is not None and not isinstance(given, dict):
            self.problems.append(
                Problem(("executor",), f"{show_value(given)} is neither a name nor a mapping of options")
            )
            given = None
        executor = dict(given or {})
        if isinstance(self.overrides.get("executor"), str) and "executor" not in params:
            executor["name"] = self.overrides["executor"]
        executor |= {k.partition(".")[2]: v for k, v in self.overrides.items() if k.startswith("executor.")}
        name = executor.get("name", DEFAULT_EXECUTOR)
        fault = executor_fault(name) if isinstance(name, str) else f"{show_value(name)} is not a name"
        if fault:
            path = ("executor", "name") if isinstance(filled.get("executor"), dict) else ("executor",)
            self.problems.append(Problem(path, fault))
        return executor

    def _options(self, filled: dict[str, Any]) -> dict[str, Any]:
        given = filled.get("options")
        if given is not None and not isinstance(given, dict):
            self.problems.append(Problem(("options",), f"{show_value(given)} is not a mapping of options"))
            given = None
        options = dict(given or {})
        options |= {k.partition(".")[2]: v for k, v in self.overrides.items() if k.startswith("options.")}
        problems = unknown_keys(options, OPTIONS, "options")
        for key in [key for key in options if key in OPTIONS]:
            problem = value_problem(options[key], OPTIONS[key].hint)
            problems += [problem.under(key)] if problem is not None else []
        self.problems += [problem.under("options") for problem in problems]
        if "max_errors" in options and not problems:
            try:
                ErrorBudget.parse(options["max_errors"])
            except UsageError as error:
                text = str(error).removeprefix("max_errors: ")
                self.problems.append(Problem(("options", "max_errors"), text))
        return options

    def _outlets(self, filled: dict[str, Any]) -> dict[str, list[Any]]:
        """Return the lists of stages of outlets."""
        given = filled.get("outlets") or {}
        if not isinstance(given, dict):
            text = f"{show_value(given)} is not a mapping of outlets to lists of stages"
            self.problems.append(Problem(("outlets",), text))
            return {}
        for name, listed in given.items():
            try:
                check_outlet_name(name)
            except UsageError as error:
                self.problems.append(Problem(("outlets", name), str(error).removeprefix("outlet: ")))
            if not isinstance(listed, list) or not listed:
                text = f"{show_value(listed)} is not a list of stages; an outlet needs at least a writer"
                self.problems.append(Problem(("outlets", name), text))
        return {name: listed for name, listed in given.items() if isinstance(listed, list)}

    def _items(self, listed: list[Any], path: Path) -> list[StageItem]:
        items = []
        for index, value in enumerate(listed):
            try:
                items.append(read_item(value, (*path, index)))
            except StageProblems as wrong:
                self.problems += wrong.problems
        self._raise_problems()
        name_items(items)
        return items

    def _override_stages(self, by_name: Mapping[str, StageItem]) -> None:
        for key, value in self.overrides.items():
            if "." not in key or key.startswith(("executor.", "options.")):
                continue
            # The longest matching name, because a name may contain dots.
            name = max((n for n in by_name if key.startswith(f"{n}.")), key=len, default=None)
            if name is None:
                stage = key.partition(".")[0]
                text = f"{self._shown(key)}: there is no stage {stage!r}.{nearest(stage, by_name)}"
                self.problems.append(Problem((), f"{text} Stages: {', '.join(by_name)}"))
                continue
            self._set(by_name[name], key[len(name) + 1 :].split("."), value)

    def _set(self, item: StageItem, keys: list[str], value: Any) -> None:
        mapping = item.parameters
        for key in keys[:-1]:
            inner = mapping.get(key)
            mapping[key] = dict(inner) if isinstance(inner, dict) else {}
            mapping = mapping[key]
        mapping[keys[-1]] = value
        self.lines.pop((*item.path, *keys), None)

    def _build(self, items: list[StageItem]) -> list[Stage]:
        builder = StageBuilder(self.trust)
        built: list[tuple[StageItem, Stage]] = []
        for item in items:
            try:
                built.append((item, builder.build(item)))
            except StageProblems as wrong:
                built += self._without_mistakes(builder, item, wrong)
        if self.problems:  # also report what the plan would find in the other stages
            for item, stage in built:
                names = dict.fromkeys([*item.parameters, *vars(stage)])
                self.problems += [problem_at(str(error), item, names) for error in stage_problems([stage])]
        return [stage for _, stage in built]

    def _without_mistakes(
        self, builder: StageBuilder, item: StageItem, wrong: StageProblems
    ) -> list[tuple[StageItem, Stage]]:
        """Build the stage without its wrong parameters, to find further problems; return nothing if it cannot be
        built."""
        keys: set[Any] = set()
        rest = item
        while True:
            found = {problem.path[len(item.path)] for problem in wrong.problems if len(problem.path) > len(item.path)}
            self.problems += [problem for problem in wrong.problems if not keys.intersection(problem.path)]
            keys |= found
            left = {key: value for key, value in item.parameters.items() if key not in keys}
            if len(left) == len(rest.parameters):
                return []
            rest = replace(item, parameters=left)
            try:
                return [(item, builder.build(rest))]
            except StageProblems as more:
                wrong = more
