# SPDX-License-Identifier: Apache-2.0
"""The line-level cleaning of C4 (https://jmlr.org/papers/v21/20-074.html), with the names of datatrove."""

from __future__ import annotations

import re
import string
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from thresher.core.arguments.options import field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.core.stage import ProcessingStage
from thresher.kernels.bytes.punctuation import TERMINAL_PUNCTUATION

if TYPE_CHECKING:
    from thresher.kernels.edits.c4_trim import Trimming


CITATION = re.compile(r"\[\d*]|\[edit]|\[citation needed]")
END_MARKS = (".", "?", "!", '"', "'")
POLICY_PHRASES = (
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
)
LOREM_IPSUM, CURLY_BRACKET, TOO_FEW_SENTENCES = "lorem_ipsum", "curly_bracket", "too_few_sentences"
REASONS = (LOREM_IPSUM, CURLY_BRACKET, TOO_FEW_SENTENCES)
"""Drop reasons, in the order of reports."""


class TrimmedText(NamedTuple):
    """The trimming result of one text."""

    text: str | None
    """The remaining lines; `None` for a dropped text."""
    reason: str
    """The drop reason; empty for a kept text."""
    sentences: int
    """Number of sentences counted before the decision."""


class C4QualityFilter(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Keep the lines of each text that look like prose, and drop documents with too little left (C4, datatrove).

    Lines are those of `str.splitlines`, without white space at their ends. A line is removed if it has a word that is
    too long, does not end like a sentence, has too few words, or mentions JavaScript or cookie and privacy policies. A
    document is dropped if a remaining line contains `lorem ipsum` or a curly bracket, or if too few sentences remain. A
    sentence ends with a word that ends with a mark such as `.`, `!`, `?` or `。`.
    """

    looks_at_inputs_only = True

    def __init__(  # noqa: PLR0913 - the parameters that users of datatrove know
        self,
        split_paragraph: bool = True,
        remove_citations: bool = True,
        filter_no_terminal_punct: bool = True,
        min_num_sentences: int = 5,
        min_words_per_line: int = 3,
        max_word_length: int = 1000,
        filter_lorem_ipsum: bool = True,
        filter_javascript: bool = True,
        filter_curly_bracket: bool = True,
        filter_policy: bool = True,
        text_field: str = "text",
    ) -> None:
        """-1 disables `min_num_sentences`, `min_words_per_line` or `max_word_length`. If `split_paragraph` is false,
        sentences are judged instead of lines. `remove_citations` removes `[1]`, `[edit]` and `[citation needed]`."""
        self.split_paragraph, self.remove_citations = split_paragraph, remove_citations
        self.filter_no_terminal_punct = filter_no_terminal_punct
        self.min_num_sentences, self.min_words_per_line = min_num_sentences, min_words_per_line
        self.max_word_length = max_word_length
        self.filter_lorem_ipsum, self.filter_javascript = filter_lorem_ipsum, filter_javascript
        self.filter_curly_bracket, self.filter_policy = filter_curly_bracket, filter_policy
        self.text_field = field_name("C4QualityFilter", "text_field", text_field)

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column that holds the texts."""
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the same column: texts are rewritten."""
        return ["data"], [self.text_field]

    def preloads(self) -> list[str]:
        """Return the kernels that trim texts, extract them from lines and insert new ones."""
        kernels = [f"thresher.kernels.{name}" for name in ("edits.c4_trim", "json.text", "edits.rewrite", "json.patch")]
        return [*kernels, "thresher.stages.text.c4.batches"]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Trim every text; a dropped document keeps its original text."""
        from thresher.stages.text.c4.batches import trimmed_batch

        return trimmed_batch(self, task)

    def trimming(self) -> Trimming | None:
        """Return the parameters for the kernel; `None` if only `trim_document` supports them."""
        from thresher.kernels.edits.c4_trim import Trimming, can_trim

        how = Trimming(
            self.remove_citations,
            self.filter_no_terminal_punct,
            self.min_num_sentences,
            self.min_words_per_line,
            self.max_word_length,
            self.filter_lorem_ipsum,
            self.filter_javascript,
            self.filter_curly_bracket,
            self.filter_policy,
        )
        is_own = type(self).trim_document is C4QualityFilter.trim_document
        return how if is_own and self.split_paragraph and can_trim(how) else None

    def thresholds(self, reason: str) -> dict[str, Any]:
        """Return the threshold that a document dropped for this reason did not meet, for reports."""
        return {"min_num_sentences": self.min_num_sentences} if reason == TOO_FEW_SENTENCES else {}

    def trim_document(self, text: str) -> TrimmedText:
        """Trim a text: the definition that the kernel must agree with."""
        kept: list[str] = []
        sentences = 0
        for piece in text.splitlines() if self.split_paragraph else split_sentences(text):
            line, verdict = self._judged(piece.strip())
            if verdict:
                return TrimmedText(None, verdict, sentences)
            if line is None:
                continue
            kept.append(line)
            sentences += count_sentences(line) if self.split_paragraph else 1
        if sentences < self.min_num_sentences:
            return TrimmedText(None, TOO_FEW_SENTENCES, sentences)
        return TrimmedText(("\n" if self.split_paragraph else " ").join(kept).strip(), "", sentences)

    def _judged(self, line: str) -> tuple[str | None, str]:
        """Return the line as it is kept, or `None` if it is removed, and the drop reason of the document, if any."""
        words = line.split()
        if self.max_word_length != -1 and any(len(word) > self.max_word_length for word in words):
            return None, ""
        if self.remove_citations:
            line = CITATION.sub("", line)
        if self.filter_no_terminal_punct and (not line.endswith(END_MARKS) or line.endswith("...")):
            return None, ""
        if len(words) < self.min_words_per_line:
            return None, ""
        small = line.lower()
        if self.filter_lorem_ipsum and "lorem ipsum" in small:
            return None, LOREM_IPSUM
        if self.filter_javascript and "javascript" in small:
            return None, ""
        if self.filter_curly_bracket and "{" in line:
            return None, CURLY_BRACKET
        if self.filter_policy and any(phrase in small for phrase in POLICY_PHRASES):
            return None, ""
        return line, ""


CLOSERS = "\"')]}”’»"
"""Characters that may follow the mark that ends a sentence."""
_WORD = re.compile(r"\S+")


def ends_sentence(word: str) -> bool:
    """Return True if a sentence ends with this word: it ends with a mark such as `.`, `!`, `?` or `。`.

    Closing quotation marks and brackets after the mark are ignored. A full stop does not end a sentence after another
    full stop (an ellipsis) or after a single ASCII letter (initials: `J. S. Bach`, `U.S.`). There is no list of
    abbreviations.
    """
    word = word.rstrip(CLOSERS)
    if word[-1:] not in TERMINAL_PUNCTUATION:
        return False
    if not word.endswith(".") or len(word) == 1:
        return True
    before = word[-2]
    if before == ".":
        return False
    if before not in string.ascii_letters:
        return True
    return len(word) > 2 and (word[-3] in string.ascii_letters or not word[-3].isascii())


def count_sentences(line: str) -> int:
    """Return the number of sentences in a line: one, plus one for each that ends before its last word."""
    return 1 + sum(map(ends_sentence, line.split()[:-1]))


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, with the white space between them."""
    cuts = [0, *(word.end() for word in _WORD.finditer(text) if ends_sentence(word.group())), len(text)]
    return [text[start:end] for start, end in pairwise(cuts) if end > start]
