# SPDX-License-Identifier: Apache-2.0
"""Thresher turns raw data into training data. These are its public names; each is loaded when it is first used."""

from __future__ import annotations

from thresher.version import __version__

TYPE_CHECKING = False  # as in `typing`, whose import would be half the time that importing this package takes
if TYPE_CHECKING:
    from typing import Any

    from thresher.backends.local import LocalExecutor
    from thresher.backends.serial import SerialExecutor
    from thresher.core.batch import DocumentBatch
    from thresher.core.pipeline import Pipeline
    from thresher.core.recipe import load_recipe
    from thresher.core.resources import NodeInfo, Resources, WorkerMetadata
    from thresher.core.result import RunResult
    from thresher.core.stage import CompositeStage, ProcessingStage, processing_stage
    from thresher.core.task import EmptyTask, FileGroupTask, Task
    from thresher.errors import ThresherError
    from thresher.stages.io.jsonl_reader import JsonlReader
    from thresher.stages.io.jsonl_writer import JsonlWriter
    from thresher.stages.io.parquet_reader import ParquetReader
    from thresher.stages.io.parquet_writer import ParquetWriter
    from thresher.stages.text.add_id import AddId
    from thresher.stages.text.document_filter import DocumentFilter
    from thresher.stages.text.document_modifier import DocumentModifier
    from thresher.stages.text.modifiers.newline_normalizer import NewlineNormalizer
    from thresher.stages.text.modify import Modify
    from thresher.stages.text.rules.mean_word_length import MeanWordLengthFilter
    from thresher.stages.text.rules.non_alpha_numeric import NonAlphaNumericFilter
    from thresher.stages.text.rules.repeated_lines import RepeatedLinesFilter
    from thresher.stages.text.rules.urls import UrlsFilter
    from thresher.stages.text.rules.word_count import WordCountFilter
    from thresher.stages.text.score_filter import Filter, Score, ScoreFilter

__all__ = [
    "AddId",
    "CompositeStage",
    "DocumentBatch",
    "DocumentFilter",
    "DocumentModifier",
    "EmptyTask",
    "FileGroupTask",
    "Filter",
    "JsonlReader",
    "JsonlWriter",
    "LocalExecutor",
    "MeanWordLengthFilter",
    "Modify",
    "NewlineNormalizer",
    "NodeInfo",
    "NonAlphaNumericFilter",
    "ParquetReader",
    "ParquetWriter",
    "Pipeline",
    "ProcessingStage",
    "RepeatedLinesFilter",
    "Resources",
    "RunResult",
    "Score",
    "ScoreFilter",
    "SerialExecutor",
    "Task",
    "ThresherError",
    "UrlsFilter",
    "WordCountFilter",
    "WorkerMetadata",
    "__version__",
    "load_recipe",
    "processing_stage",
]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module 'thresher' has no attribute {name!r}")
    from thresher.core.registry import PUBLIC_NAMES, resolve
    from thresher.errors import nearest

    if name not in PUBLIC_NAMES:
        raise AttributeError(f"module 'thresher' has no attribute {name!r}.{nearest(name, PUBLIC_NAMES)}")
    value = globals()[name] = resolve(PUBLIC_NAMES[name])
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
