# SPDX-License-Identifier: Apache-2.0
"""The scores of a whole run in memory, or of a part of its units: how they are distributed, and how many documents
other thresholds would keep."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.ledger.scores import FOLDER
from thresher.ledger.stores.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

MOST_CELLS = 12_000_000
"""Scores that are held; of more, whole units are left out, evenly over the input."""
BINS = 40
"""Classes of a histogram."""
AMOUNTS = {"WordCountFilter": "words", "TokenCountFilter": "tokens"}
"""Rules whose score says how much of something a document holds."""


class RuleScores(NamedTuple):
    """The scores of one rule."""

    column: str
    """`Stage/Rule`."""
    values: npt.NDArray[np.float64]
    """A score for each document."""
    known: npt.NDArray[np.bool_]
    """False where there is none."""
    bounds: tuple[tuple[str, float, str], ...] | None
    """Thresholds: `low` or `high`, value, parameter; `None` if something else decides."""


class ScoreHistogram(NamedTuple):
    """Distribution of the scores of one rule."""

    column: str
    """`Stage/Rule`."""
    low: float
    """Lower bound of the first class."""
    high: float
    """Upper bound of the last class."""
    counts: tuple[int, ...]
    """Documents in each class; the first and the last one hold all that are beyond."""
    unknown: int
    """Documents without a score."""
    bounds: tuple[tuple[str, float, str], ...]
    """Thresholds: `low` or `high`, value, parameter."""


class Outcome(NamedTuple):
    """Documents that given thresholds would keep."""

    documents: int
    """Documents with scores."""
    kept: int
    """Those that all rules keep."""
    dropped: dict[str, int]
    """Those that each rule would drop, as the first one."""
    unknown: int
    """Those that a rule has no score for, and no rule before it drops."""
    amounts: dict[str, tuple[int, int]]
    """Words or tokens, where a rule counts them: of all documents, and of those that are kept."""


@dataclass(frozen=True)
class ScoreTable:
    """Scores by rule, in recipe order."""

    rules: tuple[RuleScores, ...]
    """Rules whose scores are numbers."""
    documents: int = 0
    """Documents of all units."""
    units: int = 0
    """Units with scores."""
    units_read: int = 0
    """Those that are in memory."""
    left_out: tuple[str, ...] = field(default=())
    """Rules whose scores are not numbers."""

    @property
    def held(self) -> int:
        """Return the documents that are in memory."""
        return len(self.rules[0].values) if self.rules else 0

    @property
    def factor(self) -> float:
        """Return how many documents one in memory stands for."""
        return self.documents / self.held if self.held else 1.0

    def describe(self) -> str:
        """Say what the scores are of."""
        if not self.held:
            return "The run kept its scores, and none of them is a number."
        found = f"Estimated from {self.units_read:,} of {self.units:,} units, {self.held:,} documents."
        if self.units_read == self.units:
            found = f"Scores of all {self.documents:,} documents."
        others = [*self.left_out, *(rule.column for rule in self.rules if rule.bounds is None)]
        return f"{found} Not among what decides here: {', '.join(others)}." if others else found

    def histograms(self) -> list[ScoreHistogram]:
        """Return the histogram of each rule."""
        return [_histogram(rule) for rule in self.rules]

    def outcome(self, settings: Mapping[str, float] | None = None) -> Outcome:
        """Return what would be kept if the thresholds `Stage.parameter` had other values."""
        alive = np.ones(self.held, dtype=np.bool_)
        unsure = np.zeros(self.held, dtype=np.bool_)
        dropped = {}
        for rule in self.rules:
            if rule.bounds is None:
                continue
            fails = ~within(rule, settings or {}) & rule.known & alive
            dropped[rule.column] = self._whole(fails.sum())
            alive &= ~fails
            unsure |= alive & ~rule.known if rule.bounds else False
        unsure &= alive
        kept = alive & ~unsure
        amounts = {}
        for rule in self.rules:
            what = AMOUNTS.get(rule.column.rpartition("/")[2])
            if what is not None and what not in amounts:
                values = np.where(rule.known, rule.values, 0)
                amounts[what] = (self._whole(values.sum()), self._whole(values[kept].sum()))
        return Outcome(self.documents, self._whole(kept.sum()), dropped, self._whole(unsure.sum()), amounts)

    def _whole(self, number: Any) -> int:
        return round(float(number) * self.factor)


def within(rule: RuleScores, settings: Mapping[str, float]) -> npt.NDArray[np.bool_]:
    """Return which scores are within the bounds of a rule, or within others that `settings` name."""
    stage = rule.column.rpartition("/")[0]
    kept = np.ones(len(rule.values), dtype=np.bool_)
    for side, value, parameter in rule.bounds or ():
        bound = settings.get(f"{stage}.{parameter}", value) if parameter else value
        kept &= rule.values >= bound if side == "low" else rule.values <= bound
    return kept


def load_scores(store: Store, plan: Mapping[str, Any], most_cells: int = MOST_CELLS) -> ScoreTable:
    """Read the scores in a run folder; `plan` is the content of plan.json. Files that are no scores are left out."""
    bounds = {rule["column"]: rule["bounds"] for rule in plan.get("rules", ())}
    files = [name for name in store.names(FOLDER) if name.endswith(".parquet")]
    sizes = _rows_by_file(store, files, max(1, len(bounds)), most_cells)
    parts: dict[str, list[tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]]] = {column: [] for column in bounds}
    left_out: set[str] = set()
    read = 0
    for name in _evenly(files, sizes, most_cells // max(1, len(bounds))):
        columns = _numbers(store.read(f"{FOLDER}/{name}"), list(bounds))
        if columns is None:
            continue
        read += 1
        for column, found in columns.items():
            if found is None:
                left_out.add(column)
            else:
                parts[column].append(found)
    rules = tuple(
        RuleScores(
            column,
            np.concatenate([values for values, _ in parts[column]]),
            np.concatenate([known for _, known in parts[column]]),
            None if bounds[column] is None else tuple((side, value, name) for side, value, name in bounds[column]),
        )
        for column in bounds
        if column not in left_out and len(parts[column]) == read and read
    )
    return ScoreTable(rules, sum(sizes.values()), len(files), read, tuple(sorted(left_out)))


def _rows_by_file(store: Store, files: Sequence[str], columns: int, most_cells: int) -> dict[str, int]:
    """Return the documents in each file; of many files, that of the first ones stands for the others."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: dict[str, int] = {}
    seen = 0
    for place, name in enumerate(files):
        if seen * columns > most_cells:
            mean = round(seen / len(found))
            return found | dict.fromkeys(files[place:], mean)
        try:
            found[name] = pq.read_metadata(io.BytesIO(store.read(f"{FOLDER}/{name}") or b"")).num_rows
        except (pa.ArrowException, OSError):
            continue
        seen += found[name]
    return found


def _evenly(files: Sequence[str], sizes: Mapping[str, int], most: int) -> list[str]:
    """Return files with at most `most` documents together, evenly over all of them; at least one."""
    files = [name for name in files if name in sizes]
    total = sum(sizes.values())
    step = max(1, -(-total // max(1, most)))
    return list(files[::step])


def read_score_file(content: bytes) -> pa.Table:
    """Return the table in a score file.

    One thread reads it. Arrow's threads hold on to Python objects that they read from for a moment longer, and a
    process that ends in that moment is aborted.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.ParquetFile(pa.BufferReader(content), pre_buffer=False).read(use_threads=False)


def _numbers(
    content: bytes | None, columns: Sequence[str]
) -> dict[str, tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]] | None] | None:
    """Return the numbers of a score file by column, `None` for a column of something else; `None` for another file."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        table = read_score_file(content or b"")
    except (pa.ArrowException, OSError):
        return None
    found: dict[str, tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]] | None] = {}
    for column in columns:
        if column not in table.column_names:
            known = np.zeros(table.num_rows, dtype=np.bool_)
            found[column] = (np.zeros(table.num_rows), known)
            continue
        scores = table.column(column)
        kind = scores.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            found[column] = None
            continue
        known = ~scores.is_null().to_numpy()
        values = pc.fill_null(scores.cast(pa.float64(), safe=False), 0.0).to_numpy()
        found[column] = (values, known)
    return found


def _histogram(rule: RuleScores) -> ScoreHistogram:
    values = rule.values[rule.known & np.isfinite(rule.values)]
    bounds = rule.bounds or ()
    unknown = int((~rule.known).sum())
    if not len(values):
        return ScoreHistogram(rule.column, 0.0, 1.0, (0,) * BINS, unknown, bounds)
    low, high = (float(end) for end in np.quantile(values, (0.005, 0.995)))
    room = (high - low) or abs(high) or 1.0
    near = [value for _, value, _ in bounds if low - room <= value <= high + room]
    low, high = min([low, *near]), max([high, *near])
    if low == high:
        low, high = low - room / 2, high + room / 2
    counts, _ = np.histogram(np.clip(values, low, high), BINS, (low, high))
    return ScoreHistogram(rule.column, low, high, tuple(counts.tolist()), unknown, bounds)
