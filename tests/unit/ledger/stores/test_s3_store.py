# SPDX-License-Identifier: Apache-2.0
"""What is put into a bucket is there once, whole, and ours: on a real server on loopback."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from thresher.errors import OutputRefusedError
from thresher.ledger.folder.lock import LOCK, Lease, this_process
from thresher.ledger.stores import s3_store
from thresher.ledger.stores.s3_store import S3Store
from thresher.ledger.stores.store import Owner, VersionedFile, open_store

pytestmark = pytest.mark.s3

Put = Callable[..., None]
ME = this_process("2024-01-01T00:00:00Z", "run")
LARGE = b"0123456789abcdef" * 400_000
"""Two parts of the smallest size that a server takes."""


@pytest.fixture
def store(bucket: str, s3_options: dict[str, Any]) -> S3Store:
    opened = open_store(f"s3://{bucket}/out", s3_options)
    assert isinstance(opened, S3Store)
    return opened


@pytest.fixture
def put(store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    monkeypatch.setattr(s3_store, "PART_BYTES", 5 * 2**20)

    def put_bytes(content: bytes, run: str = "run", attempt: int = 1, into: S3Store = store) -> None:
        path = tmp_path / "finished"
        path.write_bytes(content)
        into.put(str(path), "a.jsonl", Owner(run, attempt, hashlib.sha256(content).hexdigest()))
        assert not path.exists()

    return put_bytes


def uploads(store: S3Store) -> list[str]:
    return [key for key, _ in store._uploads()]


def keep_versions(store: S3Store) -> None:
    """From here on the server counts how often an object was written."""
    kept = {"Status": "Enabled"}
    store._fs.call_s3("put_bucket_versioning", Bucket=store._bucket, VersioningConfiguration=kept)


def versions(store: S3Store) -> int:
    return len(store._fs.call_s3("list_object_versions", Bucket=store._bucket)["Versions"])


@pytest.mark.parametrize("content", [b"small\n", LARGE], ids=["one put", "in parts"])
def test_a_file_is_put_whole_and_again_without_harm(store: S3Store, put: Put, content: bytes):
    put(content)
    put(content)

    assert store.read("a.jsonl") == content
    assert uploads(store) == []


@pytest.mark.parametrize("content", [b"small\n", LARGE], ids=["one put", "in parts"])
def test_the_object_of_somebody_else_is_never_overwritten(store: S3Store, put: Put, content: bytes):
    store.write("a.jsonl", b"theirs\n")

    with pytest.raises(OutputRefusedError, match=r"out/a\.jsonl: there is an object that this run did not write"):
        put(content)
    assert store.read("a.jsonl") == b"theirs\n"
    assert uploads(store) == []


def test_the_same_bytes_of_somebody_else_will_do(store: S3Store, put: Put):
    keep_versions(store)
    store.write("a.jsonl", b"same\n")
    put(b"same\n")
    assert versions(store) == 1, "it is left as it was"


def test_what_an_older_attempt_put_and_never_recorded_is_replaced(store: S3Store, put: Put):
    put(b"old\n", attempt=1)
    put(b"new\n", attempt=2)

    assert store.read("a.jsonl") == b"new\n"
    with pytest.raises(OutputRefusedError, match="of attempt 2 of this run, and this is attempt 1"):
        put(b"old\n", attempt=1)
    with pytest.raises(OutputRefusedError, match="an object of run run,"):
        put(b"other\n", run="other")
    assert store.read("a.jsonl") == b"new\n"


def test_only_a_file_up_to_the_own_attempt_is_withdrawn(store: S3Store, put: Put):
    put(b"new\n", attempt=2)
    store.withdraw("a.jsonl", Owner("run", 1, ""))
    store.withdraw("a.jsonl", Owner("other", 3, ""))
    assert store.read("a.jsonl") == b"new\n"

    store.withdraw("a.jsonl", Owner("run", 3, ""))
    assert store.read("a.jsonl") is None


def test_an_object_is_created_once_and_a_lost_answer_does_not_matter(store: S3Store):
    assert store.create("x", b"1")
    assert store.create("x", b"1"), "it is the one that is there"
    assert not store.create("x", b"2")
    assert store.read("x") == b"1"


def test_only_the_version_that_was_read_is_replaced(store: S3Store):
    store.write("x", b"1")
    first = store.find("x")
    assert first is not None
    assert store.replace("x", b"2", first.version)
    assert store.replace("x", b"2", first.version), "its own answer may have been lost"
    assert not store.replace("x", b"3", first.version)
    store.remove("x")
    assert not store.replace("x", b"3", first.version)


def test_unfinished_uploads_are_aborted_by_name(store: S3Store):
    for name in ("a-0123456789ab-000000.jsonl", "theirs.bin"):
        store._fs.call_s3("create_multipart_upload", **store._key(name))
    store._fs.call_s3("create_multipart_upload", Bucket=store._bucket, Key="outside")

    store.abort_uploads(lambda name: name.startswith("a-"))

    assert uploads(store) == ["out/theirs.bin"]


def test_of_many_that_start_in_the_same_moment_exactly_one_gets_the_lease(store: S3Store, s3_options: dict[str, Any]):
    barrier = threading.Barrier(6)
    won: list[Lease] = []
    refused: list[str] = []

    def start() -> None:
        mine = open_store(store.root, s3_options)
        barrier.wait()
        try:
            won.append(Lease(mine, this_process(str(threading.get_ident()), "run"), now=1000.0))
        except OutputRefusedError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(won) == 1
    assert len(refused) == 5
    assert all(f"process {ME.pid} on {ME.host}, started " in text and "its lease ends" in text for text in refused)
    assert won[0].exclusive


def test_a_lease_is_judged_by_the_clock_of_the_store(store: S3Store):
    elsewhere = type(ME)(1, "another-machine", "then")
    Lease(store, elsewhere, now=10.0)  # a machine whose clock is decades behind

    with pytest.raises(OutputRefusedError, match="another-machine"):
        Lease(store, ME, now=2_000_000_000.0)


class DeafStore(S3Store):
    """A bucket of a store that does not know the header `If-None-Match`."""

    def _create_once(self, name: str, data: bytes) -> None:
        self._fs.call_s3("put_object", **self._key(name), Body=data)


def test_a_store_that_does_not_heed_conditions_is_found_out(bucket: str, s3_options: dict[str, Any], put: Put):
    deaf = DeafStore(f"s3://{bucket}/deaf", s3_options)
    lease = Lease(deaf, ME, now=1000.0)

    assert not lease.exclusive
    lease.renew(1020.0)
    with pytest.raises(OutputRefusedError, match="in use"):
        Lease(deaf, ME, now=1020.0)
    lease.release()
    found = deaf.find(LOCK)
    assert isinstance(found, VersionedFile)
    put(b"1\n", into=deaf)
    put(b"2\n", into=deaf)
    assert deaf.read("a.jsonl") == b"2\n"


def test_the_root_of_a_store_is_never_removed(store: S3Store):
    store.write("kept", b"1")
    with pytest.raises(AssertionError, match="never removed"):
        store.remove_tree("")
    assert store.read("kept") == b"1"
