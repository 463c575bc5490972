# SPDX-License-Identifier: Apache-2.0
"""Tasks that reach a stage or a writer which cannot take them are refused before a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import pytest

from tests.contract.item_records import ItemBatch, ItemReader, ItemWriter
from thresher import DocumentBatch, JsonlWriter, Pipeline, ProcessingStage, RecordTask, Task, processing_stage
from thresher.core.planning.checks import check_initial_tasks
from thresher.core.planning.plan import make_plan
from thresher.core.planning.task_types import declared_types
from thresher.errors import PlanError, UsageError

Same = TypeVar("Same", bound=RecordTask)
Taken = TypeVar("Taken", bound=Task)


class Passing(ProcessingStage[Same, Same]):
    """Gives what it takes."""


class Counting(Passing[Same], Generic[Same]):
    """Gives what it takes, by inheritance."""


class Items(Counting[ItemBatch]):
    """Takes items and gives them."""


class Either(ProcessingStage[ItemBatch, ItemBatch | DocumentBatch | None]):
    """May give documents."""


class Described(ProcessingStage[Taken, DocumentBatch], Generic[Taken]):
    """Gives documents."""


class OfItems(Described[ItemBatch]):
    """Makes documents of items."""


@processing_stage()
def several(task: ItemBatch) -> Iterator[ItemBatch]:
    yield task


@processing_stage()
def untyped(task: Any) -> Any:
    return task


class Needs(ProcessingStage[Any, Any]):
    """Needs an attribute and a column."""

    def __init__(self, attributes: list[str], columns: list[str]) -> None:
        self.attributes = attributes
        self.columns = columns

    def inputs(self) -> tuple[list[str], list[str]]:
        return self.attributes, self.columns


class Sets(ProcessingStage[ItemBatch, ItemBatch]):
    """Sets an attribute."""

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["pixels"], ["height"]


def plan(*stages: Any) -> list[str]:
    """Plan a pipeline and return the names of its stages."""
    return [stage.name for stage in make_plan(Pipeline("types", stages=[ItemReader("in"), *stages])).stages]


@pytest.mark.parametrize(
    ("stage", "taken", "given"),
    [
        (Items(), (ItemBatch,), (ItemBatch,)),
        (Either(), (ItemBatch,), (ItemBatch, DocumentBatch)),
        (OfItems(), (ItemBatch,), (DocumentBatch,)),
        (several, (ItemBatch,), (ItemBatch,)),
        (untyped, (Task,), (Task,)),
        (ItemReader("in"), (Task,), (ItemBatch,)),
        (Passing(), (RecordTask,), (RecordTask,)),
    ],
)
def test_declared_types_are_found_through_base_classes_unions_and_iterators(stage: Any, taken: Any, given: Any) -> None:
    found = declared_types(stage)
    assert (found.taken, found.given) == (taken, given)


@pytest.mark.parametrize("between", [[], [Passing()], [Counting(), several], [Items()], [Either()]])
def test_a_writer_that_cannot_write_what_reaches_it_is_refused(between: list[Any]) -> None:
    with pytest.raises(PlanError, match=r"JsonlWriter takes a DocumentBatch, but .* before it gives an ItemBatch"):
        plan(*between, JsonlWriter("out"))


@pytest.mark.parametrize("between", [[], [Passing(), Items()], [untyped], [several]])
def test_a_writer_that_can_write_it_is_accepted(between: list[Any]) -> None:
    assert plan(*between, ItemWriter("out"))[-1] == ItemWriter.name
    assert plan(*between, OfItems(), JsonlWriter("out"))[-1] == JsonlWriter.name


def test_attributes_are_checked_for_every_type_of_task() -> None:
    plan(Needs(["columns", "payloads", "ids"], []), ItemWriter("out"))
    plan(Sets(), Needs(["pixels"], []), ItemWriter("out"))
    plan(untyped, Needs(["pixels"], []), ItemWriter("out"))
    with pytest.raises(PlanError, match="Needs needs the attribute 'pixels', which an ItemBatch does not have"):
        plan(Needs(["pixels"], []), ItemWriter("out"))


def test_columns_are_checked_for_every_type_of_task_until_the_type_changes() -> None:
    plan(Needs([], ["width"]), Sets(), Needs([], ["height"]), ItemWriter("out"))
    plan(OfItems(), Needs([], ["text"]), JsonlWriter("out"))
    with pytest.raises(PlanError, match="Needs needs the column 'height', which no stage before it provides"):
        plan(Needs([], ["height"]), ItemWriter("out"))


def test_initial_tasks_are_checked_for_columns_and_attributes() -> None:
    tasks = [ItemBatch({"width": [1]}, [b""])]
    check_initial_tasks(Needs(["payloads"], ["width"]), tasks)
    for needs, missing in ((Needs(["pixels"], []), "pixels"), (Needs([], ["height"]), "height")):
        with pytest.raises(UsageError, match=f"is an ItemBatch without '{missing}', which Needs needs"):
            check_initial_tasks(needs, tasks)
