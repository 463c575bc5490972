# SPDX-License-Identifier: Apache-2.0
"""Downloads that a script describes in four classes: where the files are, how to fetch, read and extract them.

Each URL is a unit of its own: it is committed and resumed alone, and one that cannot be fetched is quarantined.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import Any

from thresher.compat.nemo.partitions import FileGroup
from thresher.core.documents.batch import DocumentBatch
from thresher.core.resources import Resources
from thresher.core.source import ReadContext, SourceItem
from thresher.core.stage import CompositeStage, ProcessingStage, SourceStage
from thresher.core.task import Task
from thresher.core.unit import Piece, Unit, file_stem, unit_id

FILE_NAME = "file_name"
"""Column for the name of the file that a record came from."""
_RECORDS = 1000
"""Records of one batch."""


class URLGenerator:
    """Says where the files are."""

    @abstractmethod
    def generate_urls(self) -> list[str]:
        """Return the URLs."""


class DocumentDownloader:
    """Fetches files into a folder. A subclass names the files and fetches one."""

    def __init__(self, download_dir: str, verbose: bool = False) -> None:
        self._download_dir, self._verbose = download_dir, verbose

    @abstractmethod
    def _get_output_filename(self, url: str) -> str:
        """Return the name of the file in the folder."""

    @abstractmethod
    def _download_to_path(self, url: str, path: str) -> tuple[bool, str | None]:
        """Fetch a URL into a file; return whether that worked, else the error."""

    def num_workers_per_node(self) -> int | None:
        """Return the number of downloads at a time on a node; it is not asked for here."""
        return None

    def download(self, url: str) -> str:
        """Return the path of the file, which is fetched if it is not there; raise if that fails."""
        os.makedirs(self._download_dir, exist_ok=True)
        path = os.path.join(self._download_dir, self._get_output_filename(url))
        if os.path.exists(path) and os.path.getsize(path) > 0:
            return path
        unfinished = f"{path}.{os.getpid()}.tmp"
        worked, error = self._download_to_path(url, unfinished)
        if not worked:
            raise OSError(f"{url} cannot be fetched: {error}")
        os.replace(unfinished, path)
        return path


class DocumentIterator:
    """Reads the records of a file."""

    @abstractmethod
    def iterate(self, file_path: str) -> Iterator[dict[str, Any]]:
        """Yield the records."""

    @abstractmethod
    def output_columns(self) -> list[str]:
        """Return the columns of the records."""


class DocumentExtractor:
    """Makes a document of a record."""

    @abstractmethod
    def extract(self, record: dict[str, Any]) -> dict[str, Any] | None:
        """Return the document; `None` leaves the record out."""

    @abstractmethod
    def input_columns(self) -> list[str]:
        """Return the columns that are looked at."""

    @abstractmethod
    def output_columns(self) -> list[str]:
        """Return the columns of the document."""


class URLGenerationStage(SourceStage[FileGroup]):
    """List the URLs, each as a unit."""

    def __init__(self, url_generator: URLGenerator, limit: int | None = None) -> None:
        """`limit`: the first so many URLs."""
        self.url_generator, self.limit = url_generator, limit

    def list_units(self) -> Iterator[Unit]:
        """Yield a unit for each URL, in the order of the generator."""
        for number, url in enumerate(islice(self.url_generator.generate_urls(), self.limit)):
            yield Unit(unit_id(url, 0), (number, 0), (Piece(url, url, 0),), file_stem(url))

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the URL."""
        group = FileGroup(data=[unit.pieces[0].path])
        group.name_records(unit.pieces[0].source)
        yield SourceItem(unit, group)


class DocumentDownloadStage(ProcessingStage[FileGroup, FileGroup]):
    """Fetch files."""

    resources = Resources(cpus=0.5)

    def __init__(self, downloader: DocumentDownloader) -> None:
        self.downloader = downloader

    def process(self, task: FileGroup) -> FileGroup:
        """Return the paths of the files."""
        return FileGroup(task.dataset_name, [self.downloader.download(url) for url in task.data])


class DocumentIterateExtractStage(ProcessingStage[FileGroup, DocumentBatch]):
    """Read the records of files and make documents of them."""

    fans_out = True

    def __init__(
        self,
        iterator: DocumentIterator,
        extractor: DocumentExtractor | None = None,
        record_limit: int | None = None,
        add_filename_column: bool | str = True,
        max_calls_per_worker: int | None = None,
    ) -> None:
        """`record_limit`: of each file the first so many documents. `max_calls_per_worker`: the executor's
        `worker_max_tasks` does that here."""
        del max_calls_per_worker
        self.iterator, self.extractor, self.record_limit = iterator, extractor, record_limit
        named = add_filename_column
        self.filename_column = named if isinstance(named, str) else FILE_NAME if named else None

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the columns of the documents."""
        columns = (self.iterator if self.extractor is None else self.extractor).output_columns()
        return ["data"], [*columns, *([self.filename_column] if self.filename_column else [])]

    def process(self, task: FileGroup) -> Iterator[DocumentBatch]:
        """Yield the documents of all files, some at a time."""
        for path in task.data:
            found = islice(self._documents(path), self.record_limit)
            while records := list(islice(found, _RECORDS)):
                yield DocumentBatch(records)

    def _documents(self, path: str) -> Iterator[dict[str, Any]]:
        found: Any = self.iterator.iterate(path)  # theirs may give nothing at all
        more = {self.filename_column: os.path.basename(path)} if self.filename_column else {}
        for record in found or ():
            made = record if self.extractor is None else self.extractor.extract({**record, **more})
            if made is None:
                self.count("records without a document")
            else:
                yield {**made, **more}


class DocumentDownloadExtractStage(CompositeStage[Task, DocumentBatch]):
    """List, fetch, read and extract."""

    def __init__(  # noqa: PLR0913 - the arguments of theirs
        self,
        url_generator: URLGenerator,
        downloader: DocumentDownloader,
        iterator: DocumentIterator,
        extractor: DocumentExtractor | None = None,
        url_limit: int | None = None,
        record_limit: int | None = None,
        add_filename_column: bool | str = True,
        extractor_max_calls_per_worker: int | None = None,
    ) -> None:
        self.url_generator, self.downloader, self.iterator, self.extractor = (
            url_generator,
            downloader,
            iterator,
            extractor,
        )
        self.url_limit, self.record_limit, self.add_filename_column = url_limit, record_limit, add_filename_column
        self.extractor_max_calls_per_worker = extractor_max_calls_per_worker

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        """Return the three stages."""
        return [
            URLGenerationStage(self.url_generator, self.url_limit),
            DocumentDownloadStage(self.downloader),
            DocumentIterateExtractStage(self.iterator, self.extractor, self.record_limit, self.add_filename_column),
        ]
