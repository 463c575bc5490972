# SPDX-License-Identifier: Apache-2.0
"""Removal of documents with words from a list, as in C4; the user provides the list."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from thresher.core.arguments.options import field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.core.resources import WorkerMetadata
from thresher.core.stage import ProcessingStage
from thresher.errors import UsageError
from thresher.stages.text.columns.not_text import set_aside_without_text

if TYPE_CHECKING:
    from thresher.kernels.edits.word_list import WordList

ALLOWED = frozenset({"sm", "グロ", "女の子", "性"})
"""Entries of the usual lists that are ignored: parts of harmless words in languages without spaces."""
_WITHOUT_SPACES = frozenset({"ja", "th", "zh"})
_REASON = "document_removed_with_badwords"


class C4BadWordsFilter(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Drop documents that contain a word or phrase from the bad-words list of their language (C4, datatrove).

    Texts are compared in lower case. An entry matches if no letter, digit or underscore adjoins it; in Japanese, Thai
    and Chinese it matches anywhere. The score of a dropped document is the entry.
    """

    def __init__(  # noqa: PLR0913 - the parameters that users of datatrove know, and where the words are
        self,
        word_lists: dict[str, str | list[str]],
        keep_fraction: float = 0.0,
        fail_on_missing_language: bool = True,
        seed: int = 0,
        default_language: str = "en",
        language_field: str = "language",
        text_field: str = "text",
    ) -> None:
        """`word_lists`: the entries of each language, or a file or URL with one entry per line. A document whose
        language (or `default_language`, if it has none) is not listed is set aside, or kept if
        `fail_on_missing_language` is false. Of the documents with such words, `keep_fraction` is kept; `seed` and the
        text determine which ones."""
        if not isinstance(word_lists, dict) or not word_lists:
            raise UsageError(
                "C4BadWordsFilter.word_lists: no list of words is given; write {en: path of a file with one per line}"
            )
        self.word_lists, self.keep_fraction = word_lists, keep_fraction
        self.fail_on_missing_language, self.seed = fail_on_missing_language, seed
        self.default_language = default_language
        self.language_field = field_name("C4BadWordsFilter", "language_field", language_field)
        self.text_field = field_name("C4BadWordsFilter", "text_field", text_field)

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column that holds the texts; the language column may be missing."""
        return ["data"], [self.text_field]

    def preloads(self) -> list[str]:
        """Return the kernel that searches for words."""
        kernels = ["thresher.kernels.edits.word_list", "thresher.kernels.json.text"]
        return ["thresher.stages.text.columns.text_column", *kernels]

    def check_before_run(self) -> list[str]:
        """Report missing lists."""
        from thresher.stages.text.columns.list_file import missing_files

        files = [given for given in self.word_lists.values() if isinstance(given, str)]
        return missing_files("C4BadWordsFilter.word_lists", files)

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Read the lists."""
        self._lists = {language: _read(language, given) for language, given in self.word_lists.items()}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lists"}

    def bad_word(self, text: str, language: str | None = None) -> str | None:
        """Return the first entry that a text contains: the definition that the kernel must agree with."""
        listed = self._listed(language or self.default_language)
        if listed is None:
            return None
        found = listed.pattern.search(text.lower())
        return None if found is None else found.group(1)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Search every document for the entries of its language."""
        import numpy as np

        from thresher.stages.text.columns.text_column import text_column

        column = text_column(task, self.text_field)
        has_text = column.has_text(np.arange(len(task), dtype=np.int64))
        if not has_text.all():
            task = set_aside_without_text(task, np.flatnonzero(~has_text).tolist(), self.text_field)
            column = column.take(np.flatnonzero(has_text))
        languages = [value or self.default_language for value in task.values(self.language_field)]
        found: dict[int, str] = {}
        for language in dict.fromkeys(languages):
            listed = self._listed(language)
            rows = np.array([row for row, own in enumerate(languages) if own == language], dtype=np.int64)
            if listed is not None:
                rows = rows[listed.may_contain(column, rows)]
                for row, text in zip(rows.tolist(), column.strings(rows), strict=True):
                    word = self.bad_word(text, language)
                    if word is not None and not self._is_kept(text):
                        found[row] = word
        unlisted = [row for row, language in enumerate(languages) if self._listed(language) is None]
        return self._without(task, found, unlisted if self.fail_on_missing_language else [], languages)

    def _without(
        self, batch: DocumentBatch, found: dict[int, str], unlisted: Sequence[int], languages: Sequence[Any]
    ) -> DocumentBatch:
        rows = sorted(found)
        if unlisted:
            known = ", ".join(sorted(self.word_lists))
            messages = [
                f"field {self.language_field!r} is {languages[row]!r}, and there are word lists only for {known};"
                " give one in word_lists, or set fail_on_missing_language to false"
                for row in unlisted
            ]
            batch = batch.set_aside(unlisted, error="language-without-words", messages=messages)
            set_aside = set(unlisted)
            left = [row for row in range(len(languages)) if row not in set_aside]
            new_row = {row: number for number, row in enumerate(left)}
            rows = [row for row in rows if row in new_row]
            return batch.drop([new_row[row] for row in rows], _REASON, [found[row] for row in rows]) if rows else batch
        return batch.drop(rows, _REASON, [found[row] for row in rows]) if rows else batch

    def _listed(self, language: str) -> _Listed | None:
        if "_lists" not in self.__dict__:
            self.setup()
        lists: dict[str, _Listed] = self._lists
        return lists.get(language)

    def _is_kept(self, text: str) -> bool:
        """Return True if a document with such a word is in the share to keep; determined by its text alone."""
        if self.keep_fraction <= 0.0:
            return False
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, key=str(self.seed).encode())
        return int.from_bytes(digest.digest(), "big") / 2**64 < self.keep_fraction


class _Listed:
    """The entries of one language."""

    def __init__(self, language: str, words: Sequence[str]) -> None:
        self.needs_word_boundary = language not in _WITHOUT_SPACES
        self.words = words
        any_word = "|".join(map(re.escape, words))
        self.pattern = re.compile(rf"(?:\W|^)({any_word})(?:\W|$)" if self.needs_word_boundary else f"({any_word})")
        self._kernel_list: WordList | None = None
        self._is_kernel_list_built = False

    def may_contain(self, column: Any, rows: Any) -> Any:
        """Return a mask of the records that may contain one of the entries: only they are decoded."""
        import numpy as np

        from thresher.kernels.edits.word_list import texts_with_words, word_list

        if not self._is_kernel_list_built:
            self._kernel_list = word_list(self.words) if self.needs_word_boundary else None
            self._is_kernel_list_built = True
        if self._kernel_list is None:
            return np.ones(len(rows), dtype=np.bool_)
        return texts_with_words(column.texts, column.rows[rows], self._kernel_list)


def _read(language: str, given: str | list[str]) -> _Listed:
    """Return the lowercased entries, longest first so that a phrase is found before its first word."""
    if isinstance(given, str):
        from thresher.stages.text.columns.list_file import lines_of

        given = [line.decode("utf-8", "replace") for line in lines_of("C4BadWordsFilter.word_lists", given)]
    words = {word.strip().lower() for word in given} - ALLOWED - {""}
    if not words:
        raise UsageError(f"C4BadWordsFilter.word_lists: the list for {language!r} is empty; leave the language out")
    return _Listed(language, sorted(words, key=lambda word: (-len(word), word)))
