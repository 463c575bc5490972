# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thresher.ledger.records import INBOX, CommitRecord, Journal, encode, read_commits
from thresher.ledger.stores.store import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    made = LocalStore(str(tmp_path))
    made.make_folder(INBOX)
    return made


def record(unit: str, attempt: int = 1) -> CommitRecord:
    return CommitRecord(unit, attempt)


def put(store: LocalStore, unit: str, attempt: int = 1) -> None:
    store.create(f"{INBOX}/{unit}.json", encode(record(unit, attempt)))


def test_the_inbox_is_cleared_only_after_the_ledger_is_on_disk(store: LocalStore):
    journal = Journal(store, [])
    put(store, "u")
    journal.add_from_inbox("u")
    assert read_commits(store) == {}
    assert store.names(INBOX) == ["u.json"]

    journal.sync()

    assert read_commits(store) == {"u": record("u")}
    assert store.names(INBOX) == []
    journal.close()


def test_what_was_left_in_the_inbox_is_gathered(store: LocalStore):
    put(store, "u")
    put(store, "v")
    journal = Journal(store, [])
    journal.recover()

    assert sorted(journal.committed) == ["u", "v"]
    assert sorted(read_commits(store)) == ["u", "v"]
    journal.close()


def test_the_first_record_of_a_unit_counts_and_is_there_once(store: LocalStore):
    journal = Journal(store, [])
    journal.add(record("u", 1))
    assert journal.add(record("u", 2)) == record("u", 1)
    journal.sync()
    put(store, "u", 3)  # a worker that was believed dead
    journal.close()

    again = Journal(store, [])
    again.recover()
    assert again.committed == {"u": record("u", 1)}
    assert store.names(INBOX) == []
    assert [name for name in store.names("ledger") if name.endswith(".jsonl")] == ["000001.jsonl"]
    again.close()


def test_every_attempt_writes_a_file_of_its_own(store: LocalStore):
    for unit in "abc":
        journal = Journal(store, [])
        journal.add(record(unit))
        journal.sync()
        journal.close()

    assert store.names("ledger")[:3] == ["000001.jsonl", "000002.jsonl", "000003.jsonl"]
    assert list(read_commits(store)) == ["a", "b", "c"]


@settings(deadline=None)
@given(st.integers(0, 400))
def test_a_ledger_that_was_cut_anywhere_says_what_is_left_of_it(tmp_path_factory: pytest.TempPathFactory, length: int):
    folder = tmp_path_factory.mktemp("cut")
    os.makedirs(folder / "ledger")
    whole = b"".join(encode(record(f"u{k}")) + b"\n" for k in range(3))
    (folder / "ledger" / "000001.jsonl").write_bytes(whole[:length])

    found = read_commits(LocalStore(str(folder)))

    ends = [whole.index(b"\n", whole.index(b"u%d" % k)) for k in range(3)]
    assert list(found) == [f"u{k}" for k in range(3) if length >= ends[k]]


@pytest.mark.parametrize("content", [b"", b'{"unit": "u", "att', b"\0" * 40])
def test_a_record_that_a_power_cut_spoiled_is_no_record(store: LocalStore, content: bytes):
    Path(store.root, INBOX, "u.json").write_bytes(content)
    Path(store.root, INBOX, "v.json.77.thresher-tmp").write_bytes(content)
    journal = Journal(store, [])
    journal.recover()

    assert journal.committed == {}
    assert store.names(INBOX) == []


def test_a_full_disk_leaves_no_half_line_for_the_next_record_to_be_glued_to(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
):
    journal = Journal(store, [])
    for unit in ("a", "b"):
        put(store, unit)
        journal.add_from_inbox(unit)
    whole_write, written = os.write, []

    def write_half(descriptor: int, data: memoryview) -> int:
        if written:
            raise OSError(28, "No space left on device")
        written.append(whole_write(descriptor, data[: len(data) // 2]))
        return written[0]

    with monkeypatch.context() as full_disk:
        full_disk.setattr(os, "write", write_half)
        with pytest.raises(OSError, match="No space"):
            journal.sync()
    assert store.read("ledger/000001.jsonl") == b""
    assert store.names(INBOX) == ["a.json", "b.json"]

    journal.sync()

    assert read_commits(store) == {"a": record("a"), "b": record("b")}
    journal.close()


def test_what_a_killed_worker_was_writing_into_the_inbox_is_removed_in_the_end(store: LocalStore):
    journal = Journal(store, [])
    store.write(f"{INBOX}/u.json.17.thresher-tmp", b'{"un')
    put(store, "v")
    journal.clear_temporary()
    assert store.names(INBOX) == ["v.json"]
