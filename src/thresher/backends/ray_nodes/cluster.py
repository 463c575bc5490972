# SPDX-License-Identifier: Apache-2.0
"""Cluster of Ray actors: our scheduler decides, Ray transports messages and payloads.

Ray restarts nothing: `max_restarts=0`, `max_task_retries=0`. A loss becomes an event, and the scheduler recovers.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

import msgspec
import ray
from msgspec.structs import replace

from thresher.backends.processes.message_cluster import MessageCluster
from thresher.backends.ray_nodes.fleet import NodeGone, NodeUp, RayFleet, new_actor
from thresher.backends.ray_nodes.link import Lent, PayloadRefs
from thresher.backends.ray_nodes.node_agent import CrashReport
from thresher.backends.ray_nodes.session import kill_actor
from thresher.backends.ray_nodes.worker import Script
from thresher.credentials import message_of
from thresher.runtime.cluster import MemoryReading
from thresher.runtime.crashes.watchdog import shortest_limit_s
from thresher.runtime.executor import Limits
from thresher.runtime.orders import WorkerSetup
from thresher.runtime.payloads.payload import Payload, PayloadMissing
from thresher.runtime.processes import messages as msg
from thresher.runtime.processes.pool import Gone
from thresher.runtime.processes.setup_pickle import dump_setup
from thresher.runtime.processes.worker_process import PAYLOAD_LOST
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev

WORKER_MEMORY_S = 1.0
"""Interval between two reports of each worker's memory."""
STOP_S, STOP_ASKED_S = 30.0, 5.0
"""Time limits for the teardown of workers: of idle ones, and of those that are interrupted."""
UNKNOWN_SIGNAL = -9
"""Exit status assumed for a crash, since Ray does not report one: a kill from outside cannot be ruled out."""
_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[list[msg.FromWorker]] = msgspec.msgpack.Decoder(list[msg.FromWorker])


@dataclass(frozen=True)
class FrameArrived:
    """A frame received from a worker."""

    frame: bytes
    """Encoded messages."""
    refs: list[Any]
    """Payloads stored since the previous frame."""
    freed: list[int]
    """Numbers of the payloads that no message will refer to."""


@dataclass(frozen=True)
class ActorEnded:
    """An actor has ended."""

    reason: str = ""
    """The reason, for display; empty: it ended normally."""
    crash_report: CrashReport | None = None
    """Crash report of its node's agent; `None`: the agent is gone too."""


@dataclass(eq=False)
class Handle:
    """The driver's view of one actor."""

    actor: Any
    """Ray's handle of the actor."""
    begun: Any
    """Reference that is ready once the actor has begun its work as a worker."""
    node: str
    """Node on which it runs."""
    unsent: list[Any] = field(default_factory=list)
    """Messages to send."""
    refs: Lent = field(default_factory=list)
    """Payloads that these messages refer to."""
    sent: int = 0
    """Number of frames sent."""
    next_payload: int = 1
    """Number of the next payload that it stores."""
    ending: bool = False
    """True if it was stopped or has reported that it cannot start."""


class RayCluster(MessageCluster):
    """Performs actions on actors and turns their messages into events."""

    def __init__(self, limits: Limits, fleet: RayFleet) -> None:
        """`fleet`: the nodes, including those that join later."""
        self._book = PayloadRefs()
        super().__init__(limits, self._book)
        self._fleet = fleet
        self._handles: dict[int, Handle] = {}
        self._dirty: dict[int, Handle] = {}
        self._arrived: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._lost_nodes: set[str] = set()
        self._workers_by_node: dict[str, set[int]] = {}
        """All workers that have run on each node."""
        self._memory_reported_at = 0.0
        self._setup: Any = None
        self._envs: dict[int, dict[str, Any]] = {}
        self._script = Script(tuple(sys.path), tuple(sys.argv))
        self._listeners: list[threading.Thread] = []
        self._collects = False
        self._closed = False
        self._handlers[NodeUp] = self._on_node_up
        self._handlers[NodeGone] = self._on_node_gone
        self._handlers[FrameArrived] = self._on_frame
        self._handlers[ActorEnded] = self._on_ended

    # -- the `Cluster` interface ---------------------------------------------------------------------------------------

    def start(self, setup: WorkerSetup, output: int | None = None) -> None:
        """Prepare the agents of all nodes. Output that stages print goes to Ray's logs."""
        self._read_plan(setup)
        stages = setup.plan.stages
        self._collects = setup.plan.sink is None
        for op in self._ops:
            for number in {step.stage for step in op.steps}:
                env = stages[number].runtime_env
                if env:
                    self._envs[op.index] = dict(env)
        self._setup = ray.put(dump_setup(setup))
        self._fleet.start(self._setup, self._arrived, shortest_limit_s(stages))

    def poll(self, timeout_s: float) -> list[ev.AnyEvent]:
        """Return events from the messages of workers."""
        self._flush()
        if not self._events:
            with contextlib.suppress(Empty):
                worker, message = self._arrived.get(timeout=timeout_s) if timeout_s else self._arrived.get_nowait()
                self._handle(worker, message)
                while True:
                    worker, message = self._arrived.get_nowait()
                    self._handle(worker, message)
        return self._take_events()

    def memory(self) -> MemoryReading:
        """Return the memory used on the fullest node."""
        reports = self._fleet.reports()
        now = time.monotonic()
        fullest = max((report.used_bytes for report in reports.values()), default=0)
        if now - self._memory_reported_at >= WORKER_MEMORY_S:
            self._memory_reported_at = now
            for report in reports.values():
                known = {worker: n for worker, n in report.workers.items() if worker in self._handles}
                self._report_memory(known, report.used_bytes)
        return MemoryReading(fullest, devices=tuple(device for report in reports.values() for device in report.devices))

    def close(self, *, kill: bool = False) -> None:
        """End the actors and release all objects."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(Exception):  # Ray itself may have failed
            self._stop_actors(interrupt=kill)
        for handle in self._handles.values():
            kill_actor(handle.actor)
        self._handles.clear()
        self._book.close()
        self._fleet.close()
        ends_at = time.monotonic() + STOP_ASKED_S
        for listener in self._listeners:
            listener.join(max(0.0, ends_at - time.monotonic()))  # before Ray is shut down

    def _stop_actors(self, *, interrupt: bool) -> None:
        """Let workers tear their stages down, within a time limit. Workers that wait or are not ready yet hold nothing
        and are killed."""
        for worker in [worker for worker in self._handles if worker in self._started_at]:
            kill_actor(self._handles.pop(worker).actor)
        for worker, handle in self._handles.items():
            self._send(worker, msg.Stop())
            if interrupt:
                handle.actor.end_now.remote()
        ends_at = time.monotonic() + (STOP_ASKED_S if interrupt else STOP_S)
        while self._handles and time.monotonic() < ends_at:
            with contextlib.suppress(ray.exceptions.RayError):
                self.poll(0.2)

    # -- transport -----------------------------------------------------------------------------------------------------

    def _start(self, action: act.StartWorker) -> None:
        worker, op = action.worker, action.op
        node = self._fleet.node(action.node)
        if node is None:
            return  # the node is gone; its loss is reported soon
        request = msg.Fork(
            worker,
            op,
            0,
            self._places.rank(worker),
            self._places.count(op),
            node=action.node,
            devices=action.devices,
            share_bytes=self._share_of(worker),
        )
        needs = {} if op is None else self._fleet.asks(self._ops[op].resources, action.node)
        env = None if op is None else self._envs.get(op)
        actor = new_actor(node.node_id, runtime_env=env, **needs) if env or needs else node.take_spare()
        begun = actor.begin.remote(request, self._setup, node.node_context, self._script)
        handle = self._handles[worker] = Handle(actor, begun, action.node)
        self._workers_by_node.setdefault(action.node, set()).add(worker)
        self._started_at[worker] = time.monotonic()
        self._listeners = [listener for listener in self._listeners if listener.is_alive()]
        listener = threading.Thread(target=self._listen, args=(worker, handle), name=f"worker-{worker}", daemon=True)
        self._listeners.append(listener)
        listener.start()

    def _send(self, worker: int, message: Any) -> None:
        handle = self._handles.get(worker)
        if handle is not None:
            handle.ending = handle.ending or isinstance(message, msg.Stop)
            handle.unsent.append(message)
            self._dirty[worker] = handle

    def _knows(self, worker: int) -> bool:
        return worker in self._handles

    def _answered(self, worker: int, tasks: int) -> None:
        """Do nothing: unlike in local processes, busy workers get as long as idle ones to end."""

    def _payload_for(self, worker: int, task: int) -> Payload:
        payload, refs = self._book.lend(task)
        self._handles[worker].refs.extend(refs)
        return payload

    def _workers_on_node(self, worker: int) -> int:
        return self._limits.workers_per_node

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for handle in dirty.values():
            unsent, handle.unsent = handle.unsent, []
            refs, handle.refs = handle.refs, []
            handle.actor.deliver.remote(handle.sent, _encode(unsent), refs)
            handle.sent += 1

    def _listen(self, worker: int, handle: Handle) -> None:
        """Forward all frames of a worker, then its end; runs in a thread per worker."""
        ended = ActorEnded()
        try:
            ray.get(handle.begun)
            frames, objects = handle.actor.frames.remote(), handle.actor.objects.remote()
            for ref in frames:
                frame, count, freed = ray.get(ref)
                self._arrived.put((worker, FrameArrived(frame, [next(objects) for _ in range(count)], freed)))
        except (ray.exceptions.RayError, StopIteration) as error:
            ended = ActorEnded(_first_line(error) or "its actor ended", self._fleet.crash_report(handle.node, worker))
        except Exception as error:  # Ray was shut down meanwhile
            ended = ActorEnded(f"{type(error).__name__}: {message_of(error)}")
        self._arrived.put((worker, ended))

    # -- messages ------------------------------------------------------------------------------------------------------

    def _on_frame(self, worker: int, message: FrameArrived) -> None:
        handle = self._handles.get(worker)
        if handle is None:
            return  # its node was lost
        handle.next_payload = self._book.register(worker, handle.next_payload, message.refs)
        self._book.discard(worker, message.freed)
        for one in _decoder.decode(message.frame):
            if isinstance(one, msg.CannotStart):
                handle.ending = True
            self._handle(worker, one)

    def _on_started(self, worker: int, message: msg.Started) -> None:
        super()._on_started(worker, message)
        self._fleet.drop_spares()

    def _on_failed(self, worker: int, message: msg.Failed) -> None:
        if message.error == PAYLOAD_LOST:
            self._events.extend(ev.PayloadLost(task) for task in message.tasks)
        super()._on_failed(worker, message)

    def _on_done(self, worker: int, message: msg.Done) -> None:
        if not self._collects:
            super()._on_done(worker, message)
            return
        found = [self._fetch_results(told) for told in message.tasks]
        super()._on_done(worker, msg.Done([told for told in found if told is not None]))
        lost = [told.task for told, kept in zip(message.tasks, found, strict=True) if kept is None]
        if lost:
            super()._on_failed(worker, msg.Failed(lost, PAYLOAD_LOST, "its result is lost", fatal=False))

    def _on_progress(self, worker: int, message: msg.TaskProgress) -> None:
        super()._on_progress(
            worker, msg.TaskProgress(self._fetch_results(message.update) or _without_outputs(message.update))
        )

    def _on_parked(self, worker: int, message: msg.Parked) -> None:
        update = self._fetch_results(message.update) or _without_outputs(message.update)
        super()._on_parked(worker, msg.Parked(update))

    def _fetch_results(self, told: msg.TaskUpdate) -> msg.TaskUpdate | None:
        """Fetch the results in a report at once, since their node may be lost at any time. Return `None` if they are
        lost already; the unit then restarts."""
        if not self._collects or not any(output.items for output in told.outputs):
            return told
        try:
            outputs = [
                replace(output, payload=self._book.fetch(output.payload)) if output.items and output.payload else output
                for output in told.outputs
            ]
        except PayloadMissing:
            self._events.append(ev.PayloadLost(told.task))
            return None
        return replace(told, outputs=outputs)

    def _on_ended(self, worker: int, message: ActorEnded) -> None:
        handle = self._handles.pop(worker, None)
        if handle is None or handle.node in self._lost_nodes:
            return  # reported with its node
        self._dirty.pop(worker, None)
        if message.crash_report is None and message.reason and not self._closed:
            self._on_node_gone(worker, NodeGone(handle.node, message.reason))
            return
        kill_actor(handle.actor)
        expected = handle.ending or (not message.reason and self._closed)
        crash_report = message.crash_report or CrashReport(None)
        reason, status = message.reason or "its actor ended", UNKNOWN_SIGNAL
        if crash_report.crashed_with:
            status = -crash_report.crashed_with
            reason = f"its process was killed by {signal.Signals(crash_report.crashed_with).name}"
        gone = Gone(expected, reason, status, crash_report.overdue)
        found = self._coroner.examine(worker, gone, None if expected else crash_report.note)
        self._forget_worker(worker)
        if expected:
            self._fleet.forget(handle.node, worker)
        else:
            self._events.append(ev.WorkerLost(worker, found.reason, found.blamed, found.condemned))

    def _on_node_up(self, worker: int, message: NodeUp) -> None:
        self._lost_nodes.discard(message.spec.node)  # it came back
        self._events.append(ev.NodeJoined(message.spec.node, message.spec))

    def _on_node_gone(self, worker: int, message: NodeGone) -> None:
        """Report all payloads made on a lost node, then the node itself, so that no worker gets a payload that cannot
        be read."""
        if message.node in self._lost_nodes:
            return
        self._lost_nodes.add(message.node)
        self._fleet.lose(message.node)
        made = self._workers_by_node.pop(message.node, set())
        self._events.extend(ev.PayloadLost(task) for task in self._book.made_by(made))
        self._events.append(ev.NodeLost(message.node, message.reason))
        for lost in [number for number, handle in self._handles.items() if handle.node == message.node]:
            kill_actor(self._handles.pop(lost).actor)  # needed if only the agent has crashed
            self._dirty.pop(lost, None)
        for handle in self._handles.values():
            handle.actor.lose.remote(sorted(made))  # so that reads of such payloads fail without waiting for Ray
        for lost in made:
            self._forget_worker(lost)


def _without_outputs(told: msg.TaskUpdate) -> msg.TaskUpdate:
    """Return a task report without its outputs."""
    return replace(told, outputs=[])


def _first_line(error: BaseException) -> str:
    return message_of(error).strip().split("\n", 1)[0]
