# SPDX-License-Identifier: Apache-2.0
"""Create executors by name, and check the settings that they do not support.

Each executor declares unsupported settings once (`cannot`). They are refused or left out with a warning, never ignored
silently. A key of `cannot` is a setting as users write it: an executor's option (`memory`), one value of it
(`execution_mode=batch`), a stage's setting (`timeout_s`, `resources.custom`) or an option of a run (`initial_tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from thresher.core.arguments.options import RunOptions, option_key
from thresher.core.files.filesystem import STANDARD_STREAM
from thresher.core.registry import EXECUTORS, load_executor
from thresher.core.stage import OrderedStage, ProcessingStage
from thresher.errors import UnsupportedError

Stage = ProcessingStage[Any, Any]


class ExecutorDeclaration(Protocol):
    """The attributes of an executor that are used here."""

    name: str
    """Name on the command line."""
    options: tuple[str, ...]
    """Names of the supported options."""
    cannot: ClassVar[Mapping[str, str]]
    """Unsupported settings with the reason."""


@dataclass(frozen=True)
class StageSetting:
    """A setting of a stage that an executor may not support."""

    value_of: Callable[[Stage], Any]
    """Function that returns the value; `None` if the stage does not use the setting."""
    without: Callable[[Stage], Stage] | None = None
    """Function that returns the stage without it; `None` if the setting cannot be waived because the result would
    differ."""
    shown: str = "{stage}.{key}={value!r}"
    """Form of the setting in messages."""


@dataclass(frozen=True)
class Unmet:
    """One unsupported setting."""

    key: str
    """Key in `cannot`."""
    shown: str
    """The setting with its stage and value, for messages."""
    reason: str
    """Reason why it is not supported."""
    stage: str = ""
    """Name of the stage that uses it; empty for a setting of the run."""
    waivable: bool = False
    """True if a run without it still gives the right result."""


def _resource(name: str) -> Callable[[Stage], Any]:
    return lambda stage: getattr(stage.resources, name) or None


def _without_resource(name: str, nothing: Any) -> Callable[[Stage], Stage]:
    return lambda stage: stage.with_(resources=replace(stage.resources, **{name: nothing}))


STAGE_SETTINGS: dict[str, StageSetting] = {
    "timeout_s": StageSetting(lambda stage: stage.timeout_s, lambda stage: stage.with_(timeout_s=None)),
    "runtime_env": StageSetting(lambda stage: stage.runtime_env or None, lambda stage: stage.with_(runtime_env={})),
    "num_workers": StageSetting(lambda stage: stage.num_workers()),
    "resources.gpus": StageSetting(_resource("gpus")),
    "resources.gpu_memory_gb": StageSetting(_resource("gpu_memory_gb")),
    "resources.memory_gb": StageSetting(_resource("memory_gb"), _without_resource("memory_gb", 0.0)),
    "resources.custom": StageSetting(_resource("custom"), _without_resource("custom", {})),
    "ordered": StageSetting(
        lambda stage: isinstance(stage, OrderedStage) or None, shown="{stage}, which needs the tasks of a unit in order"
    ),
    "standard_stream": StageSetting(
        lambda stage: (
            STANDARD_STREAM
            if getattr(stage, "reads_standard_input", False) or getattr(stage, "path", "") == STANDARD_STREAM
            else None
        ),
        shown="{stage} with {value!r}, a standard stream",
    ),
    "target_file_size": StageSetting(lambda stage: getattr(stage, "target_file_size", None)),
}
"""Settings of stages."""

RUN_SETTINGS = ("initial_tasks", "dropped_to", "keep_scores")
"""Settings of a run."""


def honoured_by(key: str) -> list[str]:
    """Return the names of the executors that support the setting `key`."""
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
    """Return the settings of stages and run that `cannot` lists."""
    found = []
    for stage in stages:
        for key in (key for key in STAGE_SETTINGS if key in cannot):
            setting = STAGE_SETTINGS[key]
            value = setting.value_of(stage)
            if value is not None:
                shown = setting.shown.format(stage=stage.name, key=key, value=value)
                found.append(Unmet(key, shown, cannot[key], stage.name, setting.without is not None))
    for key in (key for key in RUN_SETTINGS if key in cannot):
        value = getattr(options, key)
        if value is not None and value is not False:
            found.append(Unmet(key, key, cannot[key]))
    return found


def refusal(executor: str, unmet: Sequence[Unmet]) -> UnsupportedError:
    """Return one error for all unsupported settings: what, why, which executors support it, and what to do."""
    rows = [f"{one.shown}: {one.reason}; {_honoured_by_text(one.key)}" for one in unmet]
    listed = rows[0] if len(rows) == 1 else "\n" + "\n".join(f"  {row}" for row in rows) + "\n"
    waive = ", or add --allow-unsupported to go on without it" if all(one.waivable for one in unmet) else ""
    return UnsupportedError(
        f"executor {executor!r} does not honour {listed}{'. ' if len(rows) == 1 else ''}"
        f"Leave the setting out{' or' if not waive else ','} choose another executor{waive}"
    )


def _honoured_by_text(key: str) -> str:
    """Return the executors that support a setting, as the end of a sentence."""
    names = honoured_by(key)
    return f"it is honoured by: {', '.join(names)}" if names else "no executor honours it"


def honoured_stages(
    stages: Sequence[Stage],
    options: RunOptions,
    executor: ExecutorDeclaration,
    warn: Callable[[str], None] | None = None,
) -> list[Stage]:
    """Return the stages if the executor supports all settings of stages and run, else raise.

    With `warn`, waivable settings are removed from the stages with a warning.
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


def make_executor(name: str, options: Mapping[str, Any], warn: Callable[[str], None] | None = None) -> Any:
    """Return the executor `name` with `options`. With `warn`, unsupported options are left out with a warning.

    The same applies later to unsupported settings of the pipeline.
    """
    executor = load_executor(name)
    kept = dict(options)
    for option, value in options.items():
        key = option_key(option, value, executor.cannot)
        if key is None and option in executor.options:
            continue
        others = honoured_by(key or option)
        if not others and key is None:
            continue  # unknown to all executors: the constructor raises, with the nearest name
        reason = f": {executor.cannot[key]}" if key else ""
        text = f"executor {name!r} does not honour {option!r} ({option}={value!r}){reason}"
        if warn is None:
            raise UnsupportedError(
                f"{text}; it is honoured by: {', '.join(others) or 'none'}. Leave the setting out, choose another "
                "executor, or add --allow-unsupported to go on without it"
            )
        warn(f"{text}; the run goes on without it" if reason else f"{text}: the run goes on without it")
        del kept[option]
    made = executor(**kept)
    made.warn_unsupported = warn
    return made
