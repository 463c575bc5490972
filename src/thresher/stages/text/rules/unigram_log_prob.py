# SPDX-License-Identifier: Apache-2.0
"""How usual the words of a document are."""

from __future__ import annotations

import math
import re

from thresher.errors import InputError
from thresher.stages.text.document_filter import DocumentFilter
from thresher.stages.text.list_file import lines_of

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_UNKNOWN = 1e-9
"""The frequency of a word that the file does not have."""


class UnigramLogProbFilter(DocumentFilter):
    """Keep documents whose words are usual ones on average.

    The score is the mean of the natural logarithm of each word's frequency; a word that is not in the file counts as
    one in a thousand millions. Words are runs of letters and digits, with apostrophes between them, in lower case.
    Punctuation is no word. A text without words has the score 0.0, and is kept.
    """

    def __init__(self, frequency_file: str, logprobs_threshold: float = -10) -> None:
        """`frequency_file` has a word and its count per line, parted by a comma, a tab or spaces, packed or not.

        A first line without a number is a heading. The score must be above the threshold.
        """
        self.frequency_file = frequency_file
        self.logprobs_threshold = logprobs_threshold
        self._logarithms: dict[str, float] | None = None

    def load_model(self) -> None:
        """Read the file."""
        self._logarithms = _logarithms(self.frequency_file)

    def score_document(self, text: str) -> float:
        """The mean logarithm of the words' frequencies."""
        if self._logarithms is None:
            self.load_model()
        assert self._logarithms is not None
        known, unknown = self._logarithms, math.log(_UNKNOWN)
        found = [known.get(word, unknown) for word in _WORD.findall(text.lower())]
        return math.fsum(found) / len(found) if found else 0.0

    def keep_document(self, score: float) -> bool:
        """Whether the words are usual enough."""
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
