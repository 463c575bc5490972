# SPDX-License-Identifier: Apache-2.0
"""Base of workflows: a reader, the stages of the workflow, and a writer, run as one pipeline."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from thresher.core.pipeline import Pipeline
from thresher.errors import UsageError, nearest

if TYPE_CHECKING:
    from thresher.core.pipeline import RunResult
    from thresher.core.stage import SinkStage
    from thresher.stages.io.file_reader import FileReader
    from thresher.stages.io.file_writer import FileWriter

JSONL, PARQUET = "jsonl", "parquet"
_BLOCKSIZE = "64MB"


@dataclass(frozen=True)
class WorkflowResult:
    """The result of a workflow."""

    run: RunResult
    """The run itself."""
    find_clusters: Callable[[], dict[str, Any]] = dict
    """Returns facts about clusters of duplicates, where the workflow finds some."""

    @functools.cached_property
    def clusters(self) -> dict[str, Any]:
        """Return facts about clusters of duplicates, if there are some; `path` is the file that lists them."""
        return self.find_clusters()

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of documents read, written, dropped and so on."""
        return self.run.counts

    @property
    def metadata(self) -> dict[str, Any]:
        """Return figures under the names that scripts for NeMo Curator ask for."""
        found = self.clusters.get("duplicates")
        duplicates = {} if found is None else {"num_duplicates": found}
        return {"total_time": self.run.wall_s, **duplicates, "num_duplicates_removed": self.counts["dropped"]}

    def get_metadata(self, key: str) -> Any:
        """Return one of them; `None` if there is none of that name."""
        return self.metadata.get(key)

    @property
    def timings(self) -> dict[str, float]:
        """Return the duration of the run, and the time that workers spent in each stage, in seconds."""
        return {"wall_s": self.run.wall_s} | {stage["name"]: stage["busy_s"] for stage in self.run.stages}


@dataclass
class Workflow:
    """A pipeline that is complete but for its input and output."""

    input_path: str | Sequence[str]
    """A file, a folder, a glob, or a list of them."""
    output_path: str
    """The folder of the output."""
    _: KW_ONLY
    text_field: str = "text"
    """The column of the text."""
    input_filetype: str | None = None
    """`jsonl` or `parquet`; `None`: what the name of each file says; both may be there."""
    input_blocksize: int | str = _BLOCKSIZE
    """Approximate bytes of input that are processed and committed as one unit."""
    output_filetype: str | None = None
    """`jsonl` or `parquet`; `None`: that of the input, and JSON lines if it has both."""
    storage_options: dict[str, Any] | None = None
    """Options for opening URLs."""

    name: ClassVar[str] = "workflow"
    """Name of the pipeline."""

    def stages(self) -> Iterable[Any]:
        """Return the stages between reader and writer."""
        raise TypeError(f"{type(self).__name__} must define stages()")

    def pipeline(self) -> Pipeline:
        """Return the whole pipeline."""
        from thresher.stages.io.parquet.reader import ParquetReader

        reader = self._reader()
        usual = PARQUET if type(reader) is ParquetReader else JSONL
        return Pipeline(self.name, stages=[reader, *self.stages(), self._writer(usual)])

    def run(self, executor: Any = None, **options: Any) -> WorkflowResult:
        """Run the pipeline. `executor` and `options` are those of `Pipeline.run`."""
        return WorkflowResult(self.pipeline().run(executor, **options))

    def _reader(self) -> FileReader:
        """Return the reader for the files of the input, by their names unless a type is given."""
        from thresher.stages.io.document_reader import DocumentReader
        from thresher.stages.io.jsonl.reader import JsonlReader
        from thresher.stages.io.parquet.reader import ParquetReader

        readers: dict[str, type[FileReader]] = {JSONL: JsonlReader, PARQUET: ParquetReader}
        paths = self.input_path if isinstance(self.input_path, str | os.PathLike) else list(self.input_path)
        arguments: dict[str, Any] = {"blocksize": self.input_blocksize, "storage_options": self.storage_options}
        if self.input_filetype is not None:
            _check_type(self.input_filetype, f"{type(self).__name__}.input_filetype")
            return readers[self.input_filetype](paths, **arguments)
        reader = DocumentReader(paths, **arguments)
        found: set[str] = set()
        for info in reader.files():
            found.add(PARQUET if ParquetReader.accepted.accepts(info.relative) else JSONL)
            if len(found) > 1:
                return reader
        return readers[found.pop()](paths, **arguments)

    def _writer(self, usual: str) -> SinkStage[Any, Any]:
        """Return the writer. `usual`: type of the output if none is given."""
        from thresher.stages.io.jsonl.writer import JsonlWriter
        from thresher.stages.io.parquet.writer import ParquetWriter

        wanted = self.output_filetype or usual
        _check_type(wanted, f"{type(self).__name__}.output_filetype")
        writers: dict[str, type[FileWriter]] = {JSONL: JsonlWriter, PARQUET: ParquetWriter}
        return writers[wanted](self.output_path, storage_options=self.storage_options)


def _check_type(given: Any, what: str) -> None:
    if given not in (JSONL, PARQUET):
        raise UsageError(
            f"{what}: {given!r} is not a file type.{nearest(str(given), (JSONL, PARQUET))} Types: jsonl, parquet"
        )
