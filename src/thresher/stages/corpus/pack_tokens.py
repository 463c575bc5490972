# SPDX-License-Identifier: Apache-2.0
"""Sequences of token ids: what `PackSequences` does with a column of tokens."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from thresher.core.documents.batch import DocumentBatch
from thresher.core.records.record_task import Gathered
from thresher.models.token_lists import TokenLists

if TYPE_CHECKING:
    import pyarrow as pa

    from thresher.core.documents.records import RecordIds
    from thresher.stages.corpus.packing import Pieces

STRATEGIES = ("concat", "best-fit")
INFO_COLUMNS = ("attention_mask", "position_ids", "segment_ids")
"""Columns about the tokens of a sequence: 1 for a token and 0 for padding, the position in its document, and the number
of its document in the sequence, from 1 (0 for padding)."""
_LARGEST = 2**31
_UINT16 = 2**16


@dataclass(frozen=True)
class TokenPacking:
    """How sequences of tokens are made."""

    max_length: int
    """Tokens of a sequence."""
    tokens_field: str
    """The column of ids."""
    count_field: str
    """The column that gets the number of documents in a sequence."""
    strategy: str
    """`concat` or `best-fit`."""
    pad_id: int | None
    """Id that fills sequences up to `max_length`; `None` leaves them shorter."""
    drop_last: bool
    """True to drop sequences that are not full."""
    window: int
    """Number of full sequences whose tokens `best-fit` looks at together."""


@dataclass
class OpenTokens:
    """Documents of a unit of which not all tokens are in a sequence yet."""

    lists: list[TokenLists] = field(default_factory=list)
    """Their tokens."""
    ids: list[RecordIds] = field(default_factory=list)
    """Their ids."""
    held: int = 0
    """Their number of tokens, without `skip`."""
    skip: int = 0
    """Tokens of the first document that are in a sequence already."""
    cuts: int = 0
    """Pieces of the first document that are in a sequence already."""

    def become(self, other: OpenTokens) -> None:
        """Take over another state."""
        self.lists, self.ids, self.held, self.skip, self.cuts = (
            other.lists,
            other.ids,
            other.held,
            other.skip,
            other.cuts,
        )


@dataclass(frozen=True)
class _Pool:
    """Documents to make sequences of."""

    lists: TokenLists
    """Their tokens."""
    ids: RecordIds
    """Their ids."""
    skip: int
    """As in `OpenTokens`."""
    cuts: int
    """As in `OpenTokens`."""


def take_tokens(stage: Any, packing: TokenPacking, kept: OpenTokens, batch: DocumentBatch) -> Gathered:
    """Return the sequences that are full; `kept` holds the documents that are left."""
    from thresher.stages.text.columns.token_ids import token_lists, without_empty

    batch.name_records()
    batch, lists = without_empty(*token_lists(batch, packing.tokens_field, _LARGEST))
    assert batch.ids is not None, "they have names"
    state = replace(kept, lists=list(kept.lists), ids=list(kept.ids))
    made = []
    for start, end in _windows(packing, state.held, lists):
        state = _with_documents(state, lists, batch.ids, start, end)
        if state.held >= _enough(packing):
            sequences, state = _emitted(stage, packing, state, is_last=False)
            made.append(sequences)
    gathered = _gathered(made, batch)
    kept.become(state)
    return gathered


def end_tokens(stage: Any, packing: TokenPacking, kept: OpenTokens) -> Gathered:
    """Return the sequences of the documents that are left."""
    made = []
    if kept.held:
        sequences, state = _emitted(stage, packing, kept, is_last=True)
        made.append(sequences)
        kept.become(state)
    return _gathered(made, DocumentBatch([]))


def _enough(packing: TokenPacking) -> int:
    """Return how many tokens make it worth while to look for full sequences."""
    return packing.max_length * (packing.window if packing.strategy == "best-fit" else 1)


def _windows(packing: TokenPacking, held: int, lists: TokenLists) -> list[tuple[int, int]]:
    """Return ranges of documents. With `best-fit` each but the last completes a window, wherever batches are cut."""
    if packing.strategy == "concat":
        return [(0, len(lists))]
    borders, enough = [0], _enough(packing)
    for row, length in enumerate(lists.lengths.tolist(), start=1):
        held += length
        if held >= enough:
            borders.append(row)
            held = 0
    if borders[-1] < len(lists):
        borders.append(len(lists))
    return list(itertools.pairwise(borders))


def _with_documents(state: OpenTokens, lists: TokenLists, ids: RecordIds, start: int, end: int) -> OpenTokens:
    """Return the state with more documents, in memory of their own: the buffer of their batch may be reused."""
    import numpy as np

    part = lists.copied(start, end)
    added = ids.take(np.arange(start, end, dtype=np.int64))
    return replace(state, lists=[*state.lists, part], ids=[*state.ids, added], held=state.held + len(part.ids))


def _emitted(
    stage: Any, packing: TokenPacking, state: OpenTokens, *, is_last: bool
) -> tuple[tuple[DocumentBatch, int, int], OpenTokens]:
    """Return sequences as a batch, with the number of documents that are merged and of those that are created, and what
    is left."""
    from thresher.core.documents.records import RecordIds
    from thresher.stages.corpus.packing import best_fit, concatenated

    pool = _Pool(TokenLists.joined(state.lists), RecordIds.concat(state.ids), state.skip, state.cuts)
    lengths = pool.lists.lengths
    if packing.strategy == "best-fit":
        pieces = best_fit(lengths, packing.max_length)
        left = OpenTokens()
    else:
        pieces = concatenated(lengths, state.skip, packing.max_length, whole=is_last)
        left = OpenTokens() if is_last else _rest(pool, pieces)
    return _sequences(stage, packing, pool, pieces), left


def _rest(pool: _Pool, pieces: Pieces) -> OpenTokens:
    """Return the documents that the pieces do not use up."""
    import numpy as np

    last = int(pieces.document[-1])
    end = int(pieces.start[-1] + pieces.length[-1])
    lists, count = pool.lists, len(pool.lists)
    first = last + (end == int(lists.lengths[last]))
    if first == count:
        return OpenTokens()
    is_cut = first == last
    cuts = int((pieces.document == last).sum()) + (pool.cuts if last == 0 else 0) if is_cut else 0
    part = lists.copied(first, count)
    ids = pool.ids.take(np.arange(first, count, dtype=np.int64))
    skip = end if is_cut else 0
    return OpenTokens([part], [ids], len(part.ids) - skip, skip, cuts)


def _sequences(stage: Any, packing: TokenPacking, pool: _Pool, pieces: Pieces) -> tuple[DocumentBatch, int, int]:
    """Return the sequences that the pieces make."""
    import numpy as np
    import pyarrow as pa

    firsts = np.flatnonzero(np.diff(pieces.sequence, prepend=-1))
    counts = np.diff(np.append(firsts, len(pieces)))
    lengths = np.add.reduceat(pieces.length, firsts)
    begins = pieces.start == 0
    ids, created = _named(pool, pieces, firsts, begins)
    columns: dict[str, pa.Array] = _token_columns(packing, pool, pieces, lengths)
    columns[packing.count_field] = pa.array(counts)
    batch = DocumentBatch.from_table(pa.table(columns), ids)
    if packing.drop_last:
        short = np.flatnonzero(lengths < packing.max_length)
        stage.count("tokens in dropped sequences", int(lengths[short].sum()))
        batch = batch.drop(short, "not-full")
    stage.count("tokens", int(lengths.sum()))
    percents, sequences = np.unique(lengths * 10 // packing.max_length * 10, return_counts=True)
    for percent, number in zip(percents.tolist(), sequences.tolist(), strict=True):
        stage.chart("sequences by percent full, from", percent, number)
    return batch, int(begins.sum()) - (len(firsts) - created), created


def _named(pool: _Pool, pieces: Pieces, firsts: Any, begins: Any) -> tuple[RecordIds, int]:
    """Return the id of each sequence, and how many of them are new: a sequence has the id of the first document that
    begins in it; one in which none begins is a child of the document that its first piece is of."""
    import numpy as np

    from thresher.core.documents.records import RecordIds

    count = len(pieces)
    ranks = np.arange(count)
    next_begin = np.minimum.accumulate(np.where(begins, ranks, count)[::-1])[::-1][firsts]
    is_new = next_begin >= np.append(firsts[1:], count)
    owners = pieces.document[np.where(is_new, firsts, np.minimum(next_begin, count - 1))]
    ids = pool.ids.take(owners)
    if not is_new.any():
        return ids, 0
    # The number of earlier pieces of the document, in the order of the document.
    order = np.lexsort((pieces.start, pieces.document))
    document = pieces.document[order]
    number = np.empty(count, dtype=np.int64)
    number[order] = ranks - np.searchsorted(document, document)
    number += np.where(pieces.document == 0, pool.cuts, 0)
    before = ids.suffixes or ("",) * len(ids)
    children = zip(before, is_new.tolist(), number[firsts].tolist(), strict=True)
    suffixes = tuple(f"{suffix}/{k - 1}" if new else suffix for suffix, new, k in children)
    which = ids.which if len(ids.sources) > 1 else None
    return RecordIds(ids.sources, ids.positions, which, suffixes), int(is_new.sum())


def _token_columns(packing: TokenPacking, pool: _Pool, pieces: Pieces, lengths: Any) -> dict[str, pa.Array]:
    """Return the tokens of each sequence, and the columns about them."""
    import numpy as np
    import pyarrow as pa

    padded = lengths if packing.pad_id is None else np.full(len(lengths), packing.max_length, dtype=np.int64)
    offsets = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(padded)))
    within = np.cumsum(pieces.length) - pieces.length
    within -= np.repeat(within[np.flatnonzero(np.diff(pieces.sequence, prepend=-1))], np.bincount(pieces.sequence))
    positions = np.arange(int(pieces.length.sum())) - np.repeat(np.cumsum(pieces.length) - pieces.length, pieces.length)
    source = np.repeat(pool.lists.offsets[pieces.document] + pieces.start, pieces.length) + positions
    target = np.repeat(offsets[pieces.sequence] + within, pieces.length) + positions
    number = np.arange(len(pieces)) - np.searchsorted(pieces.sequence, pieces.sequence) + 1
    fits = pool.lists.ids.dtype == np.uint16 and (packing.pad_id or 0) < _UINT16
    small = np.uint16 if packing.max_length < _UINT16 else np.int32
    values = {
        packing.tokens_field: (np.uint16 if fits else np.int32, pool.lists.ids[source], packing.pad_id or 0),
        "attention_mask": (np.uint8, np.ones(len(source), dtype=np.uint8), 0),
        "position_ids": (small, positions, 0),
        "segment_ids": (small, np.repeat(number, pieces.length), 0),
    }
    columns: dict[str, pa.Array] = {}
    for name, (kind, given, filler) in values.items():
        whole = np.full(int(offsets[-1]), filler, dtype=kind)
        whole[target] = given
        columns[name] = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(whole))
    return columns


def _gathered(made: list[tuple[DocumentBatch, int, int]], given: DocumentBatch) -> Gathered:
    """Return all sequences, with what was left out of the batch that was given."""
    batches = [batch for batch, _, _ in made]
    batch = batches[0].joined(batches[1:]) if batches else DocumentBatch([])
    batch._dropped = [*given._dropped, *batch._dropped]
    batch._failed = [*given._failed, *batch._failed]
    return Gathered(batch, sum(merged for _, merged, _ in made), sum(created for _, _, created in made))
