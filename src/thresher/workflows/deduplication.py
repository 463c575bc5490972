# SPDX-License-Identifier: Apache-2.0
"""Workflows that remove duplicates of whole documents, or list them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from thresher.core.files.filesystem import exists, join, open_read
from thresher.workflows.workflow import PARQUET, Workflow, WorkflowResult

if TYPE_CHECKING:
    from thresher.core.pipeline import RunResult
    from thresher.core.stage import SinkStage
    from thresher.stages.dedup.keep import KeepWord

CLUSTERS_FILE = "clusters.parquet"


@dataclass
class DocumentDeduplicationWorkflow(Workflow):
    """Keep one document of each cluster of duplicates."""

    _: KW_ONLY
    perform_removal: bool = True
    """True: write the documents without duplicates. False: write a list of all documents that have duplicates."""
    keep: KeepWord = "first"
    """The document of a cluster that stays: `first`, `longest`, `best` or `source`."""
    keep_by: str | None = None
    """The column with the value for `best` or `source`; `None` with `source`: `prefer` names folders of the input."""
    prefer: Sequence[str] = ()
    """With `keep="source"`, the values of that column, best first."""
    normalize: bool | str | Sequence[str] = False
    """Compare texts without differences of `unicode`, `case`, `punctuation` or `space`; `True`: of all of them."""
    index: str | Sequence[str] | None = None
    """Folders of indexes: documents that are in them already are dropped."""

    def run(self, executor: Any = None, **options: Any) -> WorkflowResult:
        """Run the pipeline. `executor` and `options` are those of `Pipeline.run`."""
        run = self.pipeline().run(executor, **options)
        return WorkflowResult(run, functools.partial(cluster_facts, run, self.storage_options))

    def _choices(self) -> dict[str, Any]:
        """Return the arguments that all stages for whole documents have."""
        action = "drop" if self.perform_removal else "list"
        common = {"text_field": self.text_field, "keep": self.keep, "keep_by": self.keep_by, "prefer": self.prefer}
        return {**common, "action": action, "normalize": self.normalize, "index": self.index}

    def _writer(self, usual: str) -> SinkStage[Any, Any]:
        return super()._writer(usual if self.perform_removal else PARQUET)


@dataclass
class ExactDeduplicationWorkflow(DocumentDeduplicationWorkflow):
    """Keep one of all documents with the same text."""

    name: ClassVar[str] = "exact-deduplication"

    def stages(self) -> Iterable[Any]:
        """Return the stage."""
        from thresher.stages.dedup.exact import ExactDeduplication

        return [ExactDeduplication(**self._choices())]


@dataclass
class FuzzyDeduplicationWorkflow(DocumentDeduplicationWorkflow):
    """Keep one document of each cluster of similar documents."""

    _: KW_ONLY
    cache_path: str | None = None
    """Run folder, which holds the files between phases; `None`: in the output folder."""
    num_bands: int | None = None
    """Number of bands, by default 20."""
    minhashes_per_band: int | None = None
    """Number of values in a band, by default 13."""
    char_ngrams: int | None = None
    """Characters of a shingle, by default 24."""
    word_ngrams: int | None = None
    """Words of a shingle, in place of characters."""
    seed: int = 42
    """Seed of the hashes."""
    threshold: float | None = None
    """Similarity for which bands are chosen, in place of `num_bands` and `minhashes_per_band`."""
    mode: Literal["nemo", "datatrove"] = "nemo"
    """Shingles and bands as in another tool."""
    verify: bool | float = False
    """True similarity that pairs must have; `True`: that of `threshold`."""

    name: ClassVar[str] = "fuzzy-deduplication"

    def stages(self) -> Iterable[Any]:
        """Return the stage."""
        from thresher.stages.dedup.fuzzy import FuzzyDeduplication

        own = ["num_bands", "minhashes_per_band", "char_ngrams", "word_ngrams", "seed", "threshold", "mode", "verify"]
        return [FuzzyDeduplication(**self._choices(), **{name: getattr(self, name) for name in own})]

    def run(self, executor: Any = None, **options: Any) -> WorkflowResult:
        """Run the pipeline. `executor` and `options` are those of `Pipeline.run`."""
        place = {} if self.cache_path is None else {"run_dir": self.cache_path}
        return super().run(executor, **{**place, **options})


@dataclass
class DeduplicationIndexWorkflow(Workflow):
    """Write an index of documents, which a later deduplication drops documents by."""

    _: KW_ONLY
    method: Literal["exact", "fuzzy"] = "fuzzy"
    """The deduplication that will use it."""
    normalize: bool | str | Sequence[str] = False
    """As for that deduplication; so are the others."""
    num_bands: int | None = None
    minhashes_per_band: int | None = None
    char_ngrams: int | None = None
    word_ngrams: int | None = None
    seed: int | None = None
    threshold: float | None = None
    mode: Literal["nemo", "datatrove"] | None = None

    name: ClassVar[str] = "deduplication-index"

    def stages(self) -> Iterable[Any]:
        """Return nothing: the writer does it all."""
        return []

    def _writer(self, usual: str) -> SinkStage[Any, Any]:
        from thresher.stages.dedup.index import IndexWriter

        names = ("method", "text_field", "normalize", "num_bands", "minhashes_per_band", "char_ngrams", "word_ngrams")
        given = {name: getattr(self, name) for name in (*names, "seed", "threshold", "mode")}
        return IndexWriter(self.output_path, **given, storage_options=self.storage_options)


@dataclass
class BloomDeduplicationWorkflow(Workflow):
    """Drop documents that a Bloom filter has seen before."""

    _: KW_ONLY
    false_positive_rate: float = 1e-6
    """The largest probability with which a document that has no duplicate is dropped."""

    name: ClassVar[str] = "bloom-deduplication"

    def stages(self) -> Iterable[Any]:
        """Return the stage."""
        from thresher.stages.dedup.bloom import BloomDeduplication

        yield BloomDeduplication(self.false_positive_rate, self.text_field)


@dataclass
class TextDuplicatesRemovalWorkflow(Workflow):
    """Remove the documents that a list names, such as one that a workflow with `perform_removal=False` wrote."""

    _: KW_ONLY
    ids_to_remove_path: str
    """A Parquet file, or a folder of them."""
    id_field: str | None = None
    """The column of the documents to compare; `None`: record ids, which are made of file and position."""
    duplicate_id_field: str = "id"
    """The column of the list."""

    name: ClassVar[str] = "duplicates-removal"

    def stages(self) -> Iterable[Any]:
        """Return the stage."""
        from thresher.stages.dedup.remove_listed import RemoveListed

        yield RemoveListed(self.ids_to_remove_path, self.id_field, self.duplicate_id_field, self.storage_options)


def cluster_facts(run: RunResult, storage_options: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the number of clusters, of documents in them and of duplicates, the size of the largest, and the path."""
    path = None if run.run_dir is None else join(run.run_dir, CLUSTERS_FILE)
    if path is None or not exists(path, storage_options):
        return {"clusters": 0, "documents": 0, "duplicates": 0, "largest": 0}
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    clusters = documents = largest = 0
    with open_read(path, storage_options=storage_options) as opened:
        for batch in pq.ParquetFile(pa.PythonFile(opened)).iter_batches(columns=["size", "kept"]):
            clusters += batch["kept"].true_count
            documents += batch.num_rows
            largest = max(largest, pc.max(batch["size"]).as_py())
    found = {"clusters": clusters, "documents": documents, "duplicates": documents - clusters, "largest": largest}
    return {**found, "path": path}
