# SPDX-License-Identifier: Apache-2.0
"""What holds for documents holds for records of any type: ids, drops, quarantine, isolation, splitting and resume."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.item_records import ItemBatch, ItemChunk, ItemReader, ItemWriter, encode_item
from thresher import DocumentBatch, JsonlWriter, LocalExecutor, Pipeline, ProcessingStage, RunResult, SerialExecutor
from thresher.core.unit import file12, unit_id
from thresher.errors import RunFailedError, ThresherError
from thresher.inspect.retry_source import batch_of
from thresher.ledger.quarantine import QuarantineEntry

FILES, ITEMS = 3, 20


@pytest.fixture(params=["serial", "local"])
def executor(request: pytest.FixtureRequest) -> Any:
    return SerialExecutor() if request.param == "serial" else LocalExecutor(workers=2)


@pytest.fixture
def items(tmp_path: Path) -> str:
    """A folder of files with items whose payloads are `<file>.<item>` and as many zero bytes as their number."""
    folder = tmp_path / "in"
    folder.mkdir()
    for file in range(FILES):
        whole = [encode_item({"width": 10 * n}, b"%d.%d" % (file, n) + bytes(n)) for n in range(ITEMS)]
        (folder / f"{file}.items").write_bytes(b"".join(whole))
    return str(folder)


def item_id(file: int, number: int) -> str:
    """The id of an item: the place of its first byte in its file."""
    before = [encode_item({"width": 10 * n}, b"%d.%d" % (file, n) + bytes(n)) for n in range(number)]
    return f"{file12(f'{file}.items')}:{len(b''.join(before))}"


class Small(ProcessingStage[ItemBatch, ItemBatch]):
    """Drops items that are narrower than 100."""

    name = "small"

    def process(self, task: ItemBatch) -> ItemBatch:
        widths = task.columns["width"]
        rows = [row for row, width in enumerate(widths) if width < 100]
        return task.drop(rows, "too-narrow", [widths[row] for row in rows], 100)


class Cut(ProcessingStage[ItemBatch, ItemBatch]):
    """Returns other objects for the same items, without saying which is which."""

    name = "cut"

    def process(self, task: ItemBatch) -> ItemBatch:
        return ItemBatch(task.columns, [payload.rstrip(b"\0") for payload in task.payloads])


class Picky(ProcessingStage[ItemBatch, ItemBatch]):
    """Fails on some items."""

    name = "picky"
    max_attempts = 1

    def __init__(self, bad: list[str], crash: bool = False) -> None:
        self.bad = bad
        self.crash = crash

    def process(self, task: ItemBatch) -> ItemBatch:
        if {payload.rstrip(b"\0").decode() for payload in task.payloads} & set(self.bad):
            if self.crash:
                os.abort()
            raise ValueError("a broken picture")
        return task


class Hungry(ProcessingStage[ItemBatch, ItemBatch]):
    """Has memory for 3 items at a time."""

    name = "hungry"

    def process(self, task: ItemBatch) -> ItemBatch:
        if len(task) > 3:
            raise MemoryError
        return task


class Tiles(ProcessingStage[ItemBatch, ItemBatch]):
    """Makes three items of every call."""

    name = "tiles"

    def process(self, task: ItemBatch) -> Iterator[ItemBatch]:
        yield ItemBatch({"width": [1, 2, 3]}, [b"a", b"b", b"c"])


class Describe(ProcessingStage[ItemBatch, DocumentBatch]):
    """Makes a document of each item."""

    name = "describe"

    def process(self, task: ItemBatch) -> DocumentBatch:
        return DocumentBatch([{"text": payload.rstrip(b"\0").decode()} for payload in task.payloads])


class Fails(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Sets documents aside."""

    name = "fails"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        rows = [row for row, text in enumerate(task.values("text")) if text == "1.4"]
        return task.set_aside(rows, "broken", ["a broken text"] * len(rows))


def run(executor: Any, folder: str, out: Path, *stages: Any, **options: Any) -> RunResult:
    reader, writer = options.pop("reader", ItemReader(folder)), options.pop("writer", ItemWriter(str(out)))
    pipeline = Pipeline("items", stages=[reader, *stages, writer])
    result: RunResult = pipeline.run(executor, progress="none", max_errors="100%", **options)
    counts = result.counts
    gone = counts["written"] + counts["dropped"] + counts["quarantined"] + counts["merged"]
    assert counts["read"] + counts["created"] == gone
    return result


def written(out: Path) -> list[bytes]:
    """The payloads in all output files, in order, without the zero bytes."""
    found = []
    for path in sorted(out.glob("*.items")):
        found += [payload for _, _, payload in ItemChunk(path.read_bytes(), 0, ("", "")).items()]
    return sorted(payload.rstrip(b"\0") for payload in found)


def quarantined(out: Path) -> list[dict[str, Any]]:
    lines = [line for path in out.glob("_thresher/quarantine/*.jsonl") for line in path.read_text().splitlines()]
    return sorted((json.loads(line) for line in lines), key=lambda entry: str(entry["id"]))


def names(*leave_out: str) -> list[bytes]:
    every = [f"{file}.{number}" for file in range(FILES) for number in range(ITEMS)]
    return sorted(name.encode() for name in every if name not in leave_out)


def test_dropped_items_are_counted_by_rule_and_kept_with_their_ids(executor: Any, items: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(executor, items, out, Cut(), Small(), dropped_to=str(tmp_path / "dropped"))
    assert result.drop_reasons == {"small/too-narrow": 10 * FILES}
    assert (result.counts["written"], len(written(out))) == (10 * FILES, 10 * FILES)
    kept = [
        json.loads(line) for path in (tmp_path / "dropped").glob("*.jsonl") for line in path.read_bytes().splitlines()
    ]
    assert {entry["_dropped"]["id"] for entry in kept} == {item_id(f, n) for f in range(FILES) for n in range(10)}
    assert {(entry["_dropped"]["rule"], entry["_dropped"]["threshold"]) for entry in kept} == {("too-narrow", 100)}


def test_only_the_items_that_fail_are_quarantined(executor: Any, items: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(executor, items, out, Cut(), Picky(["1.4", "2.19"]))
    assert written(out) == names("1.4", "2.19")
    entries = quarantined(out)
    assert {entry["id"] for entry in entries} == {item_id(1, 4), item_id(2, 19)}
    assert {entry["message"] for entry in entries} == {"a broken picture"}
    again = batch_of(ItemReader(items), [QuarantineEntry(entries[0]["id"], record=entries[0]["record"])])
    assert isinstance(again, ItemBatch)
    assert again.payloads[0] in (b"1.4", b"2.19")


@pytest.mark.slow
def test_only_the_item_that_crashes_a_worker_is_quarantined(items: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(LocalExecutor(workers=1), items, out, Picky(["1.4"], crash=True))
    assert written(out) == names("1.4")
    assert [(entry["id"], entry["error"]) for entry in quarantined(out)] == [(item_id(1, 4), "worker-crashed")]


def test_items_are_split_where_memory_runs_out(executor: Any, items: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(executor, items, out, Hungry(), reader=ItemReader(items, most_items=8))
    assert written(out) == names()
    assert result.counts["quarantined"] == 0


def test_new_items_are_children_of_the_given_ones(executor: Any, items: str, tmp_path: Path) -> None:
    result = run(executor, items, tmp_path / "out", Tiles(), Picky(["b"]))
    assert (result.counts["created"], result.counts["merged"]) == (3 * FILES, ITEMS * FILES)
    assert {entry["id"] for entry in quarantined(tmp_path / "out")} == {f"{item_id(f, 0)}/1" for f in range(FILES)}


def test_documents_that_are_made_of_items_have_their_ids(executor: Any, items: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(executor, items, out, Describe(), Fails(), writer=JsonlWriter(str(out)))
    assert (result.counts["created"], result.counts["written"]) == (0, ITEMS * FILES - 1)
    assert [entry["id"] for entry in quarantined(out)] == [item_id(1, 4)]


def test_a_run_goes_on_with_the_units_that_are_left(executor: Any, items: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    full = tmp_path / "out.full"
    full.write_text(unit_id(f"{FILES - 1}.items", 0))
    with pytest.raises(ThresherError):
        run(executor, items, out)
    full.unlink()
    done = len(list(out.glob("*.items")))
    result = run(executor, items, out)
    assert (result.units_resumed, result.units_total) == (done, FILES)
    assert done > 0
    assert written(out) == names()


def test_a_writer_of_documents_refuses_items(items: str, tmp_path: Path) -> None:
    class Untyped(ProcessingStage[Any, Any]):
        name = "untyped"

        def process(self, task: Any) -> Any:
            return task

    with pytest.raises(RunFailedError, match="writes DocumentBatch and cannot write an ItemBatch"):
        run(SerialExecutor(), items, tmp_path / "out", Untyped(), writer=JsonlWriter(str(tmp_path / "out")))
