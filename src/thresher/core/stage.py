# SPDX-License-Identifier: Apache-2.0
"""Stages: one step on a task. An author writes `process`; ids, lineage, timing, counting and failures belong to the
framework."""

from __future__ import annotations

import copy
import inspect
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from thresher.core.resources import NodeInfo, Resources, WorkerMetadata
from thresher.core.task import Task
from thresher.errors import UsageError

In = TypeVar("In", bound=Task)
Out = TypeVar("Out", bound=Task)

_KEEP: Any = object()


class ProcessingStage(Generic[In, Out]):
    """One step. Subclass it, say `ProcessingStage[DocumentBatch, DocumentBatch]`, and write `process`."""

    name: str = "ProcessingStage"
    resources: Resources = Resources(cpus=1.0)
    batch_size: int = 1
    """How many tasks one call of `process_batch` gets."""
    timeout_s: float | None = None
    max_attempts: int = 3
    runtime_env: dict[str, Any] | None = None
    row_wise: bool = True
    """Batch borders mean nothing to this stage, so batches may be cut, split and put together."""
    looks_at_inputs_only: bool = False
    """It looks at no other column than those of `inputs()`: a reader may leave out what nobody needs."""
    deterministic: bool = True
    fans_out: bool = False
    """The stage makes several tasks of one: what it makes may run elsewhere."""
    expensive_setup: bool = False
    """`setup` takes long or much memory: the stage gets workers of its own, so that not every worker pays for it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__
        if isinstance(cls.__dict__.get("num_workers"), int):
            raise TypeError(f"{cls.__name__}.num_workers must be a method; or use with_(num_workers=…)")

    # -- what an author writes ----------------------------------------------------------------------------------------

    def process(self, task: In) -> Out | list[Out] | Iterator[Out] | None:
        """Work on one task. Return a task, a list, `None` to drop it, or yield tasks one by one."""
        raise TypeError(f"{type(self).__name__} must define process() or process_batch()")

    def process_batch(self, tasks: list[In]) -> Sequence[Any]:
        """Work on several tasks; one entry per task, in order. The default calls `process` for each."""
        return [self.process(task) for task in tasks]

    def inputs(self) -> tuple[list[str], list[str]]:
        """Attributes of the task and columns that the stage needs."""
        return [], []

    def outputs(self) -> tuple[list[str], list[str]]:
        """Attributes of the task and columns that the stage adds."""
        return [], []

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        """Once per machine, before `setup`: downloads and the like."""

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Once per worker, before its first task: load a model, open an index."""

    def teardown(self) -> None:
        """Once per worker at its end, also after an error."""

    def preloads(self) -> list[str]:
        """Modules that its workers will need: imported before workers are forked, so that it happens once."""
        return []

    def needs_arrow(self) -> bool:
        """Whether its workers will look at records as Arrow columns: where no stage does, Arrow is not loaded early."""
        return True

    def num_workers(self) -> int | None:
        """How many workers of its own the stage wants; `None` leaves it to the executor."""
        own: int | None = self.__dict__.get("_num_workers")
        return own

    # -- what the framework offers ------------------------------------------------------------------------------------

    def count(self, name: str, n: int = 1) -> None:
        """Add to a number of your own in the report."""
        counts: dict[str, int] = self.__dict__.setdefault("_counts", {})
        counts[name] = counts.get(name, 0) + n

    def with_(  # noqa: PLR0913 - all by keyword, as the contract names them
        self,
        *,
        name: str = _KEEP,
        resources: Resources = _KEEP,
        batch_size: int = _KEEP,
        num_workers: int | None = _KEEP,
        timeout_s: float | None = _KEEP,
        max_attempts: int = _KEEP,
        runtime_env: dict[str, Any] | None = _KEEP,
    ) -> typing.Self:
        """A changed copy; this stage stays as it is."""
        changed = copy.copy(self)
        changed.__dict__.pop("_counts", None)
        given = {
            "name": name,
            "resources": resources,
            "batch_size": batch_size,
            "_num_workers": num_workers,
            "timeout_s": timeout_s,
            "max_attempts": max_attempts,
            "runtime_env": runtime_env,
        }
        for attribute, value in given.items():
            if value is not _KEEP:
                setattr(changed, attribute, value)
        check_settings(changed)
        return changed

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"


class CompositeStage(ProcessingStage[In, Out]):
    """A name for several stages in a row; never run itself. Composites may hold composites."""

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        """The stages behind the name, in order."""
        raise TypeError(f"{type(self).__name__} must define decompose()")


class SourceStage(ProcessingStage[Task, Out]):
    """A reader: lists units of work, reads one as chunks, and parses chunks into tasks."""

    is_source: ClassVar[bool] = True

    def list_units(self) -> Iterator[Any]:
        """All units in input order, cheaply and lazily: work starts before the list ends."""
        raise TypeError(f"{type(self).__name__} must define list_units()")

    def read(self, unit: Any, context: Any) -> Iterator[Any]:
        """Yield `SourceItem`s of one unit (of a stream: of the units that are cut from it, in order)."""
        raise TypeError(f"{type(self).__name__} must define read()")

    def input_roots(self) -> list[str]:
        """Files and folders that are read, so that no output is put among them."""
        return []

    def known_columns(self) -> list[str] | None:
        """The columns of every record, where that is certain before reading; `None` where it is not."""
        return None

    def reading_only(self, columns: list[str]) -> SourceStage[Out]:
        """A reader of the same records that may leave out all other columns; by itself it leaves out none."""
        return self

    def parse(self, task: Task) -> Out:
        """Make a task of a chunk. What is already parsed is returned as it is."""
        raise TypeError(f"{type(self).__name__} must define parse()")


class OrderedStage(ProcessingStage[In, Out]):
    """A stage that gets the tasks of one unit in order, on one worker, and may hold records back until the unit ends.

    It runs right before the writer, which works in the same way, together with all stages that stand between them.
    """

    row_wise = False
    _kept: Any = None
    """What it keeps of the unit at hand; the framework lays it here before a call. `None` outside of a run."""

    def begin_unit(self) -> Any:
        """Something to keep records in, made when the first task of a unit comes."""
        raise TypeError(f"{type(self).__name__} must define begin_unit()")

    def take(self, kept: Any, task: In) -> Any:
        """Work on the next task: what goes on now, as `Gathered`. `kept` may change only where nothing can fail."""
        raise TypeError(f"{type(self).__name__} must define take(kept, task)")

    def end_unit(self, kept: Any) -> Any:
        """What was held back, as `Gathered`: nothing more comes of the unit."""
        raise TypeError(f"{type(self).__name__} must define end_unit(kept)")

    def place_fault(self, before: Sequence[ProcessingStage[Any, Any]]) -> str:
        """Why the stage cannot do its work behind these stages; empty if it can."""
        return ""

    def process(self, task: In) -> Any:
        """The next task of the unit at hand; without a run, a task that is a unit of its own."""
        if self._kept is not None:
            return self.take(self._kept, task)
        from thresher.core.batch import concat_batches

        kept = self.begin_unit()
        return concat_batches([self.take(kept, task).batch, self.end_unit(kept).batch])


class SinkStage(ProcessingStage[In, Out]):
    """A writer: turns the tasks of one unit, in order, into one local file; the ledger publishes it."""

    is_sink: ClassVar[bool] = True
    path: str
    """The output folder or URL."""
    mode: str = "error"
    """What to do with an output folder that holds something foreign: `error`, `overwrite` or `append`."""
    fields: list[str] | None = None
    """Columns that are written; `None`: all."""
    target_file_size: int | None = None
    """Join the files of consecutive units up to this size."""
    storage_options: dict[str, Any] | None = None

    def extension(self) -> str:
        """The end of the file names, such as `.jsonl.gz`."""
        raise TypeError(f"{type(self).__name__} must define extension()")

    def open_writer(self, local_path: str) -> Any:
        """A `RecordWriter` for one unit that writes to a local file."""
        raise TypeError(f"{type(self).__name__} must define open_writer()")

    def open_part_writer(self, local_path: str) -> Any:
        """The same for a part that is joined with others later, in whatever form joins best."""
        return self.open_writer(local_path)

    def join_parts(self, part_paths: list[str], local_path: str) -> Any:
        """Make one file of the parts of consecutive units; the bytes depend on the records alone."""
        raise TypeError(f"{type(self).__name__} must define join_parts()")


class FunctionStage(ProcessingStage[Any, Any]):
    """A stage made of a function."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        self.fans_out = inspect.isgeneratorfunction(function)

    def process(self, task: Any) -> Any:
        """Call the function."""
        return self.function(task)


def processing_stage(
    name: str | None = None, resources: Resources | dict[str, Any] | None = None, batch_size: int | None = None
) -> Callable[[Callable[[Any], Any]], FunctionStage]:
    """Make a stage instance of a function of one task: `@processing_stage(name="shorten")`."""

    def make(function: Callable[[Any], Any]) -> FunctionStage:
        stage = FunctionStage(function)
        stage.name = name or str(getattr(function, "__name__", "function"))
        if resources is not None:
            stage.resources = Resources(**resources) if isinstance(resources, dict) else resources
        if batch_size is not None:
            stage.batch_size = batch_size
        check_settings(stage)
        return stage

    return make


def check_settings(stage: ProcessingStage[Any, Any]) -> None:
    """Refuse settings that no executor could honour."""
    if not isinstance(stage.name, str) or not stage.name:
        raise UsageError(f"{type(stage).__name__}.name: {stage.name!r} is not a name")
    for attribute in ("batch_size", "max_attempts"):
        value = getattr(stage, attribute)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{stage.name}.{attribute}: {value!r} is not a whole number of 1 or more")
    limit = stage.timeout_s
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | float) or not limit > 0):
        raise UsageError(f"{stage.name}.timeout_s: {limit!r} is not a number of seconds above 0; None is no limit")
    if not isinstance(stage.resources, Resources):
        raise UsageError(f"{stage.name}.resources: {stage.resources!r} is not a Resources(…)")
    workers = stage.num_workers()
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise UsageError(f"{stage.name}.num_workers: {workers!r} is not a whole number of 1 or more")


def needs_own_workers(stage: ProcessingStage[Any, Any]) -> bool:
    """Whether a stage runs in workers that do nothing else: what it holds is held while a worker lives."""
    needs = stage.resources
    holds = needs.requires_gpu or needs.memory_gb > 0 or any(needs.custom.values()) or bool(stage.runtime_env)
    expensive = stage.expensive_setup and overrides(stage, "setup")
    return holds or expensive or stage.num_workers() is not None


def task_types(stage: ProcessingStage[Any, Any]) -> tuple[type[Task], type[Task]]:
    """What a stage takes and gives, as far as its declaration says; `Task` where it says nothing."""
    if isinstance(stage, FunctionStage):
        return _types_of_function(stage.function)
    for cls in type(stage).__mro__:
        for base in getattr(cls, "__orig_bases__", ()):
            origin = typing.get_origin(base)
            if isinstance(origin, type) and issubclass(origin, ProcessingStage):
                found = [_task_type(argument) for argument in typing.get_args(base)]
                if len(found) == 2:
                    return found[0], found[1]
                if len(found) == 1:
                    return (Task, found[0]) if issubclass(origin, SourceStage) else (found[0], Task)
    return Task, Task


def _types_of_function(function: Callable[[Any], Any]) -> tuple[type[Task], type[Task]]:
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):
        return Task, Task
    given = hints.pop("return", Task)
    taken = next(iter(hints.values()), Task)
    return _task_type(taken), _task_type(given)


def _task_type(hint: Any) -> type[Task]:
    return hint if isinstance(hint, type) and issubclass(hint, Task) else Task


def overrides(stage: ProcessingStage[Any, Any], method: str) -> bool:
    """Whether a stage defines `method` itself instead of inheriting the default."""
    return getattr(type(stage), method, None) is not getattr(ProcessingStage, method, None)
