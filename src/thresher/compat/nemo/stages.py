# SPDX-License-Identifier: Apache-2.0
"""Base class of stages that were written for NeMo Curator: ours, with the methods that only theirs has."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from thresher.compat.nemo.tasks import settled
from thresher.core import function_stage
from thresher.core.function_stage import FunctionStage
from thresher.core.stage import ProcessingStage
from thresher.core.task import Task
from thresher.errors import UsageError, nearest

In = TypeVar("In", bound=Task)
Out = TypeVar("Out", bound=Task)

_RESULTS = ("process", "process_batch")
_SCHEDULING = ("ray_stage_spec", "xenna_stage_spec")
_ATTEMPTS = ("num_run_attempts_python",)
"""Keys of a stage spec that set `max_attempts`; the others belong to the engines, and to executors' options here."""

_classes: dict[str, type[Any]] = {}


class CompatStage(ProcessingStage[In, Out]):
    """A stage that was written for NeMo Curator. What schedulers of its engines are told is accepted and not needed."""

    takes_frames = True  # so is `data` of documents there
    is_source_stage: bool = False
    is_sink_stage: bool = False
    is_resumable: bool = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for method in _RESULTS:
            if method in cls.__dict__:
                setattr(cls, method, _without_sentinels(cls.__dict__[method]))
        _classes[cls.__name__] = cls

    def __post_init__(self) -> None:
        """Do nothing: dataclasses call it."""

    def ray_stage_spec(self) -> dict[str, Any]:
        """Return what Ray's engines are told; it is not asked for here."""
        return {}

    def xenna_stage_spec(self) -> dict[str, Any]:
        """Return what Xenna is told; it is not asked for here."""
        return {}

    def supports_batch_processing(self) -> bool:
        """Return True if the stage defines `process_batch`."""
        return type(self).process_batch is not ProcessingStage.process_batch

    def get_config(self) -> dict[str, Any]:
        """Return name, resources and batch size."""
        return {"name": self.name, "resources": self.resources, "batch_size": self.batch_size}

    def with_(self, *arguments: Any, **settings: Any) -> typing.Self:
        """Return a changed copy. Specs for the schedulers of engines are accepted; attempts become `max_attempts`."""
        specs = [settings.pop(name, None) or {} for name in _SCHEDULING]
        attempts = [spec[key] for spec in specs for key in _ATTEMPTS if key in spec]
        if attempts:
            settings.setdefault("max_attempts", attempts[0])
        return super().with_(*arguments, **settings)


def processing_stage(*settings: Any, **named_settings: Any) -> Callable[[Callable[[Any], Any]], FunctionStage]:
    """Make a stage of a function, as Thresher's decorator does, for which `data` of documents is a data frame."""
    make = function_stage.processing_stage(*settings, **named_settings)

    def made(function: Callable[[Any], Any]) -> FunctionStage:
        stage = make(function)
        stage.takes_frames = True
        return stage

    return made


def get_stage_class(name: str) -> type[Any]:
    """Return the class of a stage that was defined with our base class, or that Thresher has, by its name."""
    from thresher.core.registry import entries

    known = entries()
    if name in _classes:
        return _classes[name]
    if name in known:
        return known[name].load()
    raise UsageError(f"{name!r} is not the class of a stage.{nearest(name, [*_classes, *known])}")


def _without_sentinels(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method with its `NoneTask`s as `None`, and its `FailedTask`s raised."""
    import inspect

    if inspect.isgeneratorfunction(method):
        return method

    @functools.wraps(method)
    def process(self: Any, *args: Any, **kwargs: Any) -> Any:
        return settled(method(self, *args, **kwargs))

    return process
