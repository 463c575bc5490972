# SPDX-License-Identifier: Apache-2.0
"""The duplicates that a run has found: sizes of clusters, the largest of them, and how their documents differ."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from thresher.core.documents.batch import DocumentBatch
from thresher.core.files.filesystem import exists, join, open_read
from thresher.core.unit import Unit
from thresher.errors import UsageError
from thresher.inspect.recompute import find_record, locate

CLUSTERS_FILE = "clusters.parquet"
_COMPARED_WORDS = 2000
_CONTEXT_WORDS = 6
_WORD = re.compile(r"\s*\S+")


@dataclass(frozen=True)
class Member:
    """A document in a cluster."""

    id: str
    """Its record id."""
    kept: bool
    """True for the document of the cluster that was kept."""
    similarity: float | None
    """Jaccard similarity with the first document of the cluster, where it is known."""


@dataclass(frozen=True)
class Duplicates:
    """The clusters of a run."""

    sizes: dict[int, int]
    """Number of clusters by their size."""
    by_files: dict[tuple[str, str], int]
    """Number of duplicates by the file that they are in, and the file of the document that was kept instead."""
    largest: dict[str, int]
    """The largest clusters, by the id of their first document, with their sizes."""
    members: dict[str, list[Member]]
    """Documents of these clusters, the first ones of each."""


def read_duplicates(run_dir: str, options: dict[str, Any], clusters: Sequence[str] = (), most: int = 10) -> Duplicates:
    """Return the clusters of a run: the `most` largest, or those whose ids are given."""
    path = join(run_dir, CLUSTERS_FILE)
    if not exists(path, options):
        raise UsageError(f"{run_dir} has no {CLUSTERS_FILE}: its run has found no duplicates, or did not look for any")
    sizes: Counter[int] = Counter()
    by_files: Counter[tuple[str, str]] = Counter()
    size_of: dict[str, int] = {}
    for rows in _rows(path, options):
        for row in rows:
            if row["kept"]:
                sizes[row["size"]] += 1
                size_of[row["cluster"]] = row["size"]
            else:
                by_files[row["id"].partition(":")[0], row["kept_id"].partition(":")[0]] += 1
        if not clusters and len(size_of) > 100 * most:
            size_of = _largest(size_of, most)
    if unknown := [cluster for cluster in clusters if cluster not in size_of]:
        raise UsageError(f"{unknown[0]!r} is not the id of a cluster of this run: of the first document of one")
    shown = {cluster: size_of[cluster] for cluster in clusters} or _largest(size_of, most)
    return Duplicates(dict(sorted(sizes.items())), dict(by_files), shown, _members(path, options, shown))


def _largest(sizes: dict[str, int], most: int) -> dict[str, int]:
    return dict(sorted(sizes.items(), key=lambda pair: (-pair[1], pair[0]))[:most])


def _rows(path: str, options: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_read(path, storage_options=options) as opened:
        for batch in pq.ParquetFile(pa.PythonFile(opened)).iter_batches():
            yield batch.to_pylist()


def _members(path: str, options: dict[str, Any], clusters: Iterable[str], most: int = 20) -> dict[str, list[Member]]:
    found: dict[str, list[Member]] = {cluster: [] for cluster in clusters}
    for rows in _rows(path, options):
        for row in rows:
            members = found.get(row["cluster"])
            if members is not None and (len(members) < most or row["kept"]):
                members.append(Member(row["id"], row["kept"], row["similarity"]))
    return {cluster: sorted(members, key=lambda one: not one.kept) for cluster, members in found.items()}


def text_of(record_id: str, units: Sequence[Unit], field: str) -> str:
    """Return the text of a document, read again from the input of the run."""
    from thresher.stages.io.jsonl.reader import JsonlReader
    from thresher.stages.io.parquet.reader import ParquetReader

    located = locate(record_id, units)
    path = located.unit.pieces[0].path
    reader = ParquetReader(path) if ParquetReader.accepted.accepts(path) else JsonlReader(path)
    record = find_record(reader, located)
    if record is None or not isinstance(record.batch, DocumentBatch):
        raise UsageError(f"{record_id} cannot be read again: {record.error if record else 'it is not there'}")
    return str(record.batch.values(field)[0])


def differences(kept: str, other: str) -> str:
    """Return how a text differs from the one that was kept: `[-only there-]` and `{+only here+}`, with some words of
    what both have around them."""
    words = [_WORD.findall(text)[:_COMPARED_WORDS] for text in (kept, other)]
    stripped = [[word.strip() for word in some] for some in words]
    parts = []
    matcher = difflib.SequenceMatcher(None, stripped[0], stripped[1], autojunk=False)
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        here, there = (" ".join(stripped[0][start:end]), " ".join(stripped[1][other_start:other_end]))
        if kind == "equal":
            parts.append(_shortened(stripped[0][start:end], not start, end == len(stripped[0])))
        else:
            parts.append(f"[-{here}-]" * bool(here) + f"{{+{there}+}}" * bool(there))
    if stripped[0] == stripped[1]:
        return "the words are the same" if kept != other else "the texts are the same"
    return " ".join(parts)


def _shortened(words: Sequence[str], is_first: bool, is_last: bool) -> str:
    """Return the first and last words of a passage that both texts have."""
    if len(words) <= 2 * _CONTEXT_WORDS:
        return " ".join(words)
    head = [] if is_first else words[:_CONTEXT_WORDS]
    tail = [] if is_last else words[-_CONTEXT_WORDS:]
    return " ".join([*head, "…", *tail])
