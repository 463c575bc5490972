# SPDX-License-Identifier: Apache-2.0
"""Workflows that remove parts of documents that occur earlier in the corpus."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

from thresher.workflows.workflow import Workflow


@dataclass
class LineDeduplicationWorkflow(Workflow):
    """Remove lines, paragraphs or sentences that occur earlier in the corpus."""

    _: KW_ONLY
    unit: Literal["line", "paragraph", "sentence"] = "line"
    """The kind of passage that is compared and removed."""
    min_length: int = 20
    """Shorter ones, in characters, stay."""
    span: int | None = None
    """So many in a row are compared and removed together; `None`: 3 sentences, 1 line or paragraph."""
    min_document_length: int = 1
    """A document that has fewer characters left is dropped, if something was removed from it."""

    name: ClassVar[str] = "line-deduplication"

    def stages(self) -> Iterable[Any]:
        """Return the stage."""
        from thresher.stages.dedup.lines import LineDeduplication

        yield LineDeduplication(self.unit, self.min_length, self.span, self.min_document_length, self.text_field)


@dataclass
class SubstringDeduplicationWorkflow(Workflow):
    """Remove stretches of text that occur earlier in the corpus, wherever they begin."""

    _: KW_ONLY
    min_length: int = 200
    """Shorter stretches, in bytes of UTF-8, stay."""
    keep: Literal["first", "none"] = "first"
    """The `first` occurrence stays, or `none`."""
    min_document_length: int = 1
    """A document that has fewer characters left is dropped, if something was removed from it."""

    name: ClassVar[str] = "substring-deduplication"

    def stages(self) -> Iterable[Any]:
        """Return the stage."""
        from thresher.stages.dedup.substring import SubstringDeduplication

        yield SubstringDeduplication(self.min_length, self.keep, self.min_document_length, self.text_field)
