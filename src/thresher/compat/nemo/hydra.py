# SPDX-License-Identifier: Apache-2.0
"""Configuration files of NeMo Curator (YAML for Hydra) as recipes, so that `thresher run` takes them as they are.

`stages` with `_target_: nemo_curator.…` become stages of a recipe, a `workflow` becomes its pipeline. `${…}`, `???` and
`key=value` mean what they mean there; `backend`, `execution_mode` and `ray_client` choose the executor.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path as FilePath
from typing import Any

from thresher.compat.nemo.arguments import translated
from thresher.compat.nemo.finder import ORIGINAL
from thresher.compat.nemo.hydra_values import Interpolation, override
from thresher.compat.nemo.ranking import RankingStrategy
from thresher.compat.nemo.table import load_target, missing_name, names_of
from thresher.core.arguments.parameters import show_value
from thresher.core.recipes.recipe import Recipe, load_recipe
from thresher.core.recipes.stages import TARGET
from thresher.core.recipes.yaml_text import read_yaml
from thresher.core.registry import WRAPPERS, entries
from thresher.errors import RecipeError, ThresherError
from thresher.workflows import WORKFLOWS

_BACKENDS = {"xenna": "xenna", "ray_data": "ray-data", "ray_actor_pool": "actor-pool", "local": "local"}
_RESERVED = ("defaults", "hydra", "documentation", "ray_client", "backend", "execution_mode", "stages", "workflow")
_PLAIN = ("Resources",)
"""Classes that a recipe writes as a mapping of their arguments."""
_HYDRA_ONLY = ("_convert_", "_recursive_")
_WRAPPED = {wrapper: kind for kind, wrapper in WRAPPERS.items()}
_FIRST = {"ScoreFilter": "filter_obj", "Modify": "modifier_fn"}


def is_hydra(path: str) -> bool:
    """Return True if a file is a configuration, and not a recipe that names one of its classes."""
    data, _ = read_yaml(FilePath(path).read_text(encoding="utf-8-sig"), path)
    return isinstance(data, dict) and not {"name", "params"}.intersection(data)


def load_hydra(path: str, settings: Mapping[str, Any], trust: Collection[str] = ()) -> Recipe:
    """Return the recipe that says the same as a configuration. `settings` are the `key=value` of the command line."""
    data, _ = read_yaml(FilePath(path).read_text(encoding="utf-8-sig"), path)
    if not isinstance(data, dict):
        raise RecipeError(f"{path}: not a configuration: it holds {show_value(data)}")
    own = {key: value for key, value in settings.items() if _is_native(key, data)}
    for key, value in settings.items():
        if key not in own:
            override(data, key, value, path)
    _check_defaults(data, path)
    filled = Interpolation(data, path).filled({key: value for key, value in data.items() if key in _RESERVED[3:]})
    name = re.sub(r"[^A-Za-z0-9_-]", "_", FilePath(path).stem)
    try:
        if "workflow" in filled and "stages" not in filled:
            return _workflow_recipe(name, filled, path)
        return load_recipe(_recipe_data(name, filled, path), own, {*trust, "thresher.compat"})
    except RecipeError as error:
        raise RecipeError(str(error).replace("recipe: ", f"{path}: ", 1)) from None


def _is_native(key: str, data: Mapping[str, Any]) -> bool:
    """Return True for `executor.…`, `options.…` and `Stage.parameter`, which mean the same as with a recipe."""
    head = key.partition(".")[0]
    return "." in key and head not in data and head not in _RESERVED and not key.startswith("+")


def _check_defaults(data: Mapping[str, Any], path: str) -> None:
    for entry in data.get("defaults") or []:
        if entry != "_self_" and not (
            isinstance(entry, Mapping) and next(iter(entry), "").startswith("override hydra/")
        ):
            raise RecipeError(f"{path}: defaults: {show_value(entry)}: put the parts of a configuration into one file")


def _executor_of(data: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the executor that a configuration asks for; by default that of this machine."""
    executor: dict[str, Any] = {}
    backend = data.get("backend")
    if backend is not None:
        if backend not in _BACKENDS:
            raise RecipeError(f"{path}: backend: {show_value(backend)} is not one of {', '.join(_BACKENDS)}")
        executor["name"] = _BACKENDS[backend]
    if data.get("execution_mode") is not None and backend != "ray_data":
        executor["execution_mode"] = data["execution_mode"]
    client = data.get("ray_client")
    if isinstance(client, Mapping) and client.get("num_cpus"):
        executor["workers"] = client["num_cpus"]
    return executor


def _recipe_data(name: str, data: Mapping[str, Any], path: str) -> dict[str, Any]:
    stages = data.get("stages")
    if not isinstance(stages, list) or not stages or "workflow" in data:
        raise RecipeError(f"{path}: it needs either `stages`, a list, or `workflow`, a list of one")
    items = [_item(value, f"{path}: stages[{index}]") for index, value in enumerate(stages)]
    recipe: dict[str, Any] = {"name": name, "description": f"from {FilePath(path).name}", "stages": items}
    executor = _executor_of(data, path)
    return {**recipe, "executor": executor} if executor else recipe


def _workflow_recipe(name: str, data: Mapping[str, Any], path: str) -> Recipe:
    """Return the pipeline of a workflow as a recipe."""
    listed = data["workflow"]
    if not isinstance(listed, list) or len(listed) != 1 or not isinstance(listed[0], Mapping):
        raise RecipeError(f"{path}: workflow: give a list of one workflow")
    try:
        target, arguments = _resolved(listed[0], f"{path}: workflow[0]")
        if not isinstance(target, str) or target not in WORKFLOWS:
            raise RecipeError(f"{path}: workflow: {show_value(listed[0].get(TARGET))} is not a workflow")
        workflow = load_target(target)(**arguments)
        pipeline = workflow.pipeline()
    except RecipeError:
        raise
    except (ThresherError, TypeError) as error:
        raise RecipeError(f"{path}: workflow[0]: {error}") from None
    options = {"run_dir": workflow.cache_path} if getattr(workflow, "cache_path", None) else {}
    return Recipe(
        name, f"from {FilePath(path).name}", {}, _executor_of(data, path), options, tuple(pipeline.stages), {}
    )


def _item(value: Any, where: str) -> Any:
    """Return a stage as an item of a recipe."""
    if not isinstance(value, Mapping) or TARGET not in value:
        raise RecipeError(f"{where}: {show_value(value)} is not a stage; it needs `{TARGET}`")
    try:
        name, arguments = _resolved(value, where)
    except ThresherError as error:
        raise RecipeError(f"{where}: {error}") from None
    if isinstance(name, dict):
        return {**name, **arguments}
    first = _FIRST.get(name, "")
    inner = arguments.get(first)
    if name in _WRAPPED and isinstance(inner, dict) and len(inner) == 1 and _kind(next(iter(inner))) == _WRAPPED[name]:
        # A rule of its own name, as recipes write it: reports then name the rule.
        (rule, parameters), *_ = inner.items()
        return {rule: {**parameters, **{key: value for key, value in arguments.items() if key != first}}}
    return {name: arguments}


def _kind(name: str) -> str:
    known = entries().get(name)
    return "" if known is None else known.kind


def _resolved(value: Mapping[str, Any], where: str) -> tuple[Any, dict[str, Any]]:
    """Return our name of a class with our arguments; a mapping with `_target_` for a class without a name."""
    label = str(value[TARGET])
    given = {key: _part(item, f"{where}.{key}") for key, item in value.items() if key not in (TARGET, *_HYDRA_ONLY)}
    strange = [key for key in given if key in ("_args_", "_partial_")]
    if strange:
        raise RecipeError(f"{where}: {strange[0]} is not possible here; name the arguments")
    if not label.startswith(f"{ORIGINAL}."):
        return {TARGET: label}, given
    module, _, name = label.rpartition(".")
    target = names_of(module).get(name)
    if target is None:
        raise missing_name(module, name)
    made = load_target(target)
    resources = given.pop("resources", None)
    own, settings = translated(name, made, given)
    arguments = {**own, **settings, **({} if not resources else {"resources": resources})}
    if target in entries() or target in WORKFLOWS or target in _PLAIN:
        return target, arguments
    return {TARGET: target.replace(":", ".")}, arguments


def _part(value: Any, where: str) -> Any:
    """Return a parameter with the objects in it as a recipe names them."""
    if isinstance(value, list):
        return [_part(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    if TARGET not in value:
        return {key: _part(item, f"{where}.{key}") for key, item in value.items()}
    name, arguments = _resolved(value, where)
    if isinstance(name, dict):
        label = str(name[TARGET])
        return RankingStrategy(**arguments) if label.endswith(".RankingStrategy") else {**name, **arguments}
    return arguments if name in _PLAIN else {name: arguments}
