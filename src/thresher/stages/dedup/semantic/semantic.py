# SPDX-License-Identifier: Apache-2.0
"""Documents whose vectors are close, as embeddings of a model are if texts mean the same.

Six phases: documents and vectors are written unit by unit; centroids are fitted to a sample (`centroids`); vectors go
to their nearest centroid (`assignment`); within each cluster of them it is found which documents are kept (`pairs`);
the file of clusters is written (`naming`); documents are read again, without those that are not kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from thresher.core.arguments.options import field_name
from thresher.errors import UsageError, nearest
from thresher.stages.dedup.clustering.removal import ClusterReader, RemovalReader
from thresher.stages.dedup.keep import Keep
from thresher.stages.dedup.keyed_stage import KeyedStage
from thresher.stages.dedup.semantic.assignment import AssignedWriter, AssignReader
from thresher.stages.dedup.semantic.centroids import CentroidWriter, EmbeddedWriter, SampleReader, VectorsOnlyWriter
from thresher.stages.dedup.semantic.naming import NamedClusterWriter, PairsReader
from thresher.stages.dedup.semantic.pairs import ClusterRowsReader, PairsWriter

WhichWord = Literal["hard", "easy", "random", "first", "longest", "best", "source"]
_BY_VECTOR = ("hard", "easy", "random")
_WORDS = (*_BY_VECTOR, "first", "longest", "best", "source")
_NAME = "SemanticDeduplication"


class SemanticDeduplication(KeyedStage):
    """Keep one of documents whose vectors are close.

    Documents are looked at in the order that `which_to_keep` gives, and each that is not similar to one that was kept
    is kept.
    Vectors are compared within clusters of k-means, so similar ones on both sides of a border are not found.
    """

    def __init__(  # noqa: PLR0913  # the names that users know from other tools
        self,
        n_clusters: int = 100,
        eps: float = 0.01,
        which_to_keep: WhichWord = "hard",
        embedding_field: str = "embeddings",
        embedder: str | None = None,
        text_field: str = "text",
        embedding_dim: int | None = None,
        max_iter: int = 25,
        random_state: int = 42,
        keep_by: str | None = None,
        prefer: Sequence[str] = (),
        action: Literal["drop", "list"] = "drop",
    ) -> None:
        """`n_clusters`: clusters of k-means; fewer if there are fewer different vectors.
        `eps`: documents are similar if the cosine of their vectors is at least 1 - eps.
        `which_to_keep`: `hard` (farthest from the centroid), `easy` (nearest), `random`, or `first`, `longest`, `best`,
        `source` as in `ExactDeduplication`, with `keep_by` and `prefer`.
        `embedding_field`: the column with the vectors. `embedder`: compute them of the text instead: `wordllama`, or
        a model in the layout of model2vec.
        `embedding_dim`: documents with another number of dimensions are quarantined.
        `max_iter`, `random_state`: rounds of k-means at most, and its seed.
        `action`: `drop` documents that are not kept, or `list` all that have similar ones, in place of the documents.
        """
        if which_to_keep not in _WORDS:
            hint = nearest(str(which_to_keep), _WORDS)
            raise UsageError(f"{_NAME}.which_to_keep: {which_to_keep!r} is not one of {', '.join(_WORDS)}.{hint}")
        if action not in ("drop", "list"):
            raise UsageError(f"{_NAME}.action: {action!r} is neither 'drop' nor 'list'")
        if isinstance(eps, bool) or not isinstance(eps, int | float) or not 0 <= eps < 1:
            raise UsageError(f"{_NAME}.eps: {eps!r} is not a number from 0 to below 1")
        self.n_clusters = _whole("n_clusters", n_clusters, 1)
        self.eps = float(eps)
        self.which_to_keep = which_to_keep
        self.embedding_field = field_name(_NAME, "embedding_field", embedding_field)
        self.embedder = embedder
        if embedder is not None:
            from thresher.models.embedder import check_embedder

            check_embedder(_NAME, embedder)
        self.text_field = field_name(_NAME, "text_field", text_field)
        self.embedding_dim = None if embedding_dim is None else _whole("embedding_dim", embedding_dim, 1)
        self.max_iter = _whole("max_iter", max_iter, 1)
        self.random_state = _whole("random_state", random_state, 0)
        self.keep = None if which_to_keep in _BY_VECTOR else Keep(_NAME, which_to_keep, keep_by, prefer)
        if self.keep is None and (keep_by is not None or prefer):
            raise UsageError(f'{_NAME}.keep_by, prefer: they need which_to_keep="best" or which_to_keep="source"')
        self.action = action

    def columns(self) -> list[str]:
        """Return the columns that are looked at."""
        needs_text = self.embedder is not None or self.which_to_keep == "longest"
        own = [] if self.embedder is not None else [self.embedding_field]
        return [*own, *([self.text_field] if needs_text else []), *([] if self.keep is None else self.keep.columns())]

    def decompose(self) -> list[Any]:
        """Return the writers and readers of the six phases."""
        removes = self.action == "drop"
        return [
            (EmbeddedWriter(self) if removes else VectorsOnlyWriter(self)).with_(name=f"{self.name}-vectors"),
            SampleReader(self).with_(name=f"{self.name}-sample"),
            CentroidWriter(self).with_(name=f"{self.name}-centroids"),
            AssignReader(self).with_(name=f"{self.name}-assign"),
            AssignedWriter().with_(name=f"{self.name}-assigned"),
            ClusterRowsReader().with_(name=f"{self.name}-compare"),
            PairsWriter(self).with_(name=f"{self.name}-pairs"),
            PairsReader().with_(name=f"{self.name}-names"),
            NamedClusterWriter().with_(name=f"{self.name}-clusters"),
            (LastReader(self) if removes else ClusterReader()).with_(name=self.name),
        ]


class LastReader(RemovalReader):
    """Read the documents of a unit, and drop those that are not kept."""

    def __init__(self, stage: KeyedStage) -> None:
        super().__init__(stage)
        self.reaches_back = 5


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{_NAME}.{name}: {value!r} is not a whole number of {least} or more")
    return value
