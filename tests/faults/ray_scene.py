# SPDX-License-Identifier: Apache-2.0
"""Several Ray nodes on this machine, one input, what a local run makes of it, and what the event log of a run tells."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from unittest import mock

import psutil

from tests.faults.disturbed import SOURCES, digests
from thresher import (
    DocumentBatch,
    JsonlReader,
    JsonlWriter,
    LocalExecutor,
    Pipeline,
    ProcessingStage,
    RunResult,
    WorkerMetadata,
)
from thresher.observe.event_log import read_log

PATIENCE_S = 400.0
"""How long something may take that must happen; a limit for a hang, not a measure of speed."""
STORE_BYTES = 100 * 2**20
FILES, RECORDS, WORDS, UNIT = 4, 240, 1700, "250kB"
"""Files, records of each, words of each, and how large a unit is. Ray keeps what has less than 100 KiB in the memory of
the driver; batches of these units lie in the object stores of their nodes."""
UNITS = 24
"""How many units that makes at least."""
OTHER_JOB = """
import sys, ray
ray.init(address={address!r}, log_to_driver=False, logging_level="ERROR")

@ray.remote(num_cpus={cpus})
class Holder:
    def where(self):
        return ray.get_runtime_context().get_node_id()

holder = Holder.remote()
print(ray.get(holder.where.remote()), flush=True)
sys.stdin.read()
"""
BROKEN = "{this line is no record"


class Visited(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Adds a field. Leaves a file that says which process of which node was here, and waits where files say so."""

    name = "visited"

    def __init__(self, folder: str, pause_s: float = 0.05) -> None:
        """`folder`: no call goes on before it holds `go`; nor on a node `NAME` as long as it holds `hold@NAME`."""
        self.folder, self.pause_s = folder, pause_s
        self.node = ""

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        assert worker_metadata is not None
        self.node = worker_metadata.node.node_id

    def process(self, task: DocumentBatch) -> DocumentBatch:
        Path(self.folder, f"{self.node}@{os.getpid()}").touch()
        while not Path(self.folder, "go").exists() or Path(self.folder, f"hold@{self.node}").exists():
            if Path(self.folder, "give-up").exists():
                break
            time.sleep(0.01)
        self.work(task)
        return task.replace("characters", [len(text) for text in task.values("text")])

    def work(self, task: DocumentBatch) -> None:
        """What takes time."""
        time.sleep(self.pause_s)


@dataclass(frozen=True)
class Visit:
    """A process that ran the stage."""

    node: str
    """Where."""
    pid: int
    """Its id."""


@dataclass
class RayScene:
    """One input and one folder for everything about one test."""

    folder: Path
    """Of this test."""
    input: Path
    """The same for all tests."""
    before: tuple[ProcessingStage[Any, Any], ...] = ()
    """Stages before the one that is watched."""
    over: threading.Event = field(default_factory=threading.Event)
    """The run has ended, well or not."""

    def __post_init__(self) -> None:
        for name in ("visits", "local-visits"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "local-visits" / "go").touch()

    @property
    def output(self) -> Path:
        """Of the run on Ray."""
        return self.folder / "out"

    def run(self, executor: Any, stage: ProcessingStage[Any, Any] | None = None, **options: Any) -> RunResult:
        """Reader, stage, writer."""
        stage = stage or self.visited()
        stages = [JsonlReader(str(self.input), blocksize=UNIT), *self.before, stage, JsonlWriter(str(self.output))]
        try:
            return Pipeline("ray-faults", stages=stages).run(executor, progress="none", **options)
        finally:
            self.over.set()

    def visited(self, pause_s: float = 0.05, num_workers: int | None = None) -> ProcessingStage[Any, Any]:
        """The stage; with workers of its own, its batches travel."""
        stage = Visited(str(self.folder / "visits"), pause_s)
        return stage if num_workers is None else stage.with_(num_workers=num_workers)

    def visits(self) -> list[Visit]:
        """Who was there by now."""
        found = [path.name.rpartition("@") for path in (self.folder / "visits").iterdir()]
        return [Visit(node, int(pid)) for node, _, pid in found if pid.isdigit()]

    def go(self) -> None:
        """Let the stage go on, wherever it is."""
        (self.folder / "visits" / "go").touch()

    def hold(self, node: str) -> None:
        """Let the stage stand still on one node."""
        (self.folder / "visits" / f"hold@{node}").touch()

    def wait_for_visits(self, nodes: int = 1) -> list[Visit]:
        """Until the stage has run on so many nodes."""
        self.wait_until(lambda: len({visit.node for visit in self.visits()}) >= nodes, f"work on {nodes} nodes")
        return self.visits()

    def wait_for_files(self, at_least: int) -> None:
        """Until so many units are written."""
        self.wait_until(lambda: len(digests(self.output)) >= at_least, f"{at_least} files")

    @contextlib.contextmanager
    def meanwhile(self, do: Callable[[], Any]) -> Iterator[None]:
        """Do something while the block runs; what goes wrong there ends the run and is raised here."""
        errors: list[BaseException] = []

        def attempt() -> None:
            try:
                do()
            except BaseException as error:  # raised where the test sees it
                errors.append(error)
                (self.folder / "visits" / "give-up").touch()

        thread = threading.Thread(target=attempt, name="meanwhile")
        thread.start()
        try:
            yield
        except Exception as error:
            thread.join()
            raise (errors or [error])[0] from error
        thread.join()
        if errors:
            raise errors[0]

    def wait_until(self, happened: Callable[[], Any], what: str) -> None:
        """Until something has happened in a run that goes on."""
        wait_until(lambda: happened() or self.over.is_set(), what)
        assert not self.over.is_set(), f"the run ended before {what}"

    def log(self, attempt: int = 1) -> list[dict[str, Any]]:
        """The events and actions of the run."""
        folder = self.output / "_thresher" / "events" / f"{attempt:03d}"  # may be read while the run goes on
        return [json.loads(line) for line in read_log(folder)]


def wait_until(happened: Callable[[], Any], what: str) -> None:
    """Until something has happened."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:.0f} s for {what}"
        time.sleep(0.01)


def make_input(folder: Path) -> Path:
    """Files of several units; one line of them all is broken."""
    folder.mkdir(parents=True)
    chance = random.Random(7)
    for number in range(FILES):
        words = [chance.choice(("grain", "chaff", "straw", "mill", "Mühle")) for _ in range(WORDS)]
        lines = [
            json.dumps({"n": f"{number}-{n}", "source": f"source {n * n % 97}", "text": " ".join(words[n:])})
            for n in range(RECORDS)
        ]
        if number == 3:
            lines[RECORDS // 2] = BROKEN
        (folder / f"part-{number:02d}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def assert_same_as_local(scene: RayScene, result: RunResult, stage: ProcessingStage[Any, Any] | None = None) -> None:
    """Files, counts and quarantine are those of a local run."""
    local = scene.folder / "local"
    stage = stage or Visited(str(scene.folder / "local-visits"), 0.0)
    stages = [JsonlReader(str(scene.input), blocksize=UNIT), *scene.before, stage, JsonlWriter(str(local))]
    expected = Pipeline("ray-faults", stages=stages).run(LocalExecutor(workers=2), progress="none")
    assert digests(scene.output) == digests(local)
    assert result.counts == expected.counts
    assert quarantined(scene.output) == quarantined(local)


def quarantined(output: Path) -> list[tuple[str, str, str]]:
    """What was set aside, and why."""
    files = (output / "_thresher" / "quarantine").glob("*.jsonl")
    entries = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return sorted((entry["id"], entry["stage"], entry["error"]) for entry in entries)


# -- drivers in processes of their own --------------------------------------------------------------------------------

DRIVER = """
import json, sys
from pathlib import Path
from tests.faults.ray_scene import RayScene
from thresher import LocalExecutor
from thresher.backends.ray import RayExecutor

folder, input_folder, name, options = sys.argv[1:]
executor = {"ray": RayExecutor, "local": LocalExecutor}[name](**json.loads(options))
scene = RayScene(Path(folder), Path(input_folder))
try:
    scene.run(executor, scene.visited(0.1))
except KeyboardInterrupt:
    sys.exit(130)
"""


class DriverProcess:
    """A driver that can be killed. What it starts bears its mark, as far as it inherits its environment."""

    def __init__(self, scene: RayScene, executor: str, **options: Any) -> None:
        self.mark = uuid.uuid4().hex
        paths = [str(SOURCES), str(Path(__file__).parents[2])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "RAY_DRIVER": self.mark}
        command = [sys.executable, "-c", DRIVER, str(scene.folder), str(scene.input), executor, json.dumps(options)]
        self.log = scene.folder / f"driver-{self.mark}"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever happened, it does not stay."""
        self.process.kill()
        self.process.wait()

    def wait_until(self, happened: Callable[[], Any], what: str) -> None:
        """Until something has happened while it runs."""
        wait_until(lambda: happened() or self.process.poll() is not None, what)
        assert self.process.poll() is None, f"it ended before {what}: {self.log.read_text()}"

    def wait(self) -> int:
        """Its exit code."""
        return self.process.wait(timeout=PATIENCE_S)

    def left(self) -> list[str]:
        """Processes with its mark that live."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("RAY_DRIVER") == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid} {process.name()}")
        return found


# -- nodes ------------------------------------------------------------------------------------------------------------


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def patiently(start: Callable[[], Any]) -> Any:
    """Ray gives up where a node is not up within 30 s; a machine that many share may need more."""
    for _ in range(5):
        with contextlib.suppress(Exception):
            return start()
    return start()


class RayNodes:
    """A Ray cluster on this machine whose nodes come and go."""

    def __init__(self, **head: Any) -> None:
        from ray.cluster_utils import Cluster

        given = {
            "num_cpus": 1,
            "object_store_memory": STORE_BYTES,
            "include_dashboard": False,
            "dashboard_port": free_port(),  # Ray leaks a socket where the usual one is taken
            **head,
        }
        # A folder of its own: whoever looks for a running cluster with `auto` does not find this one. Its path is
        # short because sockets lie in it.
        self._folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
        with mock.patch.dict(os.environ, {"RAY_TMPDIR": self._folder}):
            self.cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args=given))

    @property
    def address(self) -> str:
        """Where the cluster answers."""
        return str(self.cluster.address)

    def add(self, **given: Any) -> Any:
        """One more node; from a thread too, where no handler of signals can be set."""
        in_thread = threading.current_thread() is not threading.main_thread()
        with mock.patch("ray._private.utils.set_sigterm_handler") if in_thread else contextlib.nullcontext():
            return self._add(given)

    def _add(self, given: dict[str, Any]) -> Any:
        given = {"num_cpus": 1, "object_store_memory": STORE_BYTES, **given}
        return patiently(lambda: self.cluster.add_node(**given))

    def need(self, count: int, **given: Any) -> list[Any]:
        """So many nodes besides the head; those that Ray has given up (it is impatient) are replaced."""
        alive = {node["NodeID"] for node in self.cluster.global_state.node_table() if node["Alive"]}
        for node in [node for node in self.cluster.worker_nodes if node.node_id not in alive]:
            self.remove(node)
        while len(self.cluster.worker_nodes) < count:
            self.add(**given)
        return sorted(self.cluster.worker_nodes, key=lambda node: str(node.unique_id))

    def remove(self, node: Any) -> None:
        """As if its power had gone."""
        self.cluster.remove_node(node, allow_graceful=False)

    def named(self, name: str) -> Any:
        """The node that goes by this name in events."""
        return next(node for node in self.cluster.list_all_nodes() if name.endswith(str(node.node_id)[:8]))

    def agent_pid(self, name: str) -> int:
        """The process of the agent on a node."""
        raylet = self.named(name).all_processes["raylet"][0].process.pid
        return next(
            child.pid
            for child in psutil.Process(raylet).children(recursive=True)
            if "ray::RayNode" in " ".join(child.cmdline())
        )

    @contextlib.contextmanager
    def other_job(self, cpus: float) -> Iterator[str]:
        """Another driver holds CPUs of some node; gives its id."""
        text = OTHER_JOB.format(address=self.address, cpus=cpus)
        job = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert job.stdin is not None
        assert job.stdout is not None
        try:
            yield job.stdout.readline().strip()
        finally:
            job.stdin.close()
            job.wait()
            job.stdout.close()

    def close(self) -> None:
        """End them all."""
        import ray

        ray.shutdown()
        self.cluster.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)


# -- what the log tells -----------------------------------------------------------------------------------------------


def lines_of(log: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Events or actions of one kind."""
    return [line for line in log if kind in (line.get("event"), line.get("action"))]


def nodes_by_payloads(log: list[dict[str, Any]]) -> list[str]:
    """Nodes whose workers have emitted something, the one with most of it first."""
    node_of = {line["worker"]: line.get("node", "") for line in lines_of(log, "StartWorker")}
    made: Counter[str] = Counter()
    for kind in ("TaskDone", "TaskEmitted", "TaskParked"):
        for line in lines_of(log, kind):
            made[node_of[line["worker"]]] += len(line.get("outputs", ()))
    return [node for node, count in made.most_common() if count]


def units_by_node(log: list[dict[str, Any]], until: int) -> dict[str, set[str]]:
    """Node to the units that are in flight there: dispatched to one of its workers, and not committed before a line."""
    node_of = {line["worker"]: line.get("node", "") for line in lines_of(log, "StartWorker")}
    found: dict[str, set[str]] = {}
    for line in log:
        if line["n"] >= until:
            break
        if line.get("action") == "Dispatch":
            found.setdefault(node_of[line["worker"]], set()).update(ref["unit"] for ref in line["tasks"])
        elif line.get("event") == "UnitCommitted":
            for units in found.values():
                units.discard(line["unit"])
    return found
