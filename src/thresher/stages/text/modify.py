# SPDX-License-Identifier: Apache-2.0
"""The stage that rewrites texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thresher.core.batch import DocumentBatch
from thresher.core.resources import WorkerMetadata
from thresher.core.stage import ProcessingStage
from thresher.errors import UsageError
from thresher.stages.text.chain import as_chain, field_name, spread
from thresher.stages.text.document_modifier import DocumentModifier
from thresher.stages.text.not_text import set_aside_without_text


class Modify(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Rewrite each document's text with a function or a modifier; a list of them is a chain, applied in order."""

    def __init__(
        self,
        modifier_fn: Callable[[str], str] | DocumentModifier | list[Callable[[str], str] | DocumentModifier],
        input_fields: str | list[str] = "text",
        output_fields: str | list[str | None] | None = None,
    ) -> None:
        """`input_fields` is the column that is read, `output_fields` the one that is written (the same by default)."""
        self.modifier_fn, self.input_fields, self.output_fields = modifier_fn, input_fields, output_fields
        self._modifiers = as_chain("Modify", "modifier_fn", modifier_fn)
        for modifier in self._modifiers:
            _function(modifier)
        count = len(self._modifiers)
        self._inputs = [
            field_name("Modify", "input_fields", f) for f in spread("Modify", "input_fields", input_fields, count)
        ]
        outputs = spread("Modify", "output_fields", output_fields, count)
        self._outputs = [
            source if name is None else field_name("Modify", "output_fields", name)
            for source, name in zip(self._inputs, outputs, strict=True)
        ]

    def inputs(self) -> tuple[list[str], list[str]]:
        """The columns that are read, but for those that an earlier link writes."""
        needed = [name for n, name in enumerate(self._inputs) if name not in self._outputs[:n]]
        return ["data"], list(dict.fromkeys([*needed, *self._inputs[:1]]))

    def outputs(self) -> tuple[list[str], list[str]]:
        """The columns that are written."""
        return ["data"], list(dict.fromkeys(self._outputs))

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Let the modifiers load their models."""
        for modifier in self._modifiers:
            load = getattr(modifier, "load_model", None)
            if callable(load):
                load()

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Rewrite every text; where nothing changes in a batch it is passed on as it is."""
        for modifier, source, target in zip(self._modifiers, self._inputs, self._outputs, strict=True):
            task = _modified(task, _function(modifier), source, target)
        return task


def _modified(batch: DocumentBatch, function: Callable[[str], str], source: str, target: str) -> DocumentBatch:
    texts = batch.values(source)
    unfit = [row for row, text in enumerate(texts) if not isinstance(text, str)]
    if unfit:
        batch = set_aside_without_text(batch, unfit, source)
        texts = [text for text in texts if isinstance(text, str)]
    new = [function(text) for text in texts]
    for text in new:
        if not isinstance(text, str):
            raise TypeError(f"Modify: {function!r} returned a {type(text).__name__} for {source!r}; a string is needed")
    if source != target:
        return batch.replace(target, new)
    changed = [text != before for text, before in zip(new, texts, strict=True)]
    texts.clear()  # a large text should not be there twice while its column is made
    return batch.replace(target, new, changed) if any(changed) else batch


def _function(modifier: Any) -> Callable[[str], str]:
    function: Any = getattr(modifier, "modify_document", modifier)
    if not callable(function):
        raise UsageError(f"Modify.modifier_fn: {modifier!r} is neither a function of a text nor a DocumentModifier")
    made: Callable[[str], str] = function
    return made
