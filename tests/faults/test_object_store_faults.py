# SPDX-License-Identifier: Apache-2.0
"""A store that times out, answers 503 and loses its answers: the output is that of an undisturbed run all the same."""

from __future__ import annotations

import hashlib
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import PATIENCE_S, wait_until
from tests.faults.s3_proxy import Fault, Kind, faulty_proxy, once_each, seeded_plan
from tests.unit.ledger.runs import commit, commit_all, lines_of, request, units, whole_run
from thresher import JsonlReader, JsonlWriter, LocalExecutor, Pipeline
from thresher.core.unit import Unit
from thresher.errors import OutputRefusedError
from thresher.ledger.folder.find import read_commits, read_manifest
from thresher.ledger.folder.lock import Lease, this_process
from thresher.ledger.folder.open_run import OpenRun
from thresher.ledger.folder.opening import open_run
from thresher.ledger.stores import s3_store
from thresher.ledger.stores.s3_store import S3Store
from thresher.ledger.stores.store import Owner, open_store
from thresher.ledger.unit_output import CommitTarget

pytestmark = pytest.mark.s3

WRITES: tuple[Kind, ...] = ("put", "part", "begin", "complete", "abort", "delete")
IMPATIENT = {"config_kwargs": {"read_timeout": 0.5, "connect_timeout": 2, "retries": {"max_attempts": 1}}}
"""Gives up soon and leaves the asking again to us."""


@pytest.fixture
def patient_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many tries as ever, with less time between them."""
    monkeypatch.setattr("thresher.ledger.stores.errors._FIRST_WAIT_S", 0.01)


def objects(options: dict[str, Any], bucket: str, folder: str) -> dict[str, bytes]:
    """All objects of an output folder but those of its run folder."""
    store = open_store(f"s3://{bucket}/{folder}", options)
    return {name: store.read(name) or b"" for name in store.names() if not name.endswith("/")}


def unfinished_uploads(options: dict[str, Any], bucket: str) -> list[str]:
    store = open_store(f"s3://{bucket}", options)
    assert isinstance(store, S3Store)
    return [key for key, _ in store._uploads()]


# -- one call --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient_waits")
@pytest.mark.parametrize("fault", ["503", "409", "timeout", "dropped", "held"])
@pytest.mark.parametrize("kind", ["put", "begin", "part", "complete"])
def test_a_file_arrives_once_whatever_happens_to_a_call(
    kind: Kind, fault: Fault, bucket: str, s3_options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(s3_store, "PART_BYTES", 5 * 2**20)
    content = b"line\n" * (10 if kind == "put" else 1_200_000)
    (tmp_path / "file").write_bytes(content)
    with faulty_proxy(s3_options["endpoint_url"], once_each({kind: fault})) as (url, proxy):
        store = open_store(f"s3://{bucket}/out", s3_options | IMPATIENT | {"endpoint_url": url})
        store.put(str(tmp_path / "file"), "a.jsonl", Owner("run", 1, hashlib.sha256(content).hexdigest()))

    assert proxy.broken[kind, fault] == 1
    assert objects(s3_options, bucket, "out") == {"a.jsonl": content}
    if (kind, fault) not in {("begin", "dropped"), ("begin", "held")}:  # nobody knows of such an upload: see below
        assert unfinished_uploads(s3_options, bucket) == []


@pytest.mark.usefixtures("patient_waits")
@pytest.mark.parametrize("fault", ["503", "timeout", "dropped", "held"])
def test_a_lease_survives_lost_answers(fault: Fault, bucket: str, s3_options: dict[str, Any]):
    me = this_process("2024-01-01T00:00:00Z", "run")
    with faulty_proxy(s3_options["endpoint_url"], once_each({"put": fault, "get": fault})) as (url, proxy):
        store = open_store(f"s3://{bucket}/out", s3_options | IMPATIENT | {"endpoint_url": url})
        lease = Lease(store, me, now=1000.0)
        proxy._plan = once_each({"put": fault})
        lease.renew(1030.0)
        proxy._plan = once_each({"put": fault})
        lease.release()

    assert sum(proxy.broken.values()) == 4
    Lease(open_store(f"s3://{bucket}/out", s3_options), me, now=1031.0).release()


# -- a ledger ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient_waits")
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_a_ledger_is_complete_on_a_store_that_fails(
    seed: int, bucket: str, s3_options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    whole_run(request(f"s3://{bucket}/calm", storage_options=s3_options), 12)
    shares: dict[Kind, float] = dict.fromkeys((*WRITES, "get", "head", "list"), 0.1)
    plan = seeded_plan(seed, shares, ("503", "409", "dropped", "timeout"), 15)
    with faulty_proxy(s3_options["endpoint_url"], plan) as (url, proxy):
        options = s3_options | IMPATIENT | {"endpoint_url": url}
        run = open_run(request(f"s3://{bucket}/out", storage_options=options))
        commit_all(run, units(7))
        run.abandon(1)
        whole_run(request(f"s3://{bucket}/out", storage_options=options), 12)

    assert sum(proxy.broken.values()) >= 10
    assert objects(s3_options, bucket, "out") == objects(s3_options, bucket, "calm")
    folder = f"s3://{bucket}/out/_thresher"
    assert [record.unit for record in read_commits(folder, s3_options)] == [unit.id for unit in units(12)]
    segments = open_store(folder, s3_options)
    told = [
        line
        for name in segments.names("ledger")
        if name.endswith(".jsonl")
        for line in (segments.read(f"ledger/{name}") or b"").splitlines()
    ]
    assert len(told) == 12, "each unit is told of once"
    assert segments.names("ledger/inbox") == []
    assert read_manifest(folder, s3_options) == read_manifest(f"s3://{bucket}/calm/_thresher", s3_options)


# -- a whole run -----------------------------------------------------------------------------------------------------


def copy_run(bucket: str, output: str, options: dict[str, Any], block: str) -> Any:
    reader = JsonlReader(f"s3://{bucket}/in", blocksize=block, storage_options=options)
    writer = JsonlWriter(f"s3://{bucket}/{output}", storage_options=options)
    return Pipeline("cloud", stages=[reader, writer]).run(LocalExecutor(workers=2), progress="none")


SMALL: tuple[int, str] = (2_000, "50kB")
IN_PARTS: tuple[int, str] = (90_000, "19MB")


@pytest.mark.parametrize(
    ("seed", "size", "kinds"),
    [
        pytest.param(11, SMALL, ("put", "get", "head", "delete", "list"), id="small files"),
        pytest.param(12, SMALL, ("put", "get", "head", "delete", "list"), id="again", marks=pytest.mark.slow),
        pytest.param(13, IN_PARTS, ("begin", "part", "complete", "abort"), id="files in parts"),
    ],
)
def test_a_run_from_s3_to_s3_through_faults_equals_an_undisturbed_one(
    seed: int, size: tuple[int, str], kinds: tuple[Kind, ...], bucket: str, s3_options: dict[str, Any]
):
    records, block = size
    share = 0.8 if size is IN_PARTS else 0.3  # there are few such calls
    store = open_store(f"s3://{bucket}", s3_options)
    store.write("in/a.jsonl", b"".join(b'{"n": %d, "text": "%s"}\n' % (n, b"word " * 40) for n in range(records)))
    calm = copy_run(bucket, "calm", s3_options, block)
    # Short waits of the client, which asks again by itself as it does for everybody.
    hasty = {"config_kwargs": {"read_timeout": 1, "connect_timeout": 2}}
    plan = seeded_plan(seed, dict.fromkeys(kinds, share), ("503", "dropped", "timeout", "held"), 8)
    with faulty_proxy(s3_options["endpoint_url"], plan) as (url, proxy):
        result = copy_run(bucket, "out", s3_options | hasty | {"endpoint_url": url}, block)

    assert sum(proxy.broken.values()) >= 3, proxy.broken
    assert objects(s3_options, bucket, "out") == objects(s3_options, bucket, "calm")
    assert result.counts == calm.counts
    assert unfinished_uploads(s3_options, bucket) == []
    folder = f"s3://{bucket}/out/_thresher"
    assert read_manifest(folder, s3_options) == read_manifest(f"s3://{bucket}/calm/_thresher", s3_options)
    assert open_store(folder, s3_options).names("ledger/inbox") == []
    assert copy_run(bucket, "out", s3_options, block).status == "nothing-to-do"


# -- workers that were believed dead ----------------------------------------------------------------------------------

ZOMBIE = """
import os, pickle, signal, sys
from tests.unit.core.json_batches import batch_of_lines
from tests.unit.ledger.runs import lines_of, tally_of
from thresher.errors import ThresherError
from thresher.ledger.unit_output import UnitOutput
from thresher.stages.io.jsonl.writer import JsonlWriter

place, unit, stop_at, lines = pickle.loads(bytes.fromhex(sys.argv[1]))
def stop(where):
    if where == stop_at:
        os.kill(os.getpid(), signal.SIGSTOP)
output = UnitOutput(place, JsonlWriter("unused"), unit, 0)
stop("before it wrote")
try:
    output.write(batch_of_lines(lines))
    stop("before its commit")
    output.commit(tally_of(unit))
except ThresherError as error:
    sys.exit(f"refused: {error}")
"""
PROJECT = Path(__file__).parents[2]


def stopped_worker(place: CommitTarget, unit: Unit, stop_at: str, lines: list[bytes]) -> subprocess.Popen[str]:
    given = pickle.dumps((place, unit, stop_at, lines)).hex()
    process = subprocess.Popen([sys.executable, "-c", ZOMBIE, given], cwd=PROJECT, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: _is_stopped(process.pid), "the worker to stop")
    return process


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def go_on(process: subprocess.Popen[str]) -> tuple[int, str]:
    process.send_signal(signal.SIGCONT)
    _, said = process.communicate(timeout=PATIENCE_S)
    return process.returncode, said


def die(run: OpenRun) -> None:
    """The driver is gone; of what it held, the kernel frees the lock at once, and a lease ends by itself."""
    assert run._folder is not None
    run._folder.lock.release()
    run._folder.journal.close()


@pytest.mark.parametrize("stop_at", ["before it wrote", "before its commit"])
def test_a_worker_that_wakes_up_after_its_attempt_publishes_nothing(tmp_path: Path, stop_at: str):
    asked = request(tmp_path / "out")
    first = open_run(asked)
    worker = stopped_worker(first.target, units(1)[0], stop_at, lines_of(units(1)[0]))
    die(first)
    again = open_run(asked)
    code, said = go_on(worker)

    assert code != 0
    assert "refused" in said
    assert again.committed == {}
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["_thresher"]
    commit_all(again, units(2))
    again.finish("finished", 0)
    whole_run(request(tmp_path / "calm"), 2)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.jsonl")} == {
        path.name: path.read_bytes() for path in (tmp_path / "calm").glob("*.jsonl")
    }


@pytest.mark.parametrize("changed", [False, True], ids=["with the same bytes", "with other bytes"])
@pytest.mark.parametrize("wakes", ["before the commit", "after the commit"])
def test_a_worker_of_an_older_attempt_does_no_harm_on_a_store(
    changed: bool, wakes: str, bucket: str, s3_options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    asked = request(f"s3://{bucket}/out", storage_options=s3_options)
    unit = units(1)[0]
    lines = [b'{"other": 1}'] if changed else lines_of(unit)
    first = open_run(asked)
    worker = stopped_worker(first.target, unit, "before it wrote", lines)
    die(first)
    again = open_run(asked)
    if wakes == "before the commit":
        go_on(worker)
    commit(again, unit)
    again.fold(unit.id)
    again.sync()
    if wakes == "after the commit":
        code, said = go_on(worker)
        assert (code != 0) == changed, said
    again.finish("finished", 0)

    expected = b"".join(line + b"\n" for line in lines_of(unit))
    assert objects(s3_options, bucket, "out") == {f"a-{unit.id}.jsonl": expected}
    third = open_run(asked)
    (record,) = third.committed.values()
    third.finish("finished", 0)
    assert record.attempt == 2
    assert record.outputs[0].sha256 == hashlib.sha256(expected).hexdigest()


@pytest.mark.parametrize("place", ["here", "on a store"])
def test_a_worker_of_a_run_that_was_started_over_counts_for_nothing(
    place: str, bucket: str, s3_options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    root = str(tmp_path / "out") if place == "here" else f"s3://{bucket}/out"
    unit = units(1)[0]
    first = open_run(request(root, storage_options=s3_options))
    worker = stopped_worker(first.target, unit, "before it wrote", [])  # its stages dropped every record
    die(first)
    fresh = open_run(request(root, storage_options=s3_options, fresh=True))
    go_on(worker)

    record = commit(fresh, unit)
    assert len(record.outputs) == 1
    fresh.fold(unit.id, record)
    fresh.finish("finished", 0)
    (line,) = read_manifest(fresh.run_dir, s3_options)
    assert (open_store(root, s3_options).read(line.path) or b"").count(b"\n") == len(lines_of(unit))


# -- secrets ---------------------------------------------------------------------------------------------------------


def test_credentials_are_nowhere_in_what_a_run_leaves(
    bucket: str, s3_options: dict[str, Any], capfd: pytest.CaptureFixture[str]
):
    secrets = {"key": "AKIAVERYSECRETKEY", "secret": "very-secret-value", "token": "very-secret-token"}
    options = s3_options | secrets
    plain = open_store(f"s3://{bucket}", s3_options)
    plain.write("in/a.jsonl", b'{"text": "x"}\n{"text": 1}\nbroken\n')
    plain.write("other/theirs.jsonl", b"{}\n")
    copy_run(bucket, "out", options, "1MB")
    with pytest.raises(OutputRefusedError, match="holds files") as refused:
        copy_run(bucket, "other", options, "1MB")

    store = open_store(f"s3://{bucket}/out", s3_options)
    assert isinstance(store, S3Store)
    left = {path: store._fs.cat_file(path) for path in store._fs.find(f"{bucket}/out")}
    assert any("/events/" in path for path in left)
    shown = {path: unpacked(content) for path, content in left.items()}
    shown |= {"error": str(refused.value).encode(), "stderr": "".join(capfd.readouterr()).encode()}
    for where, content in shown.items():
        for secret in secrets.values():
            assert secret.encode() not in content, where


def unpacked(content: bytes) -> bytes:
    from zstandard import ZstdDecompressor

    if not content.startswith(b"\x28\xb5\x2f\xfd"):
        return content
    with ZstdDecompressor().stream_reader(content, read_across_frames=True) as reader:
        return reader.read()
