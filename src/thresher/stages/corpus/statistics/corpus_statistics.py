# SPDX-License-Identifier: Apache-2.0
"""Statistics over a whole corpus: documents, characters and words by source, language or domain, with histograms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thresher.core.documents.batch import DocumentBatch
from thresher.errors import UsageError
from thresher.stages.corpus.reduce import ReduceStage
from thresher.stages.text.rules.web.url_blocklist import host_of

_DOMAIN = "domain"
_BARS = 20
"""Values of a column that have a bar in its chart."""
Group = list[Any]
"""Documents, characters, words, and the number of documents by the power of two above their characters."""


class CorpusStatistics(ReduceStage):
    """Make one document for each value of some columns, with numbers over its documents and a histogram of lengths.

    The documents themselves become part of the result. Put it behind an outlet that gets copies (`Copy`) to keep them.
    """

    def __init__(
        self, by: str | Sequence[str] = (), text_field: str = "text", top: int = 1000, url_field: str = "url"
    ) -> None:
        """`by`: columns to count by; `domain` is the host name in the column `url_field`. Each is counted on its own.
        `text_field`: the column of the text.
        `top`: how many values of a column are listed, the most frequent first; the others are summed up.
        `url_field`: the column with the address.
        """
        self.by = [by] if isinstance(by, str) else list(by)
        if not all(isinstance(name, str) and name for name in self.by):
            raise UsageError(f"CorpusStatistics.by: {by!r} is not the name of a column, or a list of names")
        self.text_field, self.top, self.url_field = text_field, top, url_field

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the columns that are looked at."""
        columns = [self.url_field if name == _DOMAIN else name for name in self.by]
        return [], list(dict.fromkeys([self.text_field, *columns]))

    def initial(self) -> dict[str, dict[str, Group]]:
        """Return no groups."""
        return {name: {} for name in ("", *self.by)}

    def accumulate(self, state: dict[str, dict[str, Group]], batch: DocumentBatch) -> dict[str, dict[str, Group]]:
        """Add the documents of a batch."""
        texts = [text if isinstance(text, str) else "" for text in batch.values(self.text_field)]
        numbers = [(len(text), len(text.split())) for text in texts]
        for name, groups in state.items():
            for key, (characters, words) in zip(self._keys(name, batch), numbers, strict=True):
                group = groups.setdefault(key, [0, 0, 0, {}])
                group[0] += 1
                group[1] += characters
                group[2] += words
                bucket = characters.bit_length()
                group[3][bucket] = group[3].get(bucket, 0) + 1
        return state

    def _keys(self, name: str, batch: DocumentBatch) -> list[str]:
        if not name:
            return [""] * len(batch)
        if name == _DOMAIN:
            urls = batch.values(self.url_field)
            return [host_of(url).removeprefix("www.") if isinstance(url, str) else "" for url in urls]
        return ["" if value is None else str(value) for value in batch.values(name)]

    def merge(self, state: dict[str, dict[str, Group]], other: dict[str, dict[str, Group]]) -> dict[str, Any]:
        """Add up two states."""
        for name, groups in other.items():
            mine = state[name]
            for key, (documents, characters, words, histogram) in groups.items():
                group = mine.setdefault(key, [0, 0, 0, {}])
                group[0] += documents
                group[1] += characters
                group[2] += words
                for bucket, n in histogram.items():
                    group[3][bucket] = group[3].get(bucket, 0) + n
        return state

    def finish(self, state: dict[str, dict[str, Group]]) -> DocumentBatch:
        """Return the groups, the largest first."""
        rows = []
        for name, groups in state.items():
            ordered = sorted(groups.items(), key=lambda item: (-item[1][0], item[0]))
            self._chart_groups(name, ordered)
            for key, group in ordered[: self.top]:
                rows.append(_row(name, key or None, group))
            rest = ordered[self.top :]
            if rest:
                summed = self.merge({name: {}}, {name: {}})
                for _, group in rest:
                    self.merge(summed, {name: {"": group}})
                rows.append(_row(name, None, summed[name][""]) | {"values": len(rest)})
        return DocumentBatch(rows)

    def _chart_groups(self, name: str, ordered: list[tuple[str, Group]]) -> None:
        """Chart the lengths of all documents, or the largest groups of a column."""
        if not name:
            for bucket, n in ((bucket, n) for _, group in ordered for bucket, n in group[3].items()):
                self.chart("documents by characters, from", 1 << (bucket - 1) if bucket else 0, n)
            return
        for key, group in ordered[:_BARS]:
            self.chart(f"documents by {name}", key or "no value", group[0])
        self.chart(f"documents by {name}", "other values", sum(group[0] for _, group in ordered[_BARS:]))


def _row(name: str, key: str | None, group: Group) -> dict[str, Any]:
    documents, characters, words, histogram = group
    return {
        "by": name or "all",
        "value": key,
        "values": 1,
        "documents": documents,
        "characters": characters,
        "words": words,
        "lengths": {f"<{2**bucket}": histogram[bucket] for bucket in sorted(histogram)},
    }
