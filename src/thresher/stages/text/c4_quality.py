# SPDX-License-Identifier: Apache-2.0
"""The line-level cleaning of C4 (https://jmlr.org/papers/v21/20-074.html), with the names of datatrove."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from thresher.core.batch import DocumentBatch
from thresher.core.stage import ProcessingStage
from thresher.stages.text.chain import field_name
from thresher.stages.text.sentences import count_sentences, split_sentences

if TYPE_CHECKING:
    from thresher.kernels.c4_trim import Trimming

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
"""Why a document is dropped, in the order in which reports list them."""


class Outcome(NamedTuple):
    """What becomes of one text."""

    text: str | None
    """The lines that are left; `None` for a text that is dropped."""
    reason: str
    """Why it is dropped; empty if it is not."""
    sentences: int
    """How many sentences were counted until that was clear."""


class C4QualityFilter(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Reduce each text to its lines that look like prose, and drop documents with too little left (C4, datatrove).

    Lines are those of `str.splitlines`, without white space at their ends. A line is left out if a word is too long, it
    does not end like a sentence, it has too few words, or it speaks of JavaScript or of cookie and privacy policies. A
    document is dropped if a line that would be left has `lorem ipsum` or a curly bracket, and if too few sentences
    are left. `thresher.stages.text.sentences` says what a sentence is.
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
        """-1 turns `min_num_sentences`, `min_words_per_line` or `max_word_length` off. Without `split_paragraph`,
        sentences are judged in place of lines. `remove_citations` takes out `[1]`, `[edit]` and `[citation needed]`."""
        self.split_paragraph, self.remove_citations = split_paragraph, remove_citations
        self.filter_no_terminal_punct = filter_no_terminal_punct
        self.min_num_sentences, self.min_words_per_line = min_num_sentences, min_words_per_line
        self.max_word_length = max_word_length
        self.filter_lorem_ipsum, self.filter_javascript = filter_lorem_ipsum, filter_javascript
        self.filter_curly_bracket, self.filter_policy = filter_curly_bracket, filter_policy
        self.text_field = field_name("C4QualityFilter", "text_field", text_field)

    def inputs(self) -> tuple[list[str], list[str]]:
        """The column that holds the texts."""
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        """The same column: texts are rewritten."""
        return ["data"], [self.text_field]

    def preloads(self) -> list[str]:
        """The kernel that trims, and what takes texts out of lines and puts new ones in."""
        kernels = [f"thresher.kernels.{name}" for name in ("c4_trim", "json_text", "edits", "json_patch")]
        return [*kernels, "thresher.stages.text.c4_batches"]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Trim every text; a document that is dropped keeps the text that it had."""
        from thresher.stages.text.c4_batches import trimmed_batch

        return trimmed_batch(self, task)

    def trimming(self) -> Trimming | None:
        """What the kernel has to do; `None` where only `trim_document` knows how."""
        from thresher.kernels.c4_trim import Trimming, can_trim

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
        """What a document that is dropped for this reason did not meet, for reports."""
        return {"min_num_sentences": self.min_num_sentences} if reason == TOO_FEW_SENTENCES else {}

    def trim_document(self, text: str) -> Outcome:
        """What becomes of a text: the definition that the kernel has to agree with."""
        kept: list[str] = []
        sentences = 0
        for piece in text.splitlines() if self.split_paragraph else split_sentences(text):
            line, verdict = self._judged(piece.strip())
            if verdict:
                return Outcome(None, verdict, sentences)
            if line is None:
                continue
            kept.append(line)
            sentences += count_sentences(line) if self.split_paragraph else 1
        if sentences < self.min_num_sentences:
            return Outcome(None, TOO_FEW_SENTENCES, sentences)
        return Outcome(("\n" if self.split_paragraph else " ").join(kept).strip(), "", sentences)

    def _judged(self, line: str) -> tuple[str | None, str]:
        """The line as it is kept, `None` where it is left out, and the reason why the document is dropped, if it is."""
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
