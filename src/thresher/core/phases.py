# SPDX-License-Identifier: Apache-2.0
"""Phases of a run. A stage that needs all records before it gives the first one, such as a sort, ends a phase.

It is a `PhaseStage`: a writer whose files stay in the run folder, and a reader that lists units in these files once the
whole phase is committed. Within a phase everything is as in a run without such stages: units are committed, retried and
resumed one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from thresher.core.stage import CompositeStage, In, Out, SinkStage, SourceStage
from thresher.core.task import Task
from thresher.core.unit import Piece, Unit, unit_id

if TYPE_CHECKING:
    from thresher.core.files.filesystem import StorageOptions


class PhaseFile(NamedTuple):
    """A committed file of a phase."""

    path: str
    """Local path or URL."""
    nbytes: int
    """Size of the file."""


class PhaseFolder(NamedTuple):
    """The committed files of a phase, for the reader of the next one."""

    files: Sequence[PhaseFile]
    """The files, in the order of their units."""
    keep: Callable[[str, bytes], str]
    """Puts a file beside them, such as an index, and returns its path or URL."""
    storage_options: StorageOptions
    """Options for opening URLs."""
    phase: int
    """Index of the phase that reads them, counted from 0."""
    earlier: Sequence[PhaseFile] = ()
    """Files of the phase that `PhaseReader.reaches_back` names, in the order of their units."""
    publish: Callable[[str, str], None] = lambda path, name: None
    """Copies one of the files to the run folder under a name, where it stays."""

    def unit(self, number: int, pieces: Sequence[Piece], nbytes: int, stem: str) -> Unit:
        """Return the `number`-th unit of the phase that reads the files; `stem` begins the name of its output."""
        name = unit_id(phase_source(self.phase), number)
        return Unit(name, (number, 0), tuple(pieces), stem, nbytes, phase=self.phase)


def phase_source(phase: int) -> str:
    """Return the name that stands for a file in the ids of units of a later phase."""
    return f"phase {phase + 1}"


class PhaseWriter(SinkStage[In, Task]):
    """The writer at the end of a phase. Its files are read by the `PhaseReader` that follows it, then removed."""

    path = ""
    merges: ClassVar[bool] = False
    """True if records become part of a result, so that they count as merged; otherwise the next phase gives them."""
    intermediate: ClassVar[bool] = False
    """True if it is given something else than the records of the pipeline; these then come in a later phase."""
    buffer_bytes: int = 32 * 2**20
    """Bytes of records that the writer of one unit may hold; the planner sets it by the memory limit."""

    most_files: int = 0
    """Most files that the next phase reads well. If there are more, neighbours are joined first (`join_parts`),
    in rounds, as units of their own. 0: any number, and none are joined."""
    _prepared: tuple[Any, Any] | None = None
    """The batch that was prepared last, and what was prepared of it."""

    def extension(self) -> str:
        """Return the extension of the files."""
        return ".phase"

    def prepare(self, batch: Any) -> Any:
        """Return what is written of a batch. Records on which this raises are quarantined."""
        raise TypeError(f"{type(self).__name__} must define prepare(batch)")

    def process(self, task: Any) -> Any:
        """Prepare a batch and return it. Records that fail are quarantined as in any stage."""
        self._prepared = task, self.prepare(task)
        return task

    def take_prepared(self, batch: Any) -> Any:
        """Return what was prepared of a batch."""
        prepared, self._prepared = self._prepared, None
        return prepared[1] if prepared is not None and prepared[0] is batch else self.prepare(batch)


class PhaseReader(SourceStage[Out]):
    """The reader at the beginning of a later phase."""

    creates: ClassVar[bool] = False
    """True if it gives new records; otherwise those that its `PhaseWriter` was given."""
    intermediate: ClassVar[bool] = False
    """True if it gives something else than the records of the pipeline, to an `intermediate` writer."""
    keeps_all: ClassVar[bool] = False
    """True if it gives each record that it reads, unchanged."""
    reaches_back: int = 1
    """It reads the files of the phase before, and if this is above 1 also those of the phase so many before."""
    buffer_bytes: int = 32 * 2**20
    """Bytes of records that may be held at a time; the planner sets it by the memory limit. What is read must not
    depend on it."""
    storage_options: dict[str, Any] | None = None
    """Options for opening the files if they are behind a URL; the planner takes them from the writer of the run."""

    def recorded_drop(self, run_dir: str, record_id: str, storage_options: StorageOptions) -> tuple[str, Any] | None:
        """Return the rule and the score with which a finished run dropped a record here, if its run folder says so.

        `thresher why` asks, since the records of a whole corpus cannot be looked at again for one of them.
        """
        return None

    def list_phase(self, done: PhaseFolder) -> list[Unit]:
        """Return the units in the files of the phase before. The result depends on these files alone."""
        raise TypeError(f"{type(self).__name__} must define list_phase(done)")


class PhaseStage(CompositeStage[In, Out]):
    """A stage that needs all records of the stages before it. See `ReduceStage` and `ShuffleStage`."""

    def decompose(self) -> list[Any]:
        """Return the writer that ends a phase and the reader that begins the next one."""
        writer, reader = self.phase_ends()
        return [writer.with_(name=self.name), reader.with_(name=f"{self.name}-read")]

    def phase_ends(self) -> tuple[PhaseWriter[Any], PhaseReader[Any]]:
        """Return the writer and the reader."""
        raise TypeError(f"{type(self).__name__} must define phase_ends()")


def phase_starts(stages: Sequence[Any]) -> list[int]:
    """Return the index of the first stage of each phase."""
    return [0, *(number for number, stage in enumerate(stages) if number and isinstance(stage, PhaseReader))]


def last_readers(stages: Sequence[Any]) -> tuple[int, ...]:
    """Return, for each phase that hands files on, the last phase that reads them: they are removed when it is done."""
    readers = [stages[start] for start in phase_starts(stages)]
    last = list(range(1, len(readers)))
    for phase, reader in enumerate(readers):
        if isinstance(reader, PhaseReader) and reader.reaches_back > 1:
            last[phase - reader.reaches_back] = max(last[phase - reader.reaches_back], phase)
    return tuple(last)


def copying_phases(stages: Sequence[Any]) -> tuple[int, ...]:
    """Return the phases that write all records as they read them: there is nothing between the reader and writer."""
    starts = enumerate(phase_starts(stages))
    pairs = ((phase, stages[start : start + 2]) for phase, start in starts)
    return tuple(
        phase
        for phase, (reader, *after) in pairs
        if isinstance(reader, PhaseReader) and reader.keeps_all and after and isinstance(after[0], SinkStage)
    )
