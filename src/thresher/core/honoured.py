# SPDX-License-Identifier: Apache-2.0
"""What an executor cannot honour. Each declares it once (`cannot`); a setting is refused or told, never ignored.

A key of `cannot` is a setting as users write it: an executor's option (`memory`), one value of it
(`execution_mode=batch`), a stage's setting (`timeout_s`, `resources.custom`) or an option of a run (`initial_tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from thresher.core.options import RunOptions
from thresher.core.registry import EXECUTORS, load_executor
from thresher.core.stage import OrderedStage, ProcessingStage
from thresher.errors import UnsupportedError

Stage = ProcessingStage[Any, Any]


class Declares(Protocol):
    """What is asked of an executor here."""

    name: str
    """As on the command line."""
    options: tuple[str, ...]
    """Names of the options that it honours."""
    cannot: ClassVar[Mapping[str, str]]
    """What it cannot honour, and why."""


@dataclass(frozen=True)
class StageSetting:
    """Something that a stage may ask of its executor."""

    asked: Callable[[Stage], Any]
    """The value; `None` where the stage does not ask for it."""
    without: Callable[[Stage], Stage] | None = None
    """The stage without it; `None`: it would not be the same stage, so nobody can waive it."""
    shown: str = "{stage}.{key}={value!r}"
    """How it is named in messages."""


@dataclass(frozen=True)
class Unmet:
    """One setting that cannot be honoured."""

    key: str
    """As in `cannot`."""
    shown: str
    """The setting with its stage and value, for people."""
    reason: str
    """Why not."""
    stage: str = ""
    """Name of the stage that asks for it; empty where the run does."""
    waivable: bool = False
    """Whether a run without it still gives the right result."""


def _resource(name: str) -> Callable[[Stage], Any]:
    return lambda stage: getattr(stage.resources, name) or None


def _without_resource(name: str, nothing: Any) -> Callable[[Stage], Stage]:
    return lambda stage: stage.with_(resources=replace(stage.resources, **{name: nothing}))


STAGE_SETTINGS: dict[str, StageSetting] = {
    "timeout_s": StageSetting(lambda stage: stage.timeout_s, lambda stage: stage.with_(timeout_s=None)),
    "runtime_env": StageSetting(lambda stage: stage.runtime_env or None, lambda stage: stage.with_(runtime_env=None)),
    "num_workers": StageSetting(lambda stage: stage.num_workers()),
    "resources.gpus": StageSetting(_resource("gpus")),
    "resources.gpu_memory_gb": StageSetting(_resource("gpu_memory_gb")),
    "resources.memory_gb": StageSetting(_resource("memory_gb"), _without_resource("memory_gb", 0.0)),
    "resources.custom": StageSetting(_resource("custom"), _without_resource("custom", {})),
    "ordered": StageSetting(
        lambda stage: isinstance(stage, OrderedStage) or None, shown="{stage}, which needs the tasks of a unit in order"
    ),
    "target_file_size": StageSetting(lambda stage: getattr(stage, "target_file_size", None)),
}
"""What stages may ask for."""

RUN_SETTINGS = ("initial_tasks", "dropped_to", "keep_scores")
"""What a run may ask for."""


def option_key(option: str, value: Any, cannot: Mapping[str, str]) -> str | None:
    """The key of `cannot` that an executor's option falls under; `None` where it is honoured."""
    return next((key for key in (option, f"{option}={value}") if key in cannot), None)


def honoured_by(key: str) -> list[str]:
    """Names of the executors that honour what `key` stands for."""
    option = "" if key in STAGE_SETTINGS or key in RUN_SETTINGS else key.partition("=")[0]
    found = []
    for name in EXECUTORS:
        try:
            executor = load_executor(name)
        except ImportError:
            continue  # nothing to recommend on this machine
        if key not in executor.cannot and (not option or option in executor.options):
            found.append(name)
    return found


def unmet_settings(stages: Sequence[Stage], options: RunOptions, cannot: Mapping[str, str]) -> list[Unmet]:
    """What stages and run ask for and `cannot` rules out."""
    found = []
    for stage in stages:
        for key in (key for key in STAGE_SETTINGS if key in cannot):
            setting = STAGE_SETTINGS[key]
            value = setting.asked(stage)
            if value is not None:
                shown = setting.shown.format(stage=stage.name, key=key, value=value)
                found.append(Unmet(key, shown, cannot[key], stage.name, setting.without is not None))
    for key in (key for key in RUN_SETTINGS if key in cannot):
        value = getattr(options, key)
        if value is not None and value is not False:
            found.append(Unmet(key, key, cannot[key]))
    return found


def refusal(executor: str, unmet: Sequence[Unmet]) -> UnsupportedError:
    """All that cannot be honoured in one message: what, why, who does it, and what to do."""
    rows = [f"{one.shown}: {one.reason}; {told_honoured_by(one.key)}" for one in unmet]
    listed = rows[0] if len(rows) == 1 else "\n" + "\n".join(f"  {row}" for row in rows) + "\n"
    waive = ", or add --allow-unsupported to go on without it" if all(one.waivable for one in unmet) else ""
    return UnsupportedError(
        f"executor {executor!r} does not honour {listed}{'. ' if len(rows) == 1 else ''}"
        f"Leave the setting out{' or' if not waive else ','} choose another executor{waive}"
    )


def told_honoured_by(key: str) -> str:
    """Who honours it, as the end of a sentence."""
    names = honoured_by(key)
    return f"it is honoured by: {', '.join(names)}" if names else "no executor honours it"


def honoured_stages(
    stages: Sequence[Stage], options: RunOptions, executor: Declares, warn: Callable[[str], None] | None = None
) -> list[Stage]:
    """The stages, if the executor honours all that they and the run ask for; else they are refused.

    With `warn`, what a run may do without is told there and left out of the stages.
    """
    unmet = unmet_settings(stages, options, executor.cannot)
    refused = [one for one in unmet if warn is None or not one.waivable]
    if refused:
        raise refusal(executor.name, refused)
    left = list(stages)
    for one in unmet:
        assert warn is not None
        warn(f"executor {executor.name!r} does not honour {one.shown}: {one.reason}; the run goes on without it")
        without = STAGE_SETTINGS[one.key].without
        assert without is not None
        left = [without(stage) if stage.name == one.stage else stage for stage in left]
    return left
