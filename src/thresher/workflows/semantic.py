# SPDX-License-Identifier: Apache-2.0
"""Workflows that keep one of documents whose vectors are close."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from thresher.workflows.deduplication import cluster_facts
from thresher.workflows.workflow import PARQUET, Workflow, WorkflowResult

if TYPE_CHECKING:
    from thresher.core.stage import SinkStage
    from thresher.stages.dedup.semantic.semantic import WhichWord


@dataclass
class SemanticDeduplicationWorkflow(Workflow):
    """Keep one of documents whose vectors are close. A column of the input has the vectors."""

    _: KW_ONLY
    n_clusters: int = 100
    """Clusters of k-means, within which vectors are compared."""
    eps: float = 0.01
    """Documents are similar if the cosine of their vectors is at least 1 - eps."""
    which_to_keep: WhichWord = "hard"
    """`hard`: farthest from the centroid; `easy`: nearest; `random`; `first`, `longest`, `best` or `source`."""
    embedding_field: str = "embeddings"
    """The column of the vectors."""
    embedding_dim: int | None = None
    """Documents with another number of dimensions are quarantined."""
    max_iter: int = 25
    """Rounds of k-means at most."""
    random_state: int = 42
    """Seed of k-means, and of `which_to_keep="random"`."""
    keep_by: str | None = None
    """The column with the value for `best` or `source`."""
    prefer: Sequence[str] = ()
    """With `which_to_keep="source"`, the values of that column, best first."""
    perform_removal: bool = True
    """True: write the documents that are kept. False: write a list of all documents that have similar ones."""
    cache_path: str | None = None
    """Run folder, which holds the files between phases; `None`: in the output folder."""

    name: ClassVar[str] = "semantic-deduplication"

    def stages(self) -> Iterable[Any]:
        """Return the stage."""
        return [self._stage(None)]

    def _stage(self, embedder: str | None) -> Any:
        from thresher.stages.dedup.semantic.semantic import SemanticDeduplication

        return SemanticDeduplication(
            n_clusters=self.n_clusters,
            eps=self.eps,
            which_to_keep=self.which_to_keep,
            embedding_field=self.embedding_field,
            embedder=embedder,
            text_field=self.text_field,
            embedding_dim=self.embedding_dim,
            max_iter=self.max_iter,
            random_state=self.random_state,
            keep_by=self.keep_by,
            prefer=self.prefer,
            action="drop" if self.perform_removal else "list",
        )

    def run(self, executor: Any = None, **options: Any) -> WorkflowResult:
        """Run the pipeline. `executor` and `options` are those of `Pipeline.run`."""
        place = {} if self.cache_path is None else {"run_dir": self.cache_path}
        run = self.pipeline().run(executor, **{**place, **options})
        return WorkflowResult(run, functools.partial(cluster_facts, run, self.storage_options))

    def _writer(self, usual: str) -> SinkStage[Any, Any]:
        return super()._writer(usual if self.perform_removal else PARQUET)


@dataclass
class TextSemanticDeduplicationWorkflow(SemanticDeduplicationWorkflow):
    """Keep one of documents whose texts mean the same, by the vectors of an embedder."""

    _: KW_ONLY
    embedder: Any = "wordllama"
    """Name of an embedder, or a stage that adds the column `embedding_field`."""

    name: ClassVar[str] = "text-semantic-deduplication"

    def stages(self) -> Iterable[Any]:
        """Return the stage, after the one that adds vectors if it is given."""
        if isinstance(self.embedder, str):
            return [self._stage(self.embedder)]
        return [self.embedder, self._stage(None)]
