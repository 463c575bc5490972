# SPDX-License-Identifier: Apache-2.0
"""What holds for documents holds for records of any type: ids, drops, quarantine, isolation, splitting and resume.

The tests of single promises run serially and in local processes. One story of three runs, which holds most of them,
runs on every executor.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contract.item_records import ItemBatch, ItemChunk, ItemReader, ItemWriter, encode_item
from tests.contract.ray_rows import OWN_WARNINGS, RAY_EXECUTORS, SLOW, end_ray, need_ray
from tests.memory_room import memory_beside_this_process
from thresher import (
    DocumentBatch,
    JsonlWriter,
    LocalExecutor,
    Pipeline,
    ProcessingStage,
    Resources,
    RunResult,
    SerialExecutor,
    WorkerMetadata,
)
from thresher.cli.main import main
from thresher.core.resources import available_cpus, threads_for
from thresher.core.unit import file12, unit_id
from thresher.errors import RunFailedError, ThresherError
from thresher.inspect.retry import RetryOptions, retry_run
from thresher.ledger.folder.find import read_commits
from thresher.records import Piece, ReadContext, SourceStage, Unit

FILES, ITEMS = 3, 20
LOCAL: dict[str, Any] = {
    "serial": SerialExecutor,
    "local": lambda: LocalExecutor(workers=2),
    "local-unfused": lambda: LocalExecutor(workers=2, fusion=False),
}
BATCH_MODES = ("ray-batch", "ray-unfused", "actor-pool-unfused", "ray-data-unfused", "xenna-unfused")
"""Rows that add nothing here: what crosses processes is the same as in `local-unfused`."""


def ray_rows(*, slow: bool = False) -> list[Any]:
    """The executors on Ray, one of each kind; `slow` marks all of them."""
    names = [name for name in RAY_EXECUTORS if name not in BATCH_MODES]
    marks = {name: [OWN_WARNINGS, *([pytest.mark.slow] if slow or name in SLOW else [])] for name in names}
    return [pytest.param(name, marks=marks[name]) for name in names]


@pytest.fixture(params=["serial", "local"])
def executor(request: pytest.FixtureRequest) -> Any:
    return LOCAL[request.param]()


def any_executor(name: str) -> Any:
    if name in LOCAL:
        return LOCAL[name]()
    need_ray(name)
    return RAY_EXECUTORS[name]()


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

    def __init__(self, bad: list[str], crash: bool = False, mended: str = "") -> None:
        """`mended`: a path; once there is something, no item fails."""
        self.bad = bad
        self.crash = crash
        self.mended = mended

    def process(self, task: ItemBatch) -> ItemBatch:
        if self.mended and os.path.exists(self.mended):
            return task
        if {bytes(payload).rstrip(b"\0").decode() for payload in task.payloads} & set(self.bad):
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


class Pixels(ProcessingStage[ItemBatch, ItemBatch]):
    """Makes arrays of the payloads, in one thread."""

    name = "pixels"
    threads = 0

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        assert worker_metadata is not None
        self.threads = worker_metadata.threads

    def process(self, task: ItemBatch) -> ItemBatch:
        assert self.threads == 1
        return ItemBatch(task.columns, [np.frombuffer(payload, dtype=np.uint8) for payload in task.payloads])


class Describe(ProcessingStage[ItemBatch, DocumentBatch]):
    """Makes a document of each item, and tells with how many threads."""

    name = "describe"
    resources = Resources(cpus=2)
    threads = 0

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        assert worker_metadata is not None
        self.threads = worker_metadata.threads

    def process(self, task: ItemBatch) -> DocumentBatch:
        texts = [payload.rstrip(b"\0").decode() for payload in task.payloads]
        return DocumentBatch([{"text": text, "threads": self.threads} for text in texts])


class Words(ProcessingStage[ItemBatch, DocumentBatch]):
    """Makes new documents of the items."""

    name = "words"

    def process(self, task: ItemBatch) -> Iterator[DocumentBatch]:
        yield DocumentBatch([{"text": payload.rstrip(b"\0").decode()} for payload in task.payloads])


class Fails(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Sets documents aside."""

    name = "fails"

    def __init__(self, bad: str = "2.3", mended: str = "") -> None:
        self.bad = bad
        self.mended = mended

    def process(self, task: DocumentBatch) -> DocumentBatch:
        bad = "" if self.mended and os.path.exists(self.mended) else self.bad
        rows = [row for row, text in enumerate(task.values("text")) if text == bad]
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


@pytest.mark.slow
@pytest.mark.parametrize("row", ["local", *ray_rows(slow=True)])
def test_only_the_item_that_crashes_a_worker_is_quarantined(row: str, items: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(any_executor(row), items, out, Picky(["1.4"], crash=True))
    assert written(out) == names("1.4")
    assert [(entry["id"], entry["error"]) for entry in quarantined(out)] == [(item_id(1, 4), "worker-crashed")]


@pytest.mark.parametrize("row", ["serial", "local-unfused", *ray_rows()])
def test_items_go_through_a_failed_run_its_resumption_and_a_retry(row: str, items: str, tmp_path: Path) -> None:
    out, dropped, mended = tmp_path / "out", tmp_path / "dropped", tmp_path / "mended"
    stages = [Small(), Hungry(), Pixels(), Picky(["1.14", "2.19"], mended=str(mended))]
    reader, writer = ItemReader(items, most_items=8), ItemWriter(str(out))
    options = {"dropped_to": str(dropped), "reader": reader, "writer": writer}
    full = tmp_path / "out.full"
    full.write_text(unit_id(f"{FILES - 1}.items", 0))
    with pytest.raises(ThresherError):
        run(SerialExecutor(), items, out, *stages, **options)
    full.unlink()
    resumed = len(read_commits(str(out / "_thresher")))

    result = run(any_executor(row), items, out, *stages, **options)
    assert (result.units_resumed, result.units_total) == (resumed, FILES)
    assert result.drop_reasons == {"small/too-narrow": 10 * FILES}
    narrow = [f"{file}.{number}" for file in range(FILES) for number in range(10)]
    assert written(out) == names(*narrow, "1.14", "2.19")
    lines = [line for path in dropped.glob("*.jsonl") for line in path.read_bytes().splitlines()]
    assert {json.loads(line)["_dropped"]["id"] for line in lines} == {
        item_id(f, n) for f in range(FILES) for n in range(10)
    }
    assert {entry["id"]: entry["message"] for entry in quarantined(out)} == {
        item_id(1, 14): "a broken picture",
        item_id(2, 19): "a broken picture",
    }

    mended.touch()
    pipeline = Pipeline("items", stages=[reader, *stages, writer])
    retried = retry_run(any_executor(row), pipeline, str(out / "_thresher"), RetryOptions(progress="none"))
    assert (retried.tried, retried.left) == (2, 0)
    assert written(out) == names(*narrow)


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
    result = run(executor, items, out, Describe(), Fails("1.4"), writer=JsonlWriter(str(out)))
    assert (result.counts["created"], result.counts["written"]) == (0, ITEMS * FILES - 1)
    assert [entry["id"] for entry in quarantined(out)] == [item_id(1, 4)]
    lines = [json.loads(line) for path in out.glob("*.jsonl") for line in path.read_bytes().splitlines()]
    assert {line["threads"] for line in lines} == {threads_for(2, available_cpus())}


def test_a_failed_run_goes_on_with_the_units_that_are_not_recorded(executor: Any, items: str, tmp_path: Path) -> None:
    """A worker that ends between publishing a file and recording its unit leaves a file that is written again."""
    out = tmp_path / "out"
    full = tmp_path / "out.full"
    full.write_text(unit_id(f"{FILES - 1}.items", 0))
    with pytest.raises(ThresherError):
        run(executor, items, out)
    full.unlink()
    recorded = len(read_commits(str(out / "_thresher")))
    unrecorded = out / f"{FILES - 1}-{unit_id(f'{FILES - 1}.items', 0)}.items"
    unrecorded.write_bytes(b"published by the failed run")
    result = run(executor, items, out)
    assert (result.units_resumed, result.units_total) == (recorded, FILES)
    assert result.counts["written"] == FILES * ITEMS
    assert sorted(map(os.path.basename, result.output_paths)) == sorted(path.name for path in out.glob("*.items"))
    assert written(out) == names()


def test_the_command_retries_items_and_what_was_made_of_them(items: str, tmp_path: Path) -> None:
    out, recipe, mended = tmp_path / "out", tmp_path / "items.yaml", tmp_path / "mended"
    module = "tests.contract.test_item_records"
    stages = [
        {"_target_": "tests.contract.item_records.ItemReader", "folder": items},
        {"_target_": f"{module}.Picky", "bad": ["1.4"], "mended": str(mended)},
        {"_target_": f"{module}.Words"},
        {"_target_": f"{module}.Fails", "mended": str(mended)},
        {"JsonlWriter": {"path": str(out)}},
    ]
    recipe.write_text(json.dumps({"name": "items", "stages": stages}))
    trust = ["--trust", "tests.contract", "--executor", "serial", "--quiet"]
    assert main(["run", str(recipe), *trust, "--max-errors", "100%"]) == 0
    assert {entry["id"] for entry in quarantined(out)} == {item_id(1, 4), f"{item_id(2, 0)}/3"}
    mended.touch()
    assert main(["retry", str(out), "--trust", "tests.contract", "--executor", "serial", "--quiet"]) == 0
    texts = [json.loads(line)["text"] for path in out.glob("*.jsonl") for line in path.read_bytes().splitlines()]
    assert sorted(text.encode() for text in texts) == names()


class Generated(SourceStage[ItemBatch]):
    """Makes items of a megabyte each."""

    name = "generated"

    def list_units(self) -> Iterator[Unit]:
        for number in range(4):
            piece = Piece(f"made-{number}", f"made-{number}", 0)
            yield Unit(unit_id(piece.relative, 0), (number, 0), (piece,), "made")

    def read_piece(self, piece: Piece, context: ReadContext) -> Iterator[ItemBatch]:
        payloads = [np.full(10**6, number, dtype=np.uint8) for number in range(3)]
        for _ in range(100):
            yield ItemBatch({"width": [1, 2, 3]}, payloads)


class Ends(ProcessingStage[ItemBatch, ItemBatch]):
    """Keeps the last byte of each payload."""

    name = "ends"

    def process(self, task: ItemBatch) -> ItemBatch:
        return ItemBatch(task.columns, [payload[-1:].tobytes() for payload in task.payloads])


def test_items_far_beyond_the_memory_stay_within_it_and_are_counted_to_the_byte(tmp_path: Path) -> None:
    end_ray()  # its processes would count as the run's
    memory = memory_beside_this_process(360 * 10**6)
    stages = [Generated(), Ends(), ItemWriter(str(tmp_path / "out"))]
    executor = LocalExecutor(workers=2, memory=memory, fusion=False)
    result = Pipeline("large", stages=stages).run(executor, progress="none")
    assert result.counts["written"] == 1200
    assert result.peak_memory_bytes <= memory
    (ends,) = [stage for stage in result.stages if stage["name"] == "ends"]
    assert 1200 * 10**6 <= ends["in_bytes"] < 1201 * 10**6
    assert ends["out_bytes"] < 10**6


def test_a_writer_of_documents_refuses_items(items: str, tmp_path: Path) -> None:
    class Untyped(ProcessingStage[Any, Any]):
        name = "untyped"

        def process(self, task: Any) -> Any:
            return task

    with pytest.raises(RunFailedError, match="writes DocumentBatch and cannot write an ItemBatch"):
        run(SerialExecutor(), items, tmp_path / "out", Untyped(), writer=JsonlWriter(str(tmp_path / "out")))
