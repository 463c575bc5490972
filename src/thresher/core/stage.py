# SPDX-License-Identifier: Apache-2.0
"""Stages: one step on a task. An author writes `process`; ids, lineage, timing, counting and failures belong to the
framework."""

from __future__ import annotations

import contextlib
import copy
import inspect
import time
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from thresher.core.arguments.construction import check_constructor
from thresher.core.arguments.stage_settings import (
    check_part_settings,
    check_settings,
    let_settings_win,
    with_part_settings,
)
from thresher.core.arguments.stage_settings import needs_own_workers as needs_own_workers
from thresher.core.arguments.stage_settings import overrides as overrides
from thresher.core.resources import NodeInfo, Resources, WorkerMetadata
from thresher.core.tally import charted, context_of
from thresher.core.task import Task

if TYPE_CHECKING:
    from thresher.core.records.record_ids import RecordIds
    from thresher.core.records.record_task import RecordTask
    from thresher.core.source import ReadContext, SourceItem
    from thresher.core.unit import Piece, Unit

In = TypeVar("In", bound=Task)
Out = TypeVar("Out", bound=Task)

StageNeeds = tuple[list[str], list[str]]
"""Attributes of a task, and columns."""
_KEEP: Any = object()


class ProcessingStage(Generic[In, Out]):
    """One step. Subclass it, say `ProcessingStage[DocumentBatch, DocumentBatch]`, and write `process`."""

    name: str = "ProcessingStage"
    resources: Resources = Resources(cpus=1.0)
    batch_size: int = 1
    """Number of tasks that one call of `process_batch` gets."""
    timeout_s: float | None = None
    max_attempts: int = 3
    runtime_env: dict[str, Any] | None = None
    drops_to: str | None = None
    """The outlet of the pipeline that gets what the stage drops."""
    row_wise: bool = True
    """Batch borders mean nothing to this stage, so batches may be cut, split and put together."""
    takes_frames: bool = False
    """`data` of the documents that it gets is a pandas data frame, and what is written to it in place counts."""
    looks_at_inputs_only: bool = False
    """It looks at no other column than those of `inputs()`: a reader may leave out what nobody needs."""
    deterministic: bool = True
    fans_out: bool = False
    """The stage makes several tasks of one: what it makes may run elsewhere."""
    without_influence: ClassVar[frozenset[str]] = frozenset()
    """Names of attributes that do not affect the output: they may change between attempts of a run."""
    expensive_setup: bool = False
    """`setup` takes long or much memory: the stage gets workers of its own, so that not every worker pays for it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__ and not isinstance(inspect.getattr_static(cls, "name"), property):
            cls.name = cls.__name__
        check_constructor(cls)
        if isinstance(inspect.getattr_static(cls, "num_workers"), int | property):
            raise TypeError(f"{cls.__name__}.num_workers must be a method; or use with_(num_workers=…)")
        let_settings_win(cls)

    # -- what an author writes ----------------------------------------------------------------------------------------

    def process(self, task: In) -> Out | list[Out] | Iterator[Out] | None:
        """Work on one task. Return a task, a list, `None` to drop it, or yield tasks one by one."""
        raise TypeError(f"{type(self).__name__} must define process() or process_batch()")

    def process_batch(self, tasks: list[In]) -> Any:
        """Work on up to `batch_size` tasks; where it is defined, it is called in place of `process`, for one task too.

        Return one entry (task, list, iterator or None) per task, in order. A list of another length is a list of new
        tasks, made of all of them together; None drops all.
        """
        return [self.process(task) for task in tasks]

    def inputs(self) -> StageNeeds | Mapping[type[Task], StageNeeds]:
        """Attributes of the task and columns that the stage needs; by type of task, if it takes several."""
        return [], []

    def validate_input(self, task: Task) -> bool:
        """Return False for a task that the stage must not get, which is then quarantined.

        Where a stage defines it, it is called for each task before `process` or `process_batch`. By itself it looks
        for what `inputs()` names, which is checked when the run is planned too.
        """
        from thresher.core.planning.inputs import missing_inputs, needs_for

        return needs_for(self, type(task)) is not None and not missing_inputs(self, task, may_read=True)

    def outputs(self) -> tuple[list[str], list[str]]:
        """Attributes of the task and columns that the stage adds."""
        return [], []

    def check_before_run(self) -> list[str]:
        """Return what is wrong with the stage on this machine, such as a missing file: one message each.

        Called once, in the process that plans the run, before anything is read or written. It must be quick: look
        whether a model is there, do not load it.
        """
        return []

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
        """Return True if its workers read records as Arrow columns: where no stage does, Arrow is not loaded early."""
        return True

    def num_workers(self) -> int | None:
        """Return the number of dedicated workers that the stage wants; `None` leaves it to the executor."""
        return None

    # -- what the framework offers ------------------------------------------------------------------------------------

    def count(self, name: str, n: int = 1) -> None:
        """Add to a number of your own in the report."""
        counts = context_of(self).noted.counts
        counts[name] = counts.get(name, 0) + n

    def chart(self, name: str, bar: str | float, n: int = 1, part: str = "") -> None:
        """Add to a bar of a chart in the report. Bars are texts, or numbers from which a class of values begins.

        `part`: what the records of a bar became, such as `kept` or `dropped`. Keep the number of bars small: each is
        a count of its own in the ledger.
        """
        if n:
            self.count(charted(name, bar, part), n)

    def _log_metric(self, name: str, value: float) -> None:
        """Add to a number of your own, as stages of NeMo Curator do: one that is not whole counts in thousandths."""
        whole = float(value).is_integer()
        self.count(name if whole else f"{name} (thousandths)", int(value) if whole else round(1000 * value))

    def _log_metrics(self, metrics: Mapping[str, float]) -> None:
        """Add to several numbers of your own."""
        for name, value in metrics.items():
            self._log_metric(name, value)

    @contextlib.contextmanager
    def _time_metric(self, name: str) -> Iterator[None]:
        """Add the milliseconds that a block takes to a number of your own."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.count(f"{name} (ms)", round(1000 * (time.perf_counter() - started)))

    def with_(  # noqa: PLR0913 - one for each setting, as the contract names them
        self,
        name: str | None = None,
        resources: Resources | None = None,
        batch_size: int | None = None,
        runtime_env: dict[str, Any] | None = None,
        *,
        num_workers: int | None = _KEEP,
        timeout_s: float | None = _KEEP,
        max_attempts: int | None = None,
        drops_to: str | None = _KEEP,
    ) -> typing.Self:
        """Return a changed copy. What is set here wins over the attributes, properties and methods of the class.

        `None` keeps what was set before. Only a number of workers, a time limit and an outlet may be `None` themselves.
        """
        changed = copy.copy(self)
        changed.__dict__.pop("_context", None)
        given = {
            "name": _KEEP if name is None else name,
            "resources": _KEEP if resources is None else resources,
            "batch_size": _KEEP if batch_size is None else batch_size,
            "_num_workers": num_workers,
            "timeout_s": timeout_s,
            "max_attempts": _KEEP if max_attempts is None else max_attempts,
            "runtime_env": _KEEP if runtime_env is None else runtime_env or None,
            "drops_to": drops_to,
        }
        for attribute, value in given.items():
            if value is not _KEEP:
                changed.__dict__[attribute] = value  # past the setters of properties and of frozen dataclasses
        check_settings(changed)
        return changed

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"


class CompositeStage(ProcessingStage[In, Out]):
    """A name for several stages in a row; never run itself. Composites may hold composites."""

    is_sink: ClassVar[bool] = False
    """True if the last of its stages is a writer."""
    _part_settings: tuple[Mapping[str, Mapping[str, Any]], ...] = ()
    """Settings of the stages inside, by name, in the order in which they were given."""

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        """The stages behind the name, in order."""
        raise TypeError(f"{type(self).__name__} must define decompose()")

    def with_(
        self, name: str | Mapping[str, Mapping[str, Any]] | None = None, *settings: Any, **named_settings: Any
    ) -> typing.Self:
        """Return a changed copy; `with_({"stage": {"batch_size": 4}})` changes settings of stages inside."""
        if name is None or isinstance(name, str):
            return super().with_(name, *settings, **named_settings)
        changed = super().with_(None, *settings, **named_settings)
        changed.__dict__["_part_settings"] = (*self._part_settings, check_part_settings(self.name, name))
        return changed

    def parts(self) -> list[ProcessingStage[Any, Any]]:
        """Return the stages behind the name with the settings that `with_` gave them."""
        found = self.decompose()
        for changes in self._part_settings:
            found = with_part_settings(self.name, found, changes)
        return found


class SourceStage(ProcessingStage[Task, Out]):
    """A reader: `list_units` names the pieces of the input, and `read_piece` reads one of them as records.

    A reader whose records take long to parse gives `RawChunk`s instead, which any worker makes records of with `parse`.
    One that cuts units while it reads, or that names its records itself, defines `read`.
    """

    is_source: ClassVar[bool] = True

    def list_units(self) -> Iterator[Unit]:
        """Return all units in input order, cheaply and lazily: work starts before the list ends. See `file_units`."""
        raise TypeError(f"{type(self).__name__} must define list_units()")

    def read_piece(self, piece: Piece, context: ReadContext) -> Iterator[Task]:
        """Yield the records of a piece as tasks of about `context.chunk_bytes`, or chunks that `parse` takes.

        Records without ids get the numbers that they have in the file, counted from `piece.row` on.
        """
        raise TypeError(f"{type(self).__name__} must define read_piece(piece, context) or read(unit, context)")

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield what `read_piece` gives, piece by piece; of a stream, the items of the units that are cut from it."""
        from thresher.core.records.record_task import RecordTask
        from thresher.core.source import SourceItem

        for piece in unit.pieces:
            row = piece.row
            for task in self.read_piece(piece, context):
                if isinstance(task, RecordTask) and task.ids is None:
                    task.name_records(piece.row_source, row)
                    row += task.num_items
                yield SourceItem(unit, task)

    def parse(self, task: Task) -> Out:
        """Return the records of a chunk; a task that already holds records is returned as it is."""
        from thresher.core.records.record_task import RecordTask

        if not isinstance(task, RecordTask):
            raise TypeError(f"{type(self).__name__} must define parse(task), because it reads {type(task).__name__}s")
        return task  # type: ignore[return-value]  # the type of its records, as it says itself

    def restore(self, lines: Sequence[bytes], ids: RecordIds) -> RecordTask:
        """Return the records that the quarantine file holds as `lines`, in the type that the reader gives."""
        from thresher.core.documents.batch import DocumentBatch
        from thresher.core.planning.task_types import task_types
        from thresher.core.records.record_task import RecordTask

        given: type[Task] | type[RecordTask] = task_types(self)[1]
        if not issubclass(given, RecordTask) or given is RecordTask:
            given = DocumentBatch
        return given.from_json_lines(lines, ids)

    def input_roots(self) -> list[str]:
        """Files and folders that are read, so that no output is put among them."""
        return []

    def known_columns(self) -> list[str] | None:
        """The columns of every record, where that is certain before reading; `None` where it is not."""
        return None

    lists_schema: ClassVar[bool] = False
    """True if the columns are known only when the whole input is listed, in the process that listed it."""

    def listed_schema(self) -> Any:
        """Return the columns and types of the input, as far as the reader can tell before reading."""

    def reading_only(self, columns: list[str]) -> SourceStage[Out]:
        """A reader of the same records that may leave out all other columns; by itself it leaves out none."""
        return self


class OrderedStage(ProcessingStage[In, Out]):
    """A stage that gets the tasks of one unit in order, on one worker, and may hold records back until the unit ends.

    It runs right before the writer, which works in the same way, together with all stages that stand between them.
    """

    row_wise = False
    _kept: Any = None
    """State for the current unit; `None` outside of a run."""

    def continue_unit(self, kept: Any) -> None:
        """Let `process` work with what `begin_unit` made for the unit at hand."""
        self._kept = kept

    def begin_unit(self) -> Any:
        """Something to keep records in, made when the first task of a unit comes."""
        raise TypeError(f"{type(self).__name__} must define begin_unit()")

    def take(self, kept: Any, task: In) -> Any:
        """Work on the next task: what goes on now, as `Gathered`. `kept` may change only where nothing can fail."""
        raise TypeError(f"{type(self).__name__} must define take(kept, task)")

    def end_unit(self, kept: Any) -> Any:
        """Return what was held back, as `Gathered`: nothing more comes of the unit."""
        raise TypeError(f"{type(self).__name__} must define end_unit(kept)")

    def place_fault(self, before: Sequence[ProcessingStage[Any, Any]]) -> str:
        """Why the stage cannot do its work behind these stages; empty if it can."""
        return ""

    def process(self, task: In) -> Any:
        """The next task of the unit at hand; without a run, a task that is a unit of its own."""
        if self._kept is not None:
            return self.take(self._kept, task)
        kept = self.begin_unit()
        return self.take(kept, task).batch.joined([self.end_unit(kept).batch])


class SinkStage(ProcessingStage[In, Out]):
    """A writer: turns the tasks of one unit, in order, into one or more local files; the ledger publishes them
    together."""

    is_sink: ClassVar[bool] = True
    path: str
    """The output folder or URL."""
    mode: str = "error"
    """Action for an output folder that holds something foreign: `error`, `overwrite` or `append`."""
    fields: list[str] | None = None
    """Columns that are written; `None`: all."""
    target_file_size: int | None = None
    """Join the files of consecutive units up to this size."""
    storage_options: dict[str, Any] | None = None

    def extension(self) -> str:
        """Return the end of the file names, such as `.jsonl.gz`; empty if `suffixes` has all of it."""
        raise TypeError(f"{type(self).__name__} must define extension()")

    def suffixes(self) -> tuple[str, ...]:
        """Return what the names of a unit's files add to its output name; one file adds nothing.

        `(".tar", ".parquet")` are two files. A suffix that ends in `/` is a folder, and the writer names the files
        in it.
        """
        return ("",)

    def open_writer(self, local_path: str) -> Any:
        """Return a `RecordWriter` for one unit. It writes to `local_path`, with a suffix where there are several."""
        raise TypeError(f"{type(self).__name__} must define open_writer()")

    def join_parts(self, part_paths: list[str], local_path: str, schema: str = "") -> Any:
        """Make one file of the parts of consecutive units; the bytes depend on the records and the schema alone."""
        raise TypeError(f"{type(self).__name__} must define join_parts()")

    @property
    def settles_schema(self) -> bool:
        """True if files of a run have one schema that is settled on the way: its writers are `SettledWriter`s."""
        return False

    def settled_schema(self, proposal: str, source: Any) -> str:
        """Return the schema of a run, from that of the first unit with output and the reader's `listed_schema()`."""
        return proposal

    def fitting(self, batch: Any) -> Any:
        """Return the batch without records that cannot be written; those are set aside."""
        return batch
