# SPDX-License-Identifier: Apache-2.0
"""Stage that identifies the language of each document."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from thresher.core.arguments.options import field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.core.resources import NodeInfo, WorkerMetadata
from thresher.core.stage import ProcessingStage
from thresher.errors import UsageError, refusals
from thresher.stages.text.columns.not_text import set_aside_without_text
from thresher.stages.text.language.codes import UNDETERMINED
from thresher.stages.text.language.models import (
    KERNELS,
    check_languages,
    check_model,
    check_model_installed,
    load_identifier,
    unpack_model,
)

if TYPE_CHECKING:
    from thresher.kernels.counts.text_counts import Rows, Texts
    from thresher.stages.text.language.identifier import LanguageIdentifier


class LanguageId(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Write the language of each document's text, and the probability of that, into columns.

    Languages are ISO 639 codes, such as `en`; a text that is too short or that the model finds too uncertain has
    `und`. The model comes with the extra `langid`. The report has a chart of the languages.
    """

    looks_at_inputs_only = True

    def __init__(  # noqa: PLR0913 - all have a default; a recipe names them
        self,
        languages: str | list[str] | None = None,
        min_score: float = 0.0,
        min_characters: int = 3,
        model_path: str | None = None,
        text_field: str = "text",
        language_field: str = "language",
        score_field: str | None = "language_score",
    ) -> None:
        """`languages`: the only candidates; the probability is then that of a text known to be in one of them.
        `min_score`: a language with a lower probability is written as `und`; the score is written as it is.
        `min_characters`: a text with fewer characters, white space not counted, is `und` with the score 0.
        `model_path`: a fastText model (lid.176, GlotLID) in place of the bundled one; languages are its codes.
        `score_field`: `None` writes no probability.
        """
        check_model_installed("LanguageId", model_path)
        self.model_path = model_path
        self.languages = check_languages("LanguageId", languages, model_path)
        if isinstance(min_score, bool) or not isinstance(min_score, int | float) or not 0 <= min_score <= 1:
            raise UsageError(f"LanguageId.min_score: {min_score!r} is not a probability; give a number from 0 to 1")
        if isinstance(min_characters, bool) or not isinstance(min_characters, int) or min_characters < 0:
            raise UsageError(f"LanguageId.min_characters: {min_characters!r} is not a number of characters, 0 or more")
        self.min_score = min_score
        self.min_characters = min_characters
        self.text_field = field_name("LanguageId", "text_field", text_field)
        self.language_field = field_name("LanguageId", "language_field", language_field)
        self.score_field = None if score_field is None else field_name("LanguageId", "score_field", score_field)
        if self.language_field == self.score_field:
            raise UsageError(
                f"LanguageId.score_field: {score_field!r} is the column of the language; give another name, or null"
            )
        self._identifier: LanguageIdentifier | None = None

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column that holds the text."""
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the columns that receive language and probability."""
        return ["data"], [name for name in (self.language_field, self.score_field) if name is not None]

    def check_before_run(self) -> list[str]:
        """Report a missing model, or languages that the model does not know."""
        return refusals(lambda: check_model("LanguageId", self.model_path, self.languages))

    def preloads(self) -> list[str]:
        """Return the kernels of the bundled model, and those that find texts in lines."""
        return ["thresher.stages.text.language.identifier", *KERNELS]

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        """Unpack the bundled model once per machine."""
        unpack_model("LanguageId", self.model_path)

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Load the model."""
        self._identifier = load_identifier("LanguageId", self.model_path, self.languages, given=True)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Identify the languages, and write the columns."""
        import numpy as np

        from thresher.stages.text.columns.text_column import text_column

        column = text_column(task, self.text_field)
        has_text = column.has_text(np.arange(task.num_items))
        if not has_text.all():
            task = set_aside_without_text(task, np.flatnonzero(~has_text).tolist(), self.text_field)
            column = column.take(np.flatnonzero(has_text))
        codes, scores = self._identified(column.texts, column.rows)
        for code, number in sorted(Counter(codes).items()):
            self.chart("languages", code, number)
        task = task.replace(self.language_field, codes)
        return task if self.score_field is None else task.replace(self.score_field, scores)

    def _identified(self, texts: Texts, rows: Rows) -> tuple[list[str], list[float]]:
        """Return the language and the score of each text."""
        import numpy as np

        from thresher.kernels.language.plain_form import find_forms
        from thresher.stages.text.language.identifier import SCORE_DIGITS

        if self._identifier is None:
            self.setup()
        assert self._identifier is not None
        long_enough = find_forms(texts, rows).visible >= self.min_characters
        found = self._identifier.identify(texts, rows[long_enough])
        scores = np.zeros(len(rows), dtype=np.float64)
        scores[long_enough] = found.probabilities.round(SCORE_DIGITS)
        codes = np.full(len(rows), UNDETERMINED, dtype=object)
        codes[long_enough] = found.codes
        codes[(scores < self.min_score) | (scores == 0)] = UNDETERMINED
        return codes.tolist(), scores.tolist()
