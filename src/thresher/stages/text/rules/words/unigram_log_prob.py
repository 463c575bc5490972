# SPDX-License-Identifier: Apache-2.0
"""Mean log-probability of the words in a document."""

from __future__ import annotations

import math
import re

from thresher.errors import InputError
from thresher.stages.text.columns.list_file import lines_of, missing_files
from thresher.stages.text.judging.rule import DocumentFilter

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_UNKNOWN = 1e-9
"""Frequency assumed for a word that the file does not contain."""


class UnigramLogProbFilter(DocumentFilter):
    """Keep documents whose words are frequent enough on average.

    The score is the mean natural logarithm of the word frequencies; a word that is not in the file counts as one in a
    billion. Words are runs of letters and digits, with apostrophes between them, in lower case. Punctuation is not a
    word. A text without words has the score 0.0 and is kept.
    """

    def __init__(self, frequency_file: str, logprobs_threshold: float = -10) -> None:
        """`frequency_file` has a word and its count per line, separated by a comma, a tab or spaces, compressed or not.

        A first line without a number is a header. The score must be above the threshold.
        """
        self.frequency_file = frequency_file
        self.logprobs_threshold = logprobs_threshold
        self._logarithms: dict[str, float] | None = None

    def check_before_run(self) -> list[str]:
        """Report a missing file."""
        return missing_files("UnigramLogProbFilter.frequency_file", [self.frequency_file])

    def load_model(self) -> None:
        """Read the file."""
        self._logarithms = _logarithms(self.frequency_file)

    def score_document(self, text: str) -> float:
        """Return the mean logarithm of the word frequencies."""
        if self._logarithms is None:
            self.load_model()
        assert self._logarithms is not None
        known, unknown = self._logarithms, math.log(_UNKNOWN)
        found = [known.get(word, unknown) for word in _WORD.findall(text.lower())]
        return math.fsum(found) / len(found) if found else 0.0

    def keep_document(self, score: float) -> bool:
        """Return True if the words are frequent enough."""
        return score > self.logprobs_threshold


def _logarithms(path: str) -> dict[str, float]:
    counts: dict[str, int] = {}
    for number, line in enumerate(lines_of("UnigramLogProbFilter.frequency_file", path)):
        parts = re.split(r"[,\t ]+", line.decode("utf-8", "replace").strip())
        if len(parts) == 2 and parts[1].isascii() and parts[1].isdigit():
            counts[parts[0]] = counts.get(parts[0], 0) + int(parts[1])
        elif number and parts != [""]:
            raise InputError(
                f"UnigramLogProbFilter.frequency_file: line {number + 1} of {path!r} is {line[:60]!r}; "
                "a word and a whole number are needed, such as `the,23135851162`"
            )
    total = sum(counts.values())
    if not total:
        raise InputError(f"UnigramLogProbFilter.frequency_file: {path!r} has no word with a count above 0")
    return {word: math.log(count / total) for word, count in counts.items() if count}
