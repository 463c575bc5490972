# SPDX-License-Identifier: Apache-2.0
"""Bounds on line lengths and characters of a source file, by language and extension."""

from __future__ import annotations

import csv

from thresher.errors import InputError, UsageError
from thresher.stages.text.judging.rule import DocumentFilter, share
from thresher.stages.text.rules.characters.character_shares import common_characters

_COLUMNS = ("language", "extension", "Include", "Long_line_threshold", "Alphanum_threshold", "Alpha filter")
_USUAL_MEAN = 100
"""Longest mean line length, for file types that have a longest line."""
_SPELLINGS = {"C#": "c-sharp", "F#": "f-sharp"}


class PerExtensionFilter(DocumentFilter):
    """Keep source files whose line lengths and characters are within the bounds of a table for their language.

    The table is a CSV file with a row per language and extension. The columns that are read are `language`,
    `extension`, `Include` (1: keep such files), `Long_line_threshold` (the longest line; where it is set, the mean line
    length is limited to 100 code points), `Alphanum_threshold` (the least share of ASCII letters, digits, line feeds
    and `? ! , .`) and `Alpha filter` (the least share of letters). An empty cell sets no bound. The score is 1 or 0. In
    an empty text every share is 0.0.
    """

    def __init__(self, lang: str, extension: str, metadata_file: str = "code_meta.csv") -> None:
        """The table is read here, once, by the process that creates the rule."""
        self.lang = lang
        self.extension = extension
        self.metadata_file = metadata_file
        row = _row(lang, extension or "", metadata_file)
        self._include = row["Include"] == "1"
        self._longest_line = _number(row["Long_line_threshold"])
        self._mean_line = _USUAL_MEAN if self._longest_line else None
        self._alphanumeric = _number(row["Alphanum_threshold"])
        self._alphabetic = _number(row["Alpha filter"])

    def score_document(self, text: str) -> int:
        """Return 1 if the file is within all bounds, else 0."""
        if not self._include:
            return 0
        lines = text.split("\n")
        return int(
            not (self._longest_line and max(map(len, lines)) > self._longest_line)
            and not (self._mean_line and (len(text) + 1) / len(lines) - 1 > self._mean_line)
            and not (self._alphanumeric and share(common_characters(text), len(text), 0.0) < self._alphanumeric)
            and not (self._alphabetic and sum(map(str.isalpha, text)) < self._alphabetic * len(text))
        )

    def keep_document(self, score: int) -> bool:
        """Return True if the file is within all bounds."""
        return score == 1


def _row(lang: str, extension: str, path: str) -> dict[str, str]:
    language = _SPELLINGS.get(lang, lang.lower().replace(" ", "-"))
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"PerExtensionFilter.metadata_file: {path!r} cannot be read: {error}") from error
    missing = [name for name in _COLUMNS if not rows or rows[0].get(name) is None]
    if missing:
        raise InputError(f"PerExtensionFilter.metadata_file: {path!r} has no column {', '.join(map(repr, missing))}")
    known = {row["extension"]: row for row in rows if row["language"] == language}
    if not known:
        raise UsageError(f"PerExtensionFilter.lang: {lang!r} is not in {path!r}; it is looked for as {language!r}")
    if extension not in known:
        legal = ", ".join(map(repr, known))
        raise UsageError(f"PerExtensionFilter.extension: {path!r} has no {extension!r} for {lang!r}; it has {legal}")
    return known[extension]


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
