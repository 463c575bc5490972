# SPDX-License-Identifier: Apache-2.0
"""Public names for writing a task type, a reader and a writer of your own; see docs/writing-a-task.md.

Each is loaded when it is first used, so that a pipeline that is only started here loads no numpy.
"""

from __future__ import annotations

TYPE_CHECKING = False  # like `typing.TYPE_CHECKING`, without importing `typing`
if TYPE_CHECKING:
    from typing import Any

    from thresher.core.files.filesystem import open_piece
    from thresher.core.records.record_ids import RecordIds
    from thresher.core.records.record_task import RecordTask
    from thresher.core.source import FileFacts, ReadContext, RecordWriter, SourceItem, failed_record
    from thresher.core.stage import SinkStage, SourceStage
    from thresher.core.task import RawChunk
    from thresher.core.unit import Piece, Unit
    from thresher.stages.io.encoded_writer import EncodedWriter
    from thresher.stages.io.file_units import file_units
    from thresher.stages.io.file_writer import LocalFile

__all__ = [
    "EncodedWriter",
    "FileFacts",
    "LocalFile",
    "Piece",
    "RawChunk",
    "ReadContext",
    "RecordIds",
    "RecordTask",
    "RecordWriter",
    "SinkStage",
    "SourceItem",
    "SourceStage",
    "Unit",
    "failed_record",
    "file_units",
    "open_piece",
]


def __getattr__(name: str) -> Any:
    from thresher.core.registry import RECORD_NAMES, resolve
    from thresher.errors import nearest

    if name not in RECORD_NAMES:
        raise AttributeError(f"module 'thresher.records' has no attribute {name!r}.{nearest(name, RECORD_NAMES)}")
    value = globals()[name] = resolve(RECORD_NAMES[name])
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
