# SPDX-License-Identifier: Apache-2.0
"""The stage that rewrites texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from thresher.core.batch import DocumentBatch
from thresher.core.resources import WorkerMetadata
from thresher.core.stage import ProcessingStage
from thresher.errors import UsageError
from thresher.stages.text.chain import as_chain, field_name, spread
from thresher.stages.text.document_modifier import DocumentModifier, has_byte_test, has_edits
from thresher.stages.text.not_text import set_aside_without_text

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts import Texts

    Said = npt.NDArray[np.bool_] | npt.NDArray[np.uint8] | None


_KERNELS = ["thresher.kernels.json_text", "thresher.kernels.edits", "thresher.kernels.json_patch"]
"""What takes texts out of lines, writes new ones, and puts them into the lines again."""


class Modify(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Rewrite each document's text with a function or a modifier; a list of them is a chain, applied in order."""

    looks_at_inputs_only = True

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

    def preloads(self) -> list[str]:
        """What finds the bytes of texts, and what the modifiers look at them with."""
        links = zip(self._modifiers, self._inputs, self._outputs, strict=True)
        testing = [link for link, source, target in links if source == target and _looks_at_bytes(link)]
        return [*(_KERNELS if testing else []), *(name for m in testing for name in m.preloads())]

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Let the modifiers load their models."""
        for modifier in self._modifiers:
            load = getattr(modifier, "load_model", None)
            if callable(load):
                load()

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Rewrite every text; where nothing changes in a batch it is passed on as it is."""
        self._take_counts()  # what a call that failed had counted
        for modifier, source, target in zip(self._modifiers, self._inputs, self._outputs, strict=True):
            if source == target and _looks_at_bytes(modifier):
                task = _modified_where_needed(task, modifier, source)
            else:
                task = _modified(task, _function(modifier), source, target)
        for name, n in self._take_counts():
            self.count(name, n)
        return task

    def _take_counts(self) -> list[tuple[str, int]]:
        taken: list[tuple[str, int]] = []
        for modifier in self._modifiers:
            if isinstance(modifier, DocumentModifier):
                taken.extend(modifier.take_counts().items())
        return taken


def _modified(batch: DocumentBatch, function: Callable[[str], str], source: str, target: str) -> DocumentBatch:
    texts = batch.values(source)
    unfit = [row for row, text in enumerate(texts) if not isinstance(text, str)]
    if unfit:
        batch = set_aside_without_text(batch, unfit, source)
        texts = [text for text in texts if isinstance(text, str)]
    new = [_text_of(function, text, source) for text in texts]
    if source != target:
        return batch.replace(target, new)
    changed = [text != before for text, before in zip(new, texts, strict=True)]
    texts.clear()  # a large text should not be there twice while its column is made
    return batch.replace(target, new, changed) if any(changed) else batch


def _text_of(function: Callable[[str], str], text: str, field: str) -> str:
    new = function(text)
    if not isinstance(new, str):
        raise TypeError(f"Modify: {function!r} returned a {type(new).__name__} for {field!r}; a string is needed")
    return new


# -- texts as bytes -------------------------------------------------------------------------------------------------


def _looks_at_bytes(modifier: Any) -> bool:
    return has_byte_test(modifier) or has_edits(modifier)


def _modified_where_needed(batch: DocumentBatch, modifier: DocumentModifier, field: str) -> DocumentBatch:
    """As `_modified`, but texts that the modifier cannot change, or whose bytes a kernel changes, stay bytes."""
    import numpy as np

    from thresher.kernels.counts import Texts
    from thresher.kernels.edits import Edits, with_whole_texts
    from thresher.stages.text.late_texts import NO_EDITS, with_edits
    from thresher.stages.text.text_column import text_column

    column = text_column(batch, field)
    unfit = np.flatnonzero(~column.has_text(np.arange(len(batch), dtype=np.int64)))
    if len(unfit):
        batch = set_aside_without_text(batch, unfit.tolist(), field)
        column = text_column(batch, field)
    all_texts = column.texts
    texts = Texts(all_texts.data, all_texts.starts[column.rows], all_texts.ends[column.rows])
    edits: Edits | None = modifier.edits(texts) if has_edits(modifier) else None
    said: Said = modifier.may_change(texts) if edits is None else edits.doubtful
    edits = with_whole_texts(edits or NO_EDITS, texts, _new_texts(texts, modifier, said, field))
    return with_edits(batch, field, texts, edits) if len(edits.found) else batch


def _new_texts(texts: Texts, modifier: DocumentModifier, said: Said, field: str) -> dict[int, bytes]:
    """The bytes of the texts that change, by row; one text at a time is a Python string."""
    import numpy as np

    view = texts.data.data
    found = {}
    for row in range(len(texts.starts)) if said is None else np.flatnonzero(said).tolist():
        before = str(view[texts.starts[row] : texts.ends[row]], "utf-8", "surrogatepass")
        if said is None:
            new = _text_of(modifier.modify_document, before, field)
        else:
            new = modifier.modify_knowing(before, int(said[row]))
        if new != before:
            found[row] = new.encode()
    return found


def _function(modifier: Any) -> Callable[[str], str]:
    function: Any = getattr(modifier, "modify_document", modifier)
    if not callable(function):
        raise UsageError(f"Modify.modifier_fn: {modifier!r} is neither a function of a text nor a DocumentModifier")
    made: Callable[[str], str] = function
    return made
