# SPDX-License-Identifier: Apache-2.0
"""Stages: what an author declares, and what the framework reads from it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from thresher.core.documents.batch import DocumentBatch
from thresher.core.function_stage import FunctionStage, processing_stage
from thresher.core.planning.task_types import task_types
from thresher.core.resources import Resources
from thresher.core.stage import (
    CompositeStage,
    ProcessingStage,
    SinkStage,
    SourceStage,
    overrides,
)
from thresher.core.tally import context_of
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


class Computed(Copy):
    """Computes its settings."""

    @property
    def name(self) -> str:  # type: ignore[override]  # what the test is about
        return "computed"

    @property
    def batch_size(self) -> int:  # type: ignore[override]  # what the test is about
        return 3

    def num_workers(self) -> int | None:
        return 2


class Inherits(Computed):
    pass


@dataclass(frozen=True)
class Frozen(Copy):
    size: int = 1


@pytest.mark.parametrize("kind", [Computed, Inherits])
def test_what_with_sets_wins_over_methods_and_properties_of_the_class(kind: type[Computed]) -> None:
    stage = kind()
    assert (stage.name, stage.batch_size, stage.num_workers()) == ("computed", 3, 2)
    changed = stage.with_(name="mine", batch_size=5, num_workers=4)
    assert (changed.name, changed.batch_size, changed.num_workers()) == ("mine", 5, 4)
    assert stage.with_(num_workers=None).num_workers() is None
    assert changed.with_(timeout_s=1.0).name == "mine"
    loaded = pickle.loads(pickle.dumps(changed))
    assert (loaded.name, loaded.batch_size, loaded.num_workers()) == ("mine", 5, 4)


def test_a_method_of_a_mixin_yields_to_with_too() -> None:
    class Two:
        def num_workers(self) -> int:
            return 2

    mixed = type("Mixed", (Two, Copy), {})()
    assert (mixed.num_workers(), mixed.with_(num_workers=4).num_workers()) == (2, 4)


def test_a_frozen_dataclass_can_be_changed_by_with() -> None:
    assert Frozen(7).with_(name="frozen one").name == "frozen one"


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
    assert context_of(stage).noted.counts == {"hits": 3}
    assert not context_of(stage.with_(name="other")).noted.counts


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
    with pytest.raises(TypeError, match="num_workers must be a method"):
        type("Wrong", (ProcessingStage,), {"num_workers": property(lambda self: 3)})


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


def test_a_function_that_cannot_take_one_task_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match=r"two\(a: .*, b: .*\) .*cannot be called with one argument, the task"):

        @processing_stage(name="two")
        def two(a: Any, b: Any) -> Any:
            return a

    with pytest.raises(UsageError, match=r"none\(\) .*cannot be called with one argument"):

        @processing_stage()  # type: ignore[arg-type]  # what the test is about
        def none() -> Any:
            return None

    with pytest.raises(UsageError, match="later is asynchronous"):

        @processing_stage()
        async def later(task: Any) -> Any:
            return task

    with pytest.raises(UsageError, match="3 is not a function"):
        processing_stage()(3)  # type: ignore[arg-type]  # what the test is about
    assert processing_stage()(len).name == "len"

    @processing_stage()
    def more(task: Any, times: int = 2, **others: Any) -> Any:
        return task

    assert more.name == "more"


def test_methods_that_cannot_take_what_they_are_given_are_refused() -> None:
    class Wrong(Copy):
        def process(self, task: FileGroupTask, size: int) -> DocumentBatch:  # type: ignore[override]  # as users do
            return DocumentBatch([])

    class WrongBatch(Copy):
        def process_batch(self) -> list[Any]:  # type: ignore[override]  # as users do
            return []

    with pytest.raises(UsageError, match=r"Wrong\.process\(.*\) .*cannot be called with one argument, the task"):
        Wrong().with_(name="wrong")
    with pytest.raises(UsageError, match=r"WrongBatch\.process_batch\(\) .*the list of tasks"):
        WrongBatch().with_(name="wrong")


def test_a_generator_function_is_a_stage_that_fans_out() -> None:
    @processing_stage()
    def pieces(task: DocumentBatch) -> Iterator[DocumentBatch]:
        yield task.take([0])

    assert pieces.name == "pieces"
    assert pieces.fans_out
    assert task_types(pieces) == (DocumentBatch, DocumentBatch)


def test_what_a_stage_overrides_is_known() -> None:
    assert overrides(Slow(), "process")
    assert not overrides(Slow(), "process_batch")
