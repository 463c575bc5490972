# SPDX-License-Identifier: Apache-2.0
"""Stage that finds documents that contain parts of evaluation sets.

A document is suspect if it shares a run of n words with a text of an evaluation set. Words are compared in lower case
and without punctuation, as in published decontamination; `normalized_words` defines the details.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from thresher.core.arguments.options import field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.core.resources import NodeInfo, WorkerMetadata
from thresher.core.stage import ProcessingStage
from thresher.errors import UsageError
from thresher.stages.text.columns.list_file import missing_files
from thresher.stages.text.columns.not_text import set_aside_without_text
from thresher.stages.text.evaluation_sets import EvaluationSets, build_index, index_key, named_sets

if TYPE_CHECKING:
    from thresher.stages.text.index_file import ArrayIndex

_MOST_WORDS = 1000
_WITHOUT_SPACES = (
    (0x0E00, 0x0EFF),  # Thai and Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    *((0x3041, 0x30FF), (0x31F0, 0x31FF)),  # Hiragana and Katakana
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF)),  # Han
)
_SHOWN = 300
"""Most characters of the shared words that are shown."""


class Decontamination(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Drop or mark documents that share a run of n words with an evaluation set.

    A document is dropped under the name of the set that contains its first shared run; the score holds the set, the
    words as written in the document, and the share of its runs that are in any set. The index is built once per machine
    and set of files, and shared by all workers.
    """

    looks_at_inputs_only = True

    def __init__(  # noqa: PLR0913 - all but the first have a default
        self,
        evaluation_sets: EvaluationSets,
        n: int = 13,
        min_share: float = 0.0,
        action: Literal["drop", "mark"] = "drop",
        text_field: str = "text",
        fields: list[str] | None = None,
        mark_field: str = "contamination",
    ) -> None:
        """`evaluation_sets` are JSON lines, Parquet or text files (one text per line); a dict names them.

        `fields` are the columns of the sets to use, by default all strings. A document needs at least one shared run,
        and `min_share` of its runs in the sets. `action="mark"` keeps all documents and writes the match into
        `mark_field`, which is null without a match.
        """
        named_sets(evaluation_sets)
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= _MOST_WORDS:
            raise UsageError(f"Decontamination.n: {n!r} is not a whole number from 1 to {_MOST_WORDS}")
        if isinstance(min_share, bool) or not isinstance(min_share, int | float) or not 0 <= min_share <= 1:
            raise UsageError(f"Decontamination.min_share: {min_share!r} is not a share from 0 to 1")
        if action not in ("drop", "mark"):
            raise UsageError(f"Decontamination.action: {action!r} is neither 'drop' nor 'mark'")
        self.evaluation_sets = evaluation_sets
        self.n = n
        self.min_share = min_share
        self.action = action
        self.text_field = field_name("Decontamination", "text_field", text_field)
        self.fields = fields
        self.mark_field = field_name("Decontamination", "mark_field", mark_field)
        self._index: ArrayIndex | None = None

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column that holds the text."""
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the column that receives the marks."""
        return ["data"], [self.mark_field] if self.action == "mark" else []

    def preloads(self) -> list[str]:
        """Return the kernels that look up texts."""
        return ["thresher.kernels.edits.decontamination", "thresher.kernels.json.text"]

    def check_before_run(self) -> list[str]:
        """Report missing evaluation sets."""
        files = [path for paths in named_sets(self.evaluation_sets).values() for path in paths]
        return missing_files("Decontamination.evaluation_sets", files)

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        """Build the index unless it exists."""
        self._found_index()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Map the index into memory."""
        self._index = self._found_index()

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Look up every document."""
        import numpy as np

        from thresher.stages.text.columns.text_column import text_column

        has_text = text_column(task, self.text_field).has_text(np.arange(task.num_items))
        if not has_text.all():
            task = set_aside_without_text(task, np.flatnonzero(~has_text).tolist(), self.text_field)
        marks = self._marks(task)
        if self.action == "mark":
            return task.replace(self.mark_field, [marks.get(row) for row in range(task.num_items)])
        for name in dict.fromkeys(sorted(mark["evaluation_set"] for mark in marks.values())):
            dropped = {row: mark for row, mark in marks.items() if mark["evaluation_set"] == name}
            task = task.drop(list(dropped), name, list(dropped.values()), {"n": self.n, "min_share": self.min_share})
            left = [row for row in range(task.num_items + len(dropped)) if row not in dropped]
            marks = {index: marks[row] for index, row in enumerate(left) if row in marks}
        return task

    def _marks(self, batch: DocumentBatch) -> dict[int, dict[str, Any]]:
        """Return the matches of the documents that share too much with a set, by row."""
        from thresher.kernels.counts.text_counts import Texts
        from thresher.kernels.edits.decontamination import FIRST_END, FIRST_START, MATCHES, NGRAMS, SET, Table, look_up
        from thresher.stages.text.columns.text_column import text_column

        if self._index is None:
            self.setup()
        assert self._index is not None
        arrays, names = self._index.arrays, list(self._index.facts["sets"])
        column = text_column(batch, self.text_field)
        texts, rows = column.texts, column.rows
        table = Table(arrays["keys"], arrays["sets"], arrays["bits"])
        found = look_up(Texts(texts.data, texts.starts[rows], texts.ends[rows]), arrays["folds"], self.n, table)
        marks = {}
        for row in (found[:, MATCHES] > 0).nonzero()[0].tolist():
            share = int(found[row, MATCHES]) / int(found[row, NGRAMS])
            if share < self.min_share:
                continue
            start = int(texts.starts[rows[row]])
            words = texts.data[start + found[row, FIRST_START] : start + found[row, FIRST_END]].tobytes()
            shown = words.decode("utf-8", "replace")
            marks[row] = {
                "evaluation_set": names[found[row, SET]],
                "ngram": shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…",
                "share": share,
            }
        return marks

    def _found_index(self) -> ArrayIndex:
        from thresher.stages.text.index_file import cached_index

        sets = named_sets(self.evaluation_sets)
        needs = index_key(sets, self.n, self.fields)
        return cached_index("decontamination", needs, lambda: build_index(sets, self.n, self.fields))


# -- reference definition of the index and the look-up, in plain Python ---------------------------------------------


def normalized_words(text: str) -> list[str]:
    """Return the words of a text as they are compared.

    Letters, digits and marks (Unicode categories L, N and M) form words; everything else separates them, except
    invisible format characters (Cf, such as the soft hyphen), which are skipped. Letters are lowercased one by one, and
    a final sigma becomes a sigma. In scripts that are written without spaces (Han, Hiragana, Katakana, Thai, Lao,
    Khmer, Myanmar) every letter is a word, together with the marks that follow it.
    """
    words: list[str] = []
    is_open = alone = False
    for character in text:
        kind = unicodedata.category(character)
        if kind == "Cf":
            continue
        if kind[0] not in "LNM":
            is_open = False
            continue
        by_itself = kind[0] != "M" and _is_written_without_spaces(character)
        if is_open and (kind[0] == "M" or not (alone or by_itself)):
            words[-1] += _small(character)
        else:
            words.append(_small(character))
            is_open, alone = True, by_itself
    return words


def shared_runs(text: str, evaluation_texts: Sequence[str], n: int) -> tuple[int, int]:
    """Return the number of runs of n words in a text, and how many of them an evaluation text shares."""
    known = {run for other in evaluation_texts for run in _runs(normalized_words(other), n)}
    runs = _runs(normalized_words(text), n)
    return len(runs), sum(run in known for run in runs)


def _runs(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(words[start : start + n]) for start in range(len(words) - n + 1)]


def _small(character: str) -> str:
    return "σ" if character == "ς" else character.lower()[0]


def _is_written_without_spaces(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in _WITHOUT_SPACES)
