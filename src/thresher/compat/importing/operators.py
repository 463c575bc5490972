# SPDX-License-Identifier: Apache-2.0
"""What an operator of another tool is here, and how its parameters become ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from thresher.core.arguments.parameters import parameters_of, show_value
from thresher.core.recipes.params import MISSING
from thresher.core.registry import lookup, wrapper_of


@dataclass(frozen=True)
class Operator:
    """One operator of another tool. A parameter of the same name goes over as it is, if ours has it."""

    stage: str
    """Name of our stage, filter or modifier."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Our names of parameters."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values that a parameter which is not given has there, and not here; under our names."""
    values: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    """Values that are written otherwise here, by their parameter."""
    dropped: tuple[str, ...] = ()
    """Parameters without effect on the result."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """Parameters that must be given on the command line, with the reason."""
    difference: str = ""
    """In which way the result may differ."""


@dataclass
class Imported:
    """A recipe made from a configuration."""

    name: str
    """Name of the recipe."""
    stages: list[Any] = field(default_factory=list)
    """Items of `stages`."""
    params: dict[str, Any] = field(default_factory=dict)
    """Params of the recipe."""
    executor: dict[str, Any] = field(default_factory=dict)
    """Name and options of the executor."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the run."""
    missing: list[str] = field(default_factory=list)
    """What could not be translated."""
    differences: list[str] = field(default_factory=list)
    """What was translated to something that is not quite the same."""

    def recipe(self) -> dict[str, Any]:
        """Return the recipe as data."""
        parts = {"params": self.params, "executor": self.executor, "options": self.options}
        return {"name": self.name, **{key: value for key, value in parts.items() if value}, "stages": self.stages}

    def add(
        self, label: str, operator: Operator, given: Mapping[str, Any], fixed: Mapping[str, Any] | None = None
    ) -> None:
        """Add the stage that an operator is here; `label` names it in notes, `fixed` are parameters of ours."""
        legal = set(parameters_of(lookup(operator.stage).load()))
        wrapper = wrapper_of(lookup(operator.stage).kind)
        legal |= set() if wrapper is None else set(parameters_of(wrapper))
        arguments = {**operator.defaults, **(fixed or {})}
        for key, value in given.items():
            name = operator.renamed.get(key, key)
            if key in operator.dropped:
                continue
            if name not in legal:
                self.missing.append(f"{label}.{key}: {show_value(value)} has no counterpart in {operator.stage}")
                continue
            known = operator.values.get(key, {})
            arguments[name] = known.get(value, value) if isinstance(value, str | int | bool | None) else value
        for name, reason in operator.needs.items():
            if name not in arguments:
                param = f"{name}_of_{operator.stage}" if name in self.params else name
                self.params[param] = MISSING
                arguments[name] = f"${{{param}}}"
                self.differences.append(f"{label}: give {param}=… on the command line: {reason}")
        if operator.difference:
            self.differences.append(f"{label} became {operator.stage}: {operator.difference}")
        plain = {key: value for key, value in arguments.items() if value is not None}
        self.stages.append({operator.stage: plain} if plain else operator.stage)

    def add_unknown(self, label: str, reason: str = "there is no such stage here") -> None:
        """Note an operator that nothing here stands for."""
        self.missing.append(f"{label}: {reason}")
