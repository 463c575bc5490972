# SPDX-License-Identifier: Apache-2.0
"""A writer may make several files of a unit; they are committed, removed and made again together."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.injected.several_files import WRITERS, Folders, PairFiles, Pairs, digest, written
from tests.unit.core.json_batches import batch_of_lines
from tests.unit.ledger.runs import files_below, lines_of, request, tally_of, units
from thresher.core.source import FileFacts
from thresher.core.tally import Tally
from thresher.core.unit import Unit
from thresher.errors import RunFailedError, UsageError
from thresher.ledger.folder.find import read_commits, read_manifest
from thresher.ledger.folder.open_run import OpenRun
from thresher.ledger.folder.opening import open_run
from thresher.ledger.records import CommitRecord
from thresher.ledger.stores.store import LocalStore, open_store
from thresher.ledger.unit_output import UnitOutput

UNIT = units(1)[0]


class Place:
    """An output folder, local or in a bucket."""

    def __init__(self, root: str, options: dict[str, Any]) -> None:
        self.root, self.options = root, options
        self.store = open_store(root, options)

    def request(self, sink: Any, **changes: Any) -> Any:
        return request(
            self.root, storage_options=self.options, extension=sink.extension(), suffixes=sink.suffixes(), **changes
        )

    def files(self) -> dict[str, bytes]:
        """Every file but those of run folders."""
        found = {name: self.store.read(name) or b"" for name in self.store.sizes()}
        return {name: data for name, data in found.items() if not name.startswith("_thresher")}


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Place(str(tmp_path / "out"), {})
    bucket, options = request.getfixturevalue("bucket"), request.getfixturevalue("s3_options")
    return Place(f"s3://{bucket}/out", options)


@pytest.fixture(params=list(WRITERS))
def sink(request: pytest.FixtureRequest) -> Any:
    return WRITERS[request.param]("unused")


def commit(run: OpenRun, sink: Any, unit: Unit, lines: list[bytes] | None = None, epoch: int = 0) -> CommitRecord:
    output = UnitOutput(run.target, sink, unit, epoch)
    lines = lines_of(unit) if lines is None else lines
    output.write(batch_of_lines(lines))
    return output.commit(tally_of(unit))


def whole_run(asked: Any, sink: Any, count: int = 5) -> OpenRun:
    run = open_run(asked)
    run.redo_missing()
    run.record_units(units(count), last=True)
    run.before_first_commit()
    for unit in units(count):
        if unit.id not in run.committed:
            run.fold(unit.id, commit(run, sink, unit))
    run.finish("finished", 0)
    return run


def all_lines(count: int = 5) -> list[bytes]:
    return sorted(line for unit in units(count) for line in lines_of(unit))


def test_files_of_a_unit_are_named_after_it_and_listed_with_their_facts(place: Place, sink: Any):
    run = whole_run(place.request(sink), sink)

    files = place.files()
    assert written(files) == all_lines()
    base = f"a-{UNIT.id}"
    ends = (
        (".data", ".index") if isinstance(sink, Pairs) and not isinstance(sink, Folders) else ("/0/0.txt", "/1/1.txt")
    )
    assert sorted(name for name in files if name.startswith(base)) == [base + end for end in ends]
    manifest = read_manifest(run.run_dir, place.options)
    assert {line.path: (line.bytes, line.sha256) for line in manifest} == {
        name: (len(content), digest(content)) for name, content in files.items()
    }
    assert sum(line.records for line in manifest) == len(all_lines())
    (first, *_) = read_commits(run.run_dir, place.options)
    assert sum(file.records for file in first.outputs) == first.written


def test_nothing_is_visible_before_the_commit_and_nothing_unfinished_is_left_after_it(tmp_path: Path, sink: Any):
    run = open_run(Place(str(tmp_path / "out"), {}).request(sink))
    output = UnitOutput(run.target, sink, UNIT, 0)
    output.write(batch_of_lines(lines_of(UNIT)))
    assert sorted(os.listdir(tmp_path / "out")) == ["_thresher"]

    output.commit(tally_of(UNIT))

    assert os.listdir(run.target.tmp) == []
    aborted = UnitOutput(run.target, sink, units(2)[1], 0)
    aborted.write(batch_of_lines(lines_of(UNIT)))
    aborted.abort()
    assert os.listdir(run.target.tmp) == []
    assert written(files_below(tmp_path / "out")) == sorted(lines_of(UNIT))
    run.abandon(1)


class Killed(BaseException):
    """The process ends here."""


def kill_after(monkeypatch: pytest.MonkeyPatch, store: Any, puts: int) -> Callable[[], None]:
    """Let so many files of a unit be published, and then nothing more happen."""
    put = store.put
    left = [puts]

    def limited(self: Any, *args: Any) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        put(self, *args)

    monkeypatch.setattr(store, "put", limited)
    return lambda: monkeypatch.setattr(store, "put", put)


@pytest.mark.parametrize("puts", [0, 1, 2])
def test_a_unit_that_was_published_in_part_is_made_again(
    place: Place, sink: Any, puts: int, monkeypatch: pytest.MonkeyPatch
):
    run = open_run(place.request(sink))
    run.record_units(units(5), last=True)
    run.before_first_commit()
    revive = kill_after(monkeypatch, type(place.store), puts)
    with pytest.raises(Killed):
        [commit(run, sink, unit) for unit in units(5)[1::-1]]  # one of three records, then one of two
    revive()
    assert run._folder is not None
    run._folder.lock.release()

    done = whole_run(place.request(sink), sink)
    assert written(place.files()) == all_lines()
    assert {line.path for line in read_manifest(done.run_dir, place.options)} == set(place.files())


def test_files_that_a_crashed_try_left_and_the_next_one_does_not_make_are_removed(place: Place, sink: Any):
    run = open_run(place.request(sink))
    run.record_units(units(1), last=True)
    commit(run, sink, UNIT, [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}'])
    inbox = open_store(f"{run.run_dir}/ledger/inbox", place.options)
    inbox.remove(f"{UNIT.id}.json")  # as if the worker had ended before it recorded the unit
    commit(run, sink, UNIT, [b'{"n": 4}'], epoch=1)
    assert written(place.files()) == [b'{"n": 4}']
    inbox.remove(f"{UNIT.id}.json")
    commit(run, sink, UNIT, [], epoch=2)
    run.fold(UNIT.id)
    run.finish("finished", 0)

    assert place.files() == {}
    assert place.store.names() == ["_thresher/"]


def test_a_unit_of_which_one_file_is_missing_is_made_again(place: Place, sink: Any):
    first = whole_run(place.request(sink), sink)
    before = place.files()
    gone = sorted(before)[1]
    place.store.remove(gone)

    again = whole_run(place.request(sink), sink)

    assert place.files() == before
    assert again.warnings[0].startswith(f"output files are missing: {gone}; ")
    attempts = {record.attempt for record in read_commits(first.run_dir, place.options)}
    assert attempts == {1, 2}


def test_a_fresh_run_removes_all_files_of_the_old_one(place: Place, sink: Any):
    whole_run(place.request(sink), sink)
    unrecorded = open_run(place.request(sink, fresh=True))
    unrecorded.record_units(units(5), last=True)
    unrecorded.before_first_commit()
    commit(unrecorded, sink, units(5)[4])
    open_store(f"{unrecorded.run_dir}/ledger/inbox", place.options).remove(f"{units(5)[4].id}.json")
    unrecorded.abandon(1)

    whole_run(place.request(sink, fresh=True), sink, count=1)

    assert written(place.files()) == sorted(lines_of(UNIT))
    assert len([name for name in place.store.names() if not name.startswith("_")]) == len(sink.suffixes())


def test_an_appended_run_leaves_the_files_of_the_first_alone(place: Place, sink: Any):
    whole_run(place.request(sink), sink)
    before = place.files()
    appended = place.request(sink, mode="append", fingerprint={"version": "2"})
    whole_run(appended, sink)
    whole_run(place.request(sink, mode="append", fingerprint={"version": "2"}, fresh=True), sink)

    after = place.files()
    assert before.items() <= after.items()
    assert written(after) == sorted(all_lines() * 2)


def test_an_overwriting_run_replaces_them(place: Place, sink: Any):
    whole_run(place.request(sink, ledger=False), sink)
    whole_run(place.request(sink, mode="overwrite", fingerprint={"version": "2"}), sink, count=1)

    assert written(place.files()) == sorted(lines_of(UNIT))


def test_a_commit_never_removes_a_whole_folder(place: Place, sink: Any, monkeypatch: pytest.MonkeyPatch):
    run = open_run(place.request(sink))
    commit(run, sink, UNIT)
    open_store(f"{run.run_dir}/ledger/inbox", place.options).remove(f"{UNIT.id}.json")

    def refused(path: str, *_: Any, **__: Any) -> None:
        raise AssertionError(f"a commit removes {path!r} with all that is in it")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", refused)
        commit(run, sink, UNIT, [], epoch=1)  # nothing is written or quarantined, and an earlier try left files
    assert place.files() == {}
    run.abandon(1)


def test_a_folder_is_synced_before_the_unit_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sink = Folders("unused")
    run = open_run(Place(str(tmp_path / "out"), {}).request(sink))
    happened: list[str] = []
    sync, create = LocalStore.sync, LocalStore.create
    monkeypatch.setattr(LocalStore, "sync", lambda self, folder="": (happened.append(folder), sync(self, folder))[1])
    monkeypatch.setattr(
        LocalStore, "create", lambda self, name, data: (happened.append("record"), create(self, name, data))[1]
    )
    commit(run, sink, UNIT)
    run.abandon(1)

    folders = [f"a-{UNIT.id}", f"a-{UNIT.id}/0", f"a-{UNIT.id}/1"]
    assert sorted(happened[: happened.index("record")]) == folders


class Lying(PairFiles):
    """Says what is not so."""

    told: list[FileFacts]

    def close(self) -> list[FileFacts]:
        super().close()
        return self.told


@pytest.mark.parametrize(
    ("suffixes", "records", "said"),
    [
        ([".data", ".tar"], [2, 0], r"'\.tar' is not one of the suffixes"),
        ([".data", ".data"], [1, 1], r"'\.data' twice"),
        ([".data", ".index"], [2, 2], "was given 2 records, and its files hold 4"),
        ([".data", ".index"], [0, 0], "was given 2 records, and its files hold 0"),
    ],
)
def test_a_writer_that_contradicts_itself_commits_nothing(
    tmp_path: Path, suffixes: list[str], records: list[int], said: str
):
    sink = Pairs("unused")
    sink.open_writer = Lying  # type: ignore[method-assign, assignment]  # the same arguments
    Lying.told = [FileFacts(1, n, "0", suffix=suffix) for suffix, n in zip(suffixes, records, strict=True)]
    run = open_run(Place(str(tmp_path / "out"), {}).request(sink))
    output = UnitOutput(run.target, sink, UNIT, 0)
    output.write(batch_of_lines([b"{}", b"{}"]))

    with pytest.raises(RunFailedError, match=f"pairs.*{said}"):
        output.commit(Tally(read=2, written=2))
    output.abort()
    assert os.listdir(tmp_path / "out") == ["_thresher"]
    assert os.listdir(run.target.tmp) == []
    run.abandon(1)


def test_a_name_that_leads_out_of_the_folder_of_the_unit_is_refused(tmp_path: Path):
    sink = Folders("unused")
    sink.open_writer = Lying  # type: ignore[method-assign, assignment]  # the same arguments
    Lying.told = [FileFacts(1, 1, "0", suffix="/../other.txt")]
    run = open_run(Place(str(tmp_path / "out"), {}).request(sink))
    output = UnitOutput(run.target, sink, UNIT, 0)
    output.write(batch_of_lines([b"{}"]))
    with pytest.raises(RunFailedError, match=r"'/\.\./other\.txt'"):
        output.commit(Tally(read=1, written=1))
    output.abort()
    run.abandon(1)


def test_several_files_cannot_be_joined(tmp_path: Path):
    with pytest.raises(UsageError, match="several files"):
        open_run(Place(str(tmp_path / "out"), {}).request(Pairs("unused"), target_file_size=1000))
    assert not (tmp_path / "out").exists()
