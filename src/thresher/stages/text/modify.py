# SPDX-License-Identifier: Apache-2.0
"""Stage that rewrites texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from thresher.core.arguments.options import as_chain, chain_problems, field_name, field_names, per_link
from thresher.core.documents.batch import DocumentBatch
from thresher.core.resources import WorkerMetadata
from thresher.core.stage import ProcessingStage
from thresher.errors import UsageError, with_article
from thresher.stages.text.columns.any_values import by_name, records_of, takes_any_value
from thresher.stages.text.columns.not_text import set_aside_without_text
from thresher.stages.text.document_modifier import DocumentModifier, has_byte_test, has_edits

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts.text_counts import Texts

    Flags = npt.NDArray[np.bool_] | npt.NDArray[np.uint8] | None


_KERNELS = ["thresher.kernels.json.text", "thresher.kernels.edits.rewrite", "thresher.kernels.json.patch"]
"""Kernels that extract texts from lines, write new ones, and insert them into the lines."""


class Modify(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Rewrite a field of each document with a function or a modifier; a list of them is applied in order."""

    looks_at_inputs_only = True

    def __init__(
        self,
        modifier_fn: Callable[..., Any] | DocumentModifier | list[Callable[..., Any] | DocumentModifier],
        input_fields: str | list[str] | list[list[str]] = "text",
        output_fields: str | list[str | None] | None = None,
    ) -> None:
        """`input_fields` is the column to read, `output_fields` the column to write (the same by default).
        `input_fields=[["title", "text"]]` gives a function several columns, as keyword arguments."""
        self.modifier_fn, self.input_fields, self.output_fields = modifier_fn, input_fields, output_fields
        self._modifiers = as_chain("Modify", "modifier_fn", modifier_fn)
        for modifier in self._modifiers:
            _function(modifier)
        count = len(self._modifiers)
        self._inputs = [
            field_names("Modify", "input_fields", f) for f in per_link("Modify", "input_fields", input_fields, count)
        ]
        outputs = per_link("Modify", "output_fields", output_fields, count)
        self._outputs = [_output(sources, name) for sources, name in zip(self._inputs, outputs, strict=True)]

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the columns that are read, except those that an earlier link writes."""
        needed = [name for n, names in enumerate(self._inputs) for name in names if name not in self._outputs[:n]]
        return ["data"], list(dict.fromkeys([*needed, *self._inputs[0]]))

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the columns that are written."""
        return ["data"], list(dict.fromkeys(self._outputs))

    def preloads(self) -> list[str]:
        """Return the kernels that find the bytes of texts, and those of the modifiers."""
        links = zip(self._modifiers, self._inputs, self._outputs, strict=True)
        testing = [link for link, source, target in links if source == (target,) and _works_on_bytes(link)]
        return [*(_KERNELS if testing else []), *(name for m in testing for name in m.preloads())]

    def check_before_run(self) -> list[str]:
        """Return the problems that the modifiers report."""
        return chain_problems(self._modifiers)

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Load the models of the modifiers."""
        for modifier in self._modifiers:
            load = getattr(modifier, "load_model", None)
            if callable(load):
                load()

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Rewrite every text; a batch without changes is returned as it is."""
        self._take_counts()  # discard the counts of a failed call
        for modifier, sources, target in zip(self._modifiers, self._inputs, self._outputs, strict=True):
            if sources == (target,) and _works_on_bytes(modifier):
                task = _modified_as_bytes(task, modifier, target)
            elif len(sources) > 1:
                values = [_value_of(by_name(_function(modifier)), r, target) for r in records_of(task, sources)]
                task = task.replace(target, values)
            else:
                task = _modified(task, _function(modifier), sources[0], target)
        for name, n in self._take_counts():
            self.count(name, n)
        return task

    def _take_counts(self) -> list[tuple[str, int]]:
        taken: list[tuple[str, int]] = []
        for modifier in self._modifiers:
            if isinstance(modifier, DocumentModifier):
                taken.extend(modifier.take_counts().items())
        return taken


def _output(sources: tuple[str, ...], name: str | None) -> str:
    """Return the column that a link writes; by default the one that it reads."""
    if name is not None:
        return field_name("Modify", "output_fields", name)
    if len(sources) > 1:
        raise UsageError(f"Modify.output_fields: name the column for what is made of {', '.join(sources)}")
    return sources[0]


def _modified(batch: DocumentBatch, function: Callable[..., Any], source: str, target: str) -> DocumentBatch:
    any_type = takes_any_value(function)
    values = batch.values(source)
    unfit = [
        row for row, value in enumerate(values) if not (isinstance(value, str) or (any_type and value is not None))
    ]
    if unfit:
        batch = set_aside_without_text(batch, unfit, source, "a value" if any_type else "a string")
        values = batch.values(source)
    new = [_value_of(function, value, source, any_type=any_type) for value in values]
    if source != target:
        return batch.replace(target, new)
    changed = [value != before or type(value) is not type(before) for value, before in zip(new, values, strict=True)]
    values.clear()  # free the old texts before the new column is built
    return batch.replace(target, new, changed) if any(changed) else batch


def _value_of(function: Callable[..., Any], given: Any, field: str, *, any_type: bool = True) -> Any:
    """Return the new value; a function that returns nothing is a mistake."""
    if not any_type:
        return _text_of(function, given, field)
    new = function(given)
    if new is None:
        raise TypeError(f"Modify: {function!r} returned None for {field!r}; a value is needed")
    return new


def _text_of(function: Callable[[str], str], text: str, field: str) -> str:
    new = function(text)
    if not isinstance(new, str):
        raise TypeError(f"Modify: {function!r} returned {with_article(type(new))} for {field!r}; a string is needed")
    return new


# -- texts as bytes -------------------------------------------------------------------------------------------------


def _works_on_bytes(modifier: Any) -> bool:
    return has_byte_test(modifier) or has_edits(modifier)


def _modified_as_bytes(batch: DocumentBatch, modifier: DocumentModifier, field: str) -> DocumentBatch:
    """Modify like `_modified`, but texts that the modifier cannot change, or that a kernel changes, stay bytes."""
    import numpy as np

    from thresher.kernels.counts.text_counts import Texts
    from thresher.kernels.edits.rewrite import Edits, with_whole_texts
    from thresher.stages.text.columns.late_texts import NO_EDITS, with_edits
    from thresher.stages.text.columns.text_column import text_column

    column = text_column(batch, field)
    unfit = np.flatnonzero(~column.has_text(np.arange(len(batch), dtype=np.int64)))
    if len(unfit):
        batch = set_aside_without_text(batch, unfit.tolist(), field)
        column = text_column(batch, field)
    all_texts = column.texts
    texts = Texts(all_texts.data, all_texts.starts[column.rows], all_texts.ends[column.rows])
    edits: Edits | None = modifier.edits(texts) if has_edits(modifier) else None
    flags: Flags = modifier.may_change(texts) if edits is None else edits.doubtful
    edits = with_whole_texts(edits or NO_EDITS, texts, _new_texts(texts, modifier, flags, field))
    return with_edits(batch, field, texts, edits) if len(edits.found) else batch


def _new_texts(texts: Texts, modifier: DocumentModifier, flags: Flags, field: str) -> dict[int, bytes]:
    """Return the bytes of the changed texts, by row; only one text at a time is a Python string."""
    import numpy as np

    view = texts.data.data
    found = {}
    for row in range(len(texts.starts)) if flags is None else np.flatnonzero(flags).tolist():
        before = str(view[texts.starts[row] : texts.ends[row]], "utf-8", "surrogatepass")
        if flags is None:
            new = _text_of(modifier.modify_document, before, field)
        else:
            new = modifier.modify_flagged(before, int(flags[row]))
        if new != before:
            found[row] = new.encode()
    return found


def _function(modifier: Any) -> Callable[..., Any]:
    function: Any = getattr(modifier, "modify_document", modifier)
    if not callable(function):
        raise UsageError(f"Modify.modifier_fn: {modifier!r} is neither a function of a text nor a DocumentModifier")
    made: Callable[..., Any] = function
    return made
