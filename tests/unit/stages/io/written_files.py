# SPDX-License-Identifier: Apache-2.0
"""Records as writers may meet them, batches cut in every way, and the files that come of it."""

from __future__ import annotations

import json
import os
import pickle
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of_lines
from thresher.core.documents.batch import DocumentBatch
from thresher.core.source import FileFacts
from thresher.core.stage import SinkStage

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8"), max_size=5),
)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(st.sampled_from("xyz"), SCALARS, max_size=2))
NAMES = st.sampled_from(["a", "b", "c", "text"])
RECORDS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), max_size=8)


@st.composite
def json_lines(draw: st.DrawFn) -> list[bytes]:
    """Records as lines, spelled in different ways."""
    lines = []
    for record in draw(RECORDS):
        text = json.dumps(
            record,
            ensure_ascii=draw(st.booleans()),
            separators=draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", " : ")])),
        )
        lines.append(text.encode("utf-8"))
    return lines


def cut(lines: Sequence[bytes], cuts: int) -> list[DocumentBatch]:
    """Batches of `lines`; bit k of `cuts` says whether one ends after line k."""
    batches: list[DocumentBatch] = []
    start = 0
    for end in range(1, len(lines) + 1):
        if end == len(lines) or cuts >> end & 1:
            batches.append(batch_of_lines(lines[start:end]))
            start = end
    return batches


def travelled(batch: DocumentBatch) -> DocumentBatch:
    """The same records after a journey to another process."""
    return pickle.loads(pickle.dumps(batch, protocol=5))


def looked_at(batch: DocumentBatch) -> DocumentBatch:
    """The same records after somebody decoded them."""
    batch.to_pyarrow()
    return batch


def picked(batch: DocumentBatch) -> DocumentBatch:
    """The same records, picked one by one."""
    return batch.take(np.arange(len(batch)))


JOURNEYS: list[Callable[[DocumentBatch], DocumentBatch]] = [lambda batch: batch, travelled, looked_at, picked]


def written(sink: SinkStage[Any, Any], batches: Sequence[DocumentBatch]) -> tuple[bytes, FileFacts]:
    """The bytes that a writer makes of batches, and what it says of them."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "file" + sink.extension())
        writer = sink.open_writer(path)
        for batch in batches:
            writer.write(batch)
        facts = writer.close()
        return _content(folder, path), facts


def joined(sink: SinkStage[Any, Any], parts: Sequence[Sequence[DocumentBatch]]) -> tuple[bytes, FileFacts]:
    """The bytes that a writer makes of parts."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, batches in enumerate(parts):
            part = sink.open_writer(os.path.join(folder, f"part-{number}"))
            for batch in batches:
                part.write(batch)
            if sink.settles_schema:
                part.settle("")
            if part.close().records:
                paths.append(os.path.join(folder, f"part-{number}"))
        path = os.path.join(folder, "file" + sink.extension())
        facts = sink.join_parts(paths, path)
        for part_path in paths:
            os.unlink(part_path)
        return _content(folder, path), facts


def _content(folder: str, path: str) -> bytes:
    """What is in the one file that a folder holds; nothing where there is none."""
    names = os.listdir(folder)
    assert names in ([], [os.path.basename(path)]), f"a writer left something behind: {names}"
    if not names:
        return b""
    with open(path, "rb") as file:
        return file.read()
