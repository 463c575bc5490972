# SPDX-License-Identifier: Apache-2.0
"""Stage that computes statistics of documents, and histograms over all documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from thresher.core.arguments.options import field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.core.stage import ProcessingStage
from thresher.errors import UsageError, nearest
from thresher.stages.text.columns.not_text import set_aside_without_text

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Values: TypeAlias = npt.NDArray[Any]


class Bins(NamedTuple):
    """The bins of a histogram."""

    numbers: Callable[[Values], Values]
    """Returns the bin number of each value."""
    name: Callable[[int], str]
    """Returns the name of a bin; names sort like values."""


def _powers(values: Values) -> Values:
    import numpy as np

    return np.frexp(np.floor(values))[1]


def _power_name(number: int) -> str:
    """Name the bins 0, 1, 2 to 3, 4 to 7, and so on."""
    if not number:
        return "0"
    low, high = 1 << (number - 1), (1 << number) - 1
    return f"2^{number - 1:02}: {low:,}" + (f" to {high:,}" if high > low else "")


POWERS = Bins(_powers, _power_name)
TENTHS = Bins(lambda values: (values * 10).clip(0, 9), lambda number: f"{number / 10:.1f} to {(number + 1) / 10:.1f}")
"""The last bin includes 1.0."""
UNITS = Bins(
    lambda values: values.clip(0, 30),
    lambda number: "30 or more" if number == 30 else f"{number:02} to {number + 1:02}",
)


@dataclass(frozen=True)
class Statistic:
    """A statistic of a document: a count, or a count divided by another."""

    count: str
    """The name of the count in the kernels."""
    per: str | None = None
    """The count to divide by; the result is 0.0 if it is 0."""
    bins: Bins = POWERS
    """The bins of its histogram."""

    @property
    def counts(self) -> list[str]:
        """Return all counts that it needs."""
        return [self.count] if self.per is None else [self.count, self.per]


STATISTICS: dict[str, Statistic] = {
    "bytes": Statistic("bytes"),
    "characters": Statistic("code_points"),
    "words": Statistic("words"),
    "lines": Statistic("lines"),
    "paragraphs": Statistic("paragraphs"),
    "longest_word": Statistic("longest_word"),
    "mean_word_length": Statistic("word_characters", "words", UNITS),
    "mean_line_length": Statistic("line_characters", "lines"),
    "alphabetic_share": Statistic("alphabetic", "code_points", TENTHS),
    "digit_share": Statistic("digits", "code_points", TENTHS),
    "white_space_share": Statistic("white_space", "code_points", TENTHS),
    "url_share": Statistic("url_characters", "code_points", TENTHS),
    "distinct_line_share": Statistic("distinct_lines", "lines", TENTHS),
}
"""The statistics by name. White space separates words, blank lines do not count; lengths are code points, digits are
ASCII, shares refer to all code points (or to lines, where the name says so)."""
USUAL = ["characters", "words", "lines", "mean_word_length", "alphabetic_share", "digit_share", "white_space_share"]


class DocumentStatistics(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Write statistics of each document's text into columns; the report has a histogram of each."""

    looks_at_inputs_only = True

    def __init__(
        self,
        statistics: list[str] | None = None,
        text_field: str = "text",
        prefix: str = "",
        columns: bool = True,
        histograms: bool = True,
    ) -> None:
        """`statistics` are names of `STATISTICS`; each is a column, with `prefix` before its name.

        `columns=False` writes no columns, `histograms=False` no histograms.
        """
        wanted = list(USUAL if statistics is None else statistics)
        for name in wanted:
            if name not in STATISTICS:
                raise UsageError(
                    f"DocumentStatistics.statistics: there is no {name!r}.{nearest(name, STATISTICS)} "
                    f"There is: {', '.join(STATISTICS)}"
                )
        self.statistics = wanted
        self.text_field = field_name("DocumentStatistics", "text_field", text_field)
        self.prefix = prefix
        self.columns = columns
        self.histograms = histograms

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column that holds the text."""
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the columns that are written."""
        return ["data"], [self.prefix + name for name in self.statistics] if self.columns else []

    def preloads(self) -> list[str]:
        """Return the kernels that count."""
        from thresher.kernels.counts import modules_of

        return [*modules_of(_counts_for(self.statistics)), "thresher.kernels.json.text"]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Compute the statistics, and write the columns."""
        import numpy as np

        from thresher.stages.text.columns.text_column import text_column

        has_text = text_column(task, self.text_field).has_text(np.arange(task.num_items))
        if not has_text.all():
            task = set_aside_without_text(task, np.flatnonzero(~has_text).tolist(), self.text_field)
        for name, values in _values_of(task, self.text_field, self.statistics).items():
            if self.histograms:
                self._note(name, values)
            if self.columns:
                task = task.replace(self.prefix + name, values.tolist())
        return task

    def _note(self, name: str, values: Values) -> None:
        import numpy as np

        bins = STATISTICS[name].bins
        for number, count in enumerate(np.bincount(bins.numbers(values).astype(np.int64)).tolist()):
            if count:
                self.count(f"{name} {bins.name(number)}", count)


def _values_of(batch: DocumentBatch, field: str, names: Sequence[str]) -> dict[str, Values]:
    """Return one int64 or float64 per document for each name."""
    from thresher.stages.text.columns.text_column import text_column
    from thresher.stages.text.judging.rule import shares

    column = text_column(batch, field)
    rows: npt.NDArray[np.int64] = column.rows
    needed = _counts_for(names)
    column.counts.fill(needed, rows)
    found = {count: column.counts[count, 0][rows] for count, _ in needed}
    values = {}
    for name in names:
        statistic = STATISTICS[name]
        part = found[statistic.count]
        values[name] = part if statistic.per is None else shares(part, found[statistic.per], 0.0)
    return values


def _counts_for(names: Sequence[str]) -> list[tuple[str, int]]:
    return list(dict.fromkeys((count, 0) for name in names for count in STATISTICS[name].counts))
