# SPDX-License-Identifier: Apache-2.0
"""Whether the characters of a document are those of its language."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from thresher.errors import InputError, UsageError
from thresher.stages.text.document_filter import DocumentFilter
from thresher.stages.text.list_file import lines_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_INSIDE = "histograms/checkpoint/edunov/cc60_multilingual/clean_hists"
"""Where the published archive has its files, one per language."""
_SOURCE = "https://dl.fbaipublicfiles.com/m2m_100/histograms.tar.gz"


class HistogramFilter(DocumentFilter):
    """Drop documents with too many characters that are unusual in their language: a cheap test of the language.

    A file lists the usual characters of a language, the most frequent first, one per line; those before the line that
    starts with `threshold_char` count. The score is the number of usual characters in the text, without white space
    around it, divided by the length of the text with it. An empty text has the score 0.0.
    """

    def __init__(
        self,
        lang: str = "en",
        threshold: float = 0.8,
        cache_dir: str | None = None,
        threshold_char: str = "]",
        histogram_file: str | None = None,
    ) -> None:
        """The score must be above `threshold`. `histogram_file` is the file; or `cache_dir` is a folder in which the
        archive of the histograms of M2M-100 and NLLB was unpacked into `histograms`, and `lang` picks its file."""
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

    def load_model(self) -> None:
        """Read the file."""
        path = self.histogram_file or os.path.join(self.cache_dir or "", _INSIDE, self.lang)
        self._usual = _usual_characters(path, self.threshold_char)

    def score_document(self, text: str) -> float:
        """The share of usual characters."""
        if self._usual is None:
            self.load_model()
        if not text:
            return 0.0
        return int(self._usual[_code_points(text.strip())].sum()) / len(text)

    def keep_document(self, score: float) -> bool:
        """Whether enough characters are usual."""
        return score > self.threshold


def _usual_characters(path: str, last: str) -> npt.NDArray[np.bool_]:
    """For each code point whether it is usual."""
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
