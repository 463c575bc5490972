# SPDX-License-Identifier: Apache-2.0
"""Stages: what an author declares, and what the framework reads from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from thresher.core.batch import DocumentBatch
from thresher.core.resources import Resources
from thresher.core.stage import (
    CompositeStage,
    FunctionStage,
    ProcessingStage,
    SinkStage,
    SourceStage,
    overrides,
    processing_stage,
    task_types,
)
from thresher.core.task import FileGroupTask, Task
from thresher.errors import UsageError


class Copy(ProcessingStage[FileGroupTask, DocumentBatch]):
    def process(self, task: FileGroupTask) -> DocumentBatch:
        return DocumentBatch([{"path": path} for path in task.data])


class Slow(Copy):
    name = "slow one"
    resources = Resources(cpus=2.0)
    batch_size = 4


def test_a_stage_is_named_after_its_class_unless_it_says_otherwise() -> None:
    assert Copy().name == "Copy"
    assert Slow().name == "slow one"
    assert Copy().resources == Resources(cpus=1.0)
    assert (Copy().batch_size, Copy().max_attempts, Copy().timeout_s, Copy().num_workers()) == (1, 3, None, None)


def test_with_makes_a_changed_copy() -> None:
    stage = Slow()
    changed = stage.with_(name="b", resources=Resources(gpus=0.5), batch_size=9, num_workers=2, timeout_s=3.0)
    assert (changed.name, changed.resources.gpus, changed.batch_size, changed.num_workers(), changed.timeout_s) == (
        "b",
        0.5,
        9,
        2,
        3.0,
    )
    assert (stage.name, stage.batch_size, stage.num_workers()) == ("slow one", 4, None)
    assert changed.with_(num_workers=None).num_workers() is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "batch_size: 0 is not a whole number of 1 or more"),
        ({"max_attempts": True}, "max_attempts: True is not"),
        ({"num_workers": -1}, "num_workers: -1 is not"),
        ({"name": ""}, "name: '' is not a name"),
        ({"resources": 3}, "resources: 3 is not a Resources"),
    ],
)
def test_settings_that_nobody_can_honour_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Copy().with_(**changes)


def test_counts_of_a_stage_are_its_own() -> None:
    stage = Copy()
    stage.count("hits")
    stage.count("hits", 2)
    assert stage.__dict__["_counts"] == {"hits": 3}
    assert "_counts" not in stage.with_(name="other").__dict__


def test_the_default_process_batch_calls_process_for_each() -> None:
    made = Copy().process_batch([FileGroupTask(data=["a"]), FileGroupTask(data=["b", "c"])])
    assert [batch.num_items for batch in made] == [1, 2]


def test_a_stage_without_process_says_what_to_write() -> None:
    class Nothing(ProcessingStage[Task, Task]):
        pass

    class NoParts(CompositeStage[Task, Task]):
        pass

    with pytest.raises(TypeError, match=r"Nothing must define process\(\) or process_batch\(\)"):
        Nothing().process(Task())
    with pytest.raises(TypeError, match=r"NoParts must define decompose\(\)"):
        NoParts().decompose()


def test_a_number_of_workers_as_attribute_is_refused_with_the_way_to_say_it() -> None:
    with pytest.raises(TypeError, match="num_workers must be a method"):
        type("Wrong", (ProcessingStage,), {"num_workers": 3})


def test_task_types_are_read_from_the_declaration() -> None:
    class Reader(SourceStage[DocumentBatch]):
        pass

    class Writer(SinkStage[DocumentBatch, FileGroupTask]):
        pass

    class Untyped(ProcessingStage[Any, Any]):
        pass

    assert task_types(Slow()) == (FileGroupTask, DocumentBatch)
    assert task_types(Reader()) == (Task, DocumentBatch)
    assert task_types(Writer()) == (DocumentBatch, FileGroupTask)
    assert task_types(Untyped()) == (Task, Task)


def test_the_decorator_makes_a_stage_of_a_function() -> None:
    @processing_stage(name="shorten", resources={"cpus": 0.5}, batch_size=2)
    def shorten(task: DocumentBatch) -> DocumentBatch:
        return task.take([0])

    assert isinstance(shorten, FunctionStage)
    assert (shorten.name, shorten.resources.cpus, shorten.batch_size) == ("shorten", 0.5, 2)
    assert task_types(shorten) == (DocumentBatch, DocumentBatch)
    assert len(shorten.process(DocumentBatch([{"a": 1}, {"a": 2}]))) == 1


def test_a_generator_function_is_a_stage_that_fans_out() -> None:
    @processing_stage()
    def pieces(task: DocumentBatch) -> Iterator[DocumentBatch]:
        yield task.take([0])

    assert pieces.name == "pieces"
    assert pieces.fans_out
    assert task_types(pieces) == (DocumentBatch, Task)


def test_what_a_stage_overrides_is_known() -> None:
    assert overrides(Slow(), "process")
    assert not overrides(Slow(), "process_batch")
