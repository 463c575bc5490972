# SPDX-License-Identifier: Apache-2.0
"""Make our classes from the arguments that NeMo Curator's take, by the table of `argument_table`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any

from thresher.compat.nemo.argument_table import ARGUMENTS, UNKNOWN_ENTRY, Arguments
from thresher.compat.nemo.ranking import RankingStrategy
from thresher.compat.nemo.table import load_target
from thresher.core.arguments.parameters import parameters_of, show_value
from thresher.errors import ParameterTypeError

EXECUTORS = frozenset({"XennaExecutor", "RayDataExecutor", "RayActorPoolExecutor"})
"""Classes whose objects may be replaced by those of another executor."""


def adapted(module: str, name: str, target: str) -> Any:
    """Return what stands for a name: our class itself where it takes the same arguments."""
    found = load_target(target)
    if name not in ARGUMENTS or not isinstance(found, type):
        return found
    return _adapted_class(name, found)


@functools.cache
def _adapted_class(name: str, made: type[Any]) -> AdaptedClass:
    return AdaptedClass(name, made, ARGUMENTS[name])


def translated(name: str, made: Callable[..., Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return our arguments for those of the class `name`, and the settings that `with_` gets."""
    return _Translation(name, made, ARGUMENTS.get(name, Arguments(settings=()))).run(given)


class AdaptedClass:
    """One of our classes, called with the arguments of NeMo Curator's. What it makes is an object of our class.

    It may be called, subclassed and asked by `isinstance`; a subclass takes our arguments.
    """

    def __init__(self, name: str, made: type[Any], arguments: Arguments) -> None:
        """`name`: that of NeMo Curator; `made`: our class."""
        self.__name__ = self.__qualname__ = name
        self.__doc__ = made.__doc__
        self.made = made
        self.arguments = arguments

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return an object of our class."""
        order = self.arguments.order or tuple(parameters_of(self.made))
        if len(args) > len(order):
            raise ParameterTypeError(f"{self.__name__} takes {len(order)} arguments, and {len(args)} were given")
        given = dict(zip(order, args, strict=False))
        twice = [name for name in given if name in kwargs]
        if twice:
            raise ParameterTypeError(f"{self.__name__}.{twice[0]}: given twice, by position and by name")
        own, settings = translated(self.__name__, self.made, {**given, **kwargs})
        if self.__name__ in EXECUTORS:
            from thresher.compat.nemo.client import executor_instead

            return executor_instead(self.made, own)
        made = self.made(**own)
        return made.with_(**settings) if settings else made

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type[Any], ...]:
        return (self.made,)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self.made)

    def __subclasscheck__(self, subclass: type) -> bool:
        return issubclass(subclass, self.made)

    def __or__(self, other: Any) -> UnionType:
        found: UnionType = self.made | other
        return found

    def __ror__(self, other: Any) -> UnionType:
        return other | self.made  # type: ignore[no-any-return]  # a union of types

    def __getitem__(self, item: Any) -> Any:
        return self.made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{self.__name__} has no attribute {name!r}")
        return getattr(self.made, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _adapted_class, (self.__name__, self.made)


@dataclass(frozen=True)
class _Translation:
    """Translation of the arguments of one call."""

    name: str
    made: Callable[..., Any]
    table: Arguments

    def run(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return our arguments, and the settings."""
        own: dict[str, Any] = {}
        settings: dict[str, Any] = {}
        flat = {**self.table.defaults, **self._opened(given)}
        for key, value in flat.items():
            if key in self.table.settings:
                settings |= {} if value is None else {key: value}
            elif key in self.table.without_effect or key in self.table.extensions:
                continue
            elif key in self.table.only:
                self._check_only(key, value)
            else:
                own |= self._translated(key, value)
        for key, paths in self.table.extensions.items():
            if flat.get(key) and own.get(paths):
                own[paths] = _with_endings(own[paths], flat[key])
        if self.table.list_folder and own.get("perform_removal") is False and "output_path" in own:
            from thresher.core.files.filesystem import join

            own["output_path"] = join(str(own["output_path"]), self.table.list_folder)
        return own, settings

    def _opened(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with the entries of dicts such as `read_kwargs` among them."""
        flat: dict[str, Any] = {}
        for key, value in given.items():
            if key not in self.table.opened:
                flat[key] = value
                continue
            for entry, content in (value or {}).items():
                target = self.table.opened[key].get(entry, "?")
                if target == "?":
                    raise ParameterTypeError(
                        f"{self.name}.{key}: {entry!r} has no counterpart in Thresher's {self._made_name}; "
                        + UNKNOWN_ENTRY
                    )
                flat |= {target: content} if target else {}
        return flat

    def _check_only(self, key: str, value: Any) -> None:
        legal, instead = self.table.only[key]
        if value not in legal:
            raise ParameterTypeError(
                f"{self.name}.{key}: {show_value(value)} is not possible with Thresher's {self._made_name}"
                + (f"; {instead}" if instead else "")
            )

    def _translated(self, key: str, value: Any) -> dict[str, Any]:
        """Return an argument under our name; `None` stands for the default, as far as it is not a value here."""
        if isinstance(value, RankingStrategy):
            return value.as_arguments()
        name = self.table.renamed.get(key, key)
        values = self.table.values.get(key, {})
        if isinstance(value, str | int | bool | None) and value in values:
            value = values[value]
        return {} if value is None else {name: value}

    @property
    def _made_name(self) -> str:
        return str(getattr(self.made, "__name__", self.made))


_USUAL = ({".jsonl", ".json"}, {".parquet"})
"""Endings that readers take anyway."""


def _with_endings(paths: Any, endings: Any) -> Any:
    """Return patterns for the files below folders that have one of some endings."""
    wanted = [endings] if isinstance(endings, str) else list(endings)
    if set(wanted) in _USUAL:
        return paths
    listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found: list[str] = []
    for path in [str(os.fspath(path)) for path in listed]:
        is_folder = not any(character in path for character in "*?[") and not path.endswith(tuple(wanted))
        found += [f"{path.rstrip('/')}/**/*{ending}" for ending in wanted] if is_folder else [path]
    return found
