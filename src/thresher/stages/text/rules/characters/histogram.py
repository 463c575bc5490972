# SPDX-License-Identifier: Apache-2.0
"""Share of characters that are usual in the language of a document."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from thresher.errors import InputError, UsageError
from thresher.stages.text.columns.list_file import lines_of, missing_files
from thresher.stages.text.judging.rule import DocumentFilter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_INSIDE = "histograms/checkpoint/edunov/cc60_multilingual/clean_hists"
"""Location of the files in the published archive, one per language."""
_SOURCE = "https://dl.fbaipublicfiles.com/m2m_100/histograms.tar.gz"


class HistogramFilter(DocumentFilter):
    """Drop documents with too many characters that are unusual in their language: a cheap language check.

    A file lists the usual characters of a language, most frequent first, one per line; those before the line that
    starts with `threshold_char` count. The score is the number of usual characters in the text without surrounding
    white space, divided by the length of the text with it. An empty text has the score 0.0.
    """

    def __init__(
        self,
        lang: str = "en",
        threshold: float = 0.8,
        cache_dir: str | None = None,
        threshold_char: str = "]",
        histogram_file: str | None = None,
    ) -> None:
        """The score must be above `threshold`. Give `histogram_file`, or a `cache_dir` in which the M2M-100 and NLLB
        histogram archive was unpacked into `histograms`; `lang` selects the file."""
        if not histogram_file and not cache_dir:
            raise UsageError(
                f"HistogramFilter: give histogram_file, or a cache_dir with {_SOURCE} unpacked in `histograms`"
            )
        self.lang = lang
        self.threshold = threshold
        self.cache_dir = cache_dir
        self.threshold_char = threshold_char
        self.histogram_file = histogram_file
        self._usual: Any = None

    def check_before_run(self) -> list[str]:
        """Report a missing file, or a language without one."""
        parameter = "histogram_file" if self.histogram_file else "lang"
        return missing_files(f"HistogramFilter.{parameter}", [self._path()])

    def _path(self) -> str:
        return self.histogram_file or os.path.join(self.cache_dir or "", _INSIDE, self.lang)

    def load_model(self) -> None:
        """Read the file."""
        self._usual = _usual_characters(self._path(), self.threshold_char)

    def score_document(self, text: str) -> float:
        """Return the share of usual characters."""
        if self._usual is None:
            self.load_model()
        if not text:
            return 0.0
        return int(self._usual[_code_points(text.strip())].sum()) / len(text)

    def keep_document(self, score: float) -> bool:
        """Return True if enough characters are usual."""
        return score > self.threshold


def _usual_characters(path: str, last: str) -> npt.NDArray[np.bool_]:
    """Return a mask over all code points that is True for the usual ones."""
    import numpy as np

    usual = np.zeros(0x110000, dtype=np.bool_)
    for line in lines_of("HistogramFilter.histogram_file", path):
        character = line.decode("utf-8", "replace")[:1]
        if character == last:
            break
        usual[ord(character or "\n")] = True  # a blank line stands for the line feed itself
    if not usual.any():
        raise InputError(f"HistogramFilter.histogram_file: {path!r} lists no characters before {last!r}")
    return usual


def _code_points(text: str) -> npt.NDArray[np.uint32]:
    import numpy as np

    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
