# SPDX-License-Identifier: Apache-2.0
"""Actors and the object store of a Ray cluster: our scheduler decides, Ray carries.

Ray restarts nothing: `max_restarts=0`, `max_task_retries=0`. What is lost becomes an event, and the scheduler recovers.
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

from thresher.backends.message_cluster import MessageCluster
from thresher.backends.ray_book import RefBook
from thresher.backends.ray_fleet import Fleet, NodeGone, NodeUp, new_actor
from thresher.backends.ray_link import Lent
from thresher.backends.ray_node import Autopsy
from thresher.backends.ray_session import kill_actor
from thresher.backends.ray_worker import Script
from thresher.runtime import messages as msg
from thresher.runtime.cluster import MemoryReading
from thresher.runtime.executor import Limits
from thresher.runtime.orders import WorkerSetup
from thresher.runtime.payload import Payload
from thresher.runtime.payload_store import PayloadMissing
from thresher.runtime.process_pool import Gone
from thresher.runtime.setup_pickle import dump_setup
from thresher.runtime.worker_process import PAYLOAD_LOST
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev

WORKER_MEMORY_S = 1.0
"""How often the memory of each worker is told."""
STOP_S, STOP_ASKED_S = 30.0, 5.0
"""How long workers may take for their teardown, and in the middle of whatever they do."""
UNKNOWN_SIGNAL = -9
"""Ray does not say how a worker died; a kill from outside is what cannot be ruled out."""
_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[list[msg.FromWorker]] = msgspec.msgpack.Decoder(list[msg.FromWorker])


@dataclass(frozen=True)
class Heard:
    """A frame of a worker."""

    frame: bytes
    """Messages."""
    refs: list[Any]
    """Payloads that were stored since the last one."""
    freed: list[int]
    """Those that no message will speak of."""


@dataclass(frozen=True)
class Ended:
    """An actor is gone."""

    reason: str = ""
    """Why, for people; empty: it came to its end by itself."""
    autopsy: Autopsy | None = None
    """What its node's agent knows; `None`: the agent is gone too."""


@dataclass(eq=False)
class Handle:
    """One actor."""

    actor: Any
    """The handle that Ray gave."""
    begun: Any
    """An object that is there once the actor knows which worker it is."""
    node: str
    """Where it runs."""
    unsent: list[Any] = field(default_factory=list)
    """Messages for it."""
    refs: Lent = field(default_factory=list)
    """Payloads that they speak of."""
    sent: int = 0
    """Frames that it was sent."""
    heard: int = 1
    """The number of the next payload that it makes."""
    ending: bool = False
    """It was told to end, or said that it will."""


class RayCluster(MessageCluster):
    """Performs actions on actors and turns what they say into events."""

    def __init__(self, limits: Limits, fleet: Fleet) -> None:
        """`fleet`: the nodes, those that come later included."""
        self._book = RefBook()
        super().__init__(limits, self._book)
        self._fleet = fleet
        self._handles: dict[int, Handle] = {}
        self._dirty: dict[int, Handle] = {}
        self._arrived: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._lost_nodes: set[str] = set()
        self._made_on: dict[str, set[int]] = {}
        """Node to the workers that it has had."""
        self._told_memory_at = 0.0
        self._setup: Any = None
        self._envs: dict[int, dict[str, Any]] = {}
        self._script = Script(tuple(sys.path), tuple(sys.argv))
        self._listeners: list[threading.Thread] = []
        self._collects = False
        self._closed = False
        self._hearers[NodeUp] = self._hear_node_up
        self._hearers[NodeGone] = self._hear_node_gone
        self._hearers[Heard] = self._hear_frame
        self._hearers[Ended] = self._hear_ended

    # -- what the driver asks -----------------------------------------------------------------------------------------

    def start(self, setup: WorkerSetup, output: int | None = None) -> None:
        """Let the agents of all nodes get ready. What stages print is in Ray's logs."""
        self._settle_in(setup)
        stages = setup.plan.stages
        self._collects = setup.plan.sink is None
        for op in self._ops:
            for number in {step.stage for step in op.steps}:
                env = stages[number].runtime_env
                if env:
                    self._envs[op.index] = dict(env)
        self._setup = ray.put(dump_setup(setup))
        watches_time = any(stage.timeout_s for stage in stages)
        self._fleet.start(self._setup, self._arrived, watches_time=watches_time)

    def poll(self, timeout_s: float) -> list[ev.AnyEvent]:
        """What workers said."""
        self._flush()
        if not self._events:
            with contextlib.suppress(Empty):
                worker, message = self._arrived.get(timeout=timeout_s) if timeout_s else self._arrived.get_nowait()
                self._hear(worker, message)
                while True:
                    worker, message = self._arrived.get_nowait()
                    self._hear(worker, message)
        return self._take_events()

    def memory(self) -> MemoryReading:
        """Of the node that has used the largest part of what it may."""
        reports = self._fleet.reports()
        now = time.monotonic()
        fullest = max((report.used_bytes for report in reports.values()), default=0)
        if now - self._told_memory_at >= WORKER_MEMORY_S:
            self._told_memory_at = now
            for report in reports.values():
                known = {worker: n for worker, n in report.workers.items() if worker in self._handles}
                self._tell_memory(known, report.used_bytes)
        return MemoryReading(fullest)

    def close(self, *, kill: bool = False) -> None:
        """End the actors, let go of all objects."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(Exception):  # Ray may be what has failed
            self._stop_actors(busy_too=kill)
        for handle in self._handles.values():
            kill_actor(handle.actor)
        self._handles.clear()
        self._book.close()
        self._fleet.close()
        ends_at = time.monotonic() + STOP_ASKED_S
        for listener in self._listeners:
            listener.join(max(0.0, ends_at - time.monotonic()))  # before Ray ends under them

    def _stop_actors(self, *, busy_too: bool) -> None:
        """Let workers tear their stages down, and wait for that, within limits. Those that wait for their place, or
        are not ready yet, hold nothing."""
        for worker in [worker for worker in self._handles if worker in self._started_at]:
            kill_actor(self._handles.pop(worker).actor)
        for worker, handle in self._handles.items():
            self._send(worker, msg.Stop())
            if busy_too:
                handle.actor.end_now.remote()
        ends_at = time.monotonic() + (STOP_ASKED_S if busy_too else STOP_S)
        while self._handles and time.monotonic() < ends_at:
            with contextlib.suppress(ray.exceptions.RayError):
                self.poll(0.2)

    # -- carrying -----------------------------------------------------------------------------------------------------

    def _start(self, action: act.StartWorker) -> None:
        worker, op = action.worker, action.op
        node = self._fleet.node(action.node)
        if node is None:
            return  # it is gone, which is about to be told
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
        begun = actor.begin.remote(request, self._setup, node.surroundings, self._script)
        handle = self._handles[worker] = Handle(actor, begun, action.node)
        self._made_on.setdefault(action.node, set()).add(worker)
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
        """Nobody counts them here: workers that are busy at the end are given as long as idle ones."""

    def _payload_for(self, worker: int, task: int) -> Payload:
        payload, refs = self._book.lend(task)
        self._handles[worker].refs.extend(refs)
        return payload

    def _sharers(self, worker: int) -> int:
        return self._limits.workers_per_node

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for handle in dirty.values():
            unsent, handle.unsent = handle.unsent, []
            refs, handle.refs = handle.refs, []
            handle.actor.tell.remote(handle.sent, _encode(unsent), refs)
            handle.sent += 1

    def _listen(self, worker: int, handle: Handle) -> None:
        """The thread of a worker: everything that it says, and its end."""
        ended = Ended()
        try:
            ray.get(handle.begun)
            frames, objects = handle.actor.frames.remote(), handle.actor.objects.remote()
            for ref in frames:
                frame, count, freed = ray.get(ref)
                self._arrived.put((worker, Heard(frame, [next(objects) for _ in range(count)], freed)))
        except (ray.exceptions.RayError, StopIteration) as error:
            ended = Ended(_first_line(error) or "its actor ended", self._fleet.autopsy(handle.node, worker))
        except Exception as error:  # Ray was shut down under this thread
            ended = Ended(f"{type(error).__name__}: {error}")
        self._arrived.put((worker, ended))

    # -- messages -----------------------------------------------------------------------------------------------------

    def _hear_frame(self, worker: int, message: Heard) -> None:
        handle = self._handles.get(worker)
        if handle is None:
            return  # its node was lost
        handle.heard = self._book.came(worker, handle.heard, message.refs)
        self._book.unspoken(worker, message.freed)
        for one in _decoder.decode(message.frame):
            if isinstance(one, msg.CannotStart):
                handle.ending = True
            self._hear(worker, one)

    def _hear_started(self, worker: int, message: msg.Started) -> None:
        super()._hear_started(worker, message)
        self._fleet.drop_spares()

    def _hear_failed(self, worker: int, message: msg.Failed) -> None:
        if message.error == PAYLOAD_LOST:
            self._events.extend(ev.PayloadLost(task) for task in message.tasks)
        super()._hear_failed(worker, message)

    def _hear_done(self, worker: int, message: msg.Done) -> None:
        if not self._collects:
            super()._hear_done(worker, message)
            return
        found = [self._with_results(told) for told in message.tasks]
        super()._hear_done(worker, msg.Done([told for told in found if told is not None]))
        lost = [told.task for told, kept in zip(message.tasks, found, strict=True) if kept is None]
        if lost:
            super()._hear_failed(worker, msg.Failed(lost, PAYLOAD_LOST, "what it returned is lost", fatal=False))

    def _hear_progress(self, worker: int, message: msg.Progress) -> None:
        super()._hear_progress(worker, msg.Progress(self._with_results(message.told) or _without(message.told)))

    def _hear_parked(self, worker: int, message: msg.Parked) -> None:
        super()._hear_parked(worker, msg.Parked(self._with_results(message.told) or _without(message.told)))

    def _with_results(self, told: msg.Told) -> msg.Told | None:
        """Results are fetched when they are told, since their node may go at any time. `None`: it has, and the unit
        starts again."""
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

    def _hear_ended(self, worker: int, message: Ended) -> None:
        handle = self._handles.pop(worker, None)
        if handle is None or handle.node in self._lost_nodes:
            return  # told with its node
        self._dirty.pop(worker, None)
        if message.autopsy is None and message.reason and not self._closed:
            self._hear_node_gone(worker, NodeGone(handle.node, message.reason))
            return
        kill_actor(handle.actor)
        expected = handle.ending or (not message.reason and self._closed)
        autopsy = message.autopsy or Autopsy(None)
        reason, status = message.reason or "its actor ended", UNKNOWN_SIGNAL
        if autopsy.crashed_with:
            status = -autopsy.crashed_with
            reason = f"its process was killed by {signal.Signals(autopsy.crashed_with).name}"
        gone = Gone(expected, reason, status, autopsy.overdue)
        found = self._coroner.examine(worker, gone, None if expected else autopsy.note)
        self._forget_worker(worker)
        if expected:
            self._fleet.forget(handle.node, worker)
        else:
            self._events.append(ev.WorkerLost(worker, found.reason, found.blamed, found.condemned))

    def _hear_node_up(self, worker: int, message: NodeUp) -> None:
        self._lost_nodes.discard(message.spec.node)  # it came back
        self._events.append(ev.NodeJoined(message.spec.node, message.spec))

    def _hear_node_gone(self, worker: int, message: NodeGone) -> None:
        """All workers of the node are lost with it, and what they made. That is told first, so that nobody is given
        what cannot be read."""
        if message.node in self._lost_nodes:
            return
        self._lost_nodes.add(message.node)
        self._fleet.lose(message.node)
        made = self._made_on.pop(message.node, set())
        self._events.extend(ev.PayloadLost(task) for task in self._book.made_by(made))
        self._events.append(ev.NodeLost(message.node, message.reason))
        for lost in [number for number, handle in self._handles.items() if handle.node == message.node]:
            kill_actor(self._handles.pop(lost).actor)  # where only the agent has died
            self._dirty.pop(lost, None)
        for handle in self._handles.values():
            handle.actor.lose.remote(sorted(made))  # one that waits for such a payload need not wait for Ray
        for lost in made:
            self._forget_worker(lost)


def _without(told: msg.Told) -> msg.Told:
    """What is told about a task, without what it emitted."""
    return replace(told, outputs=[])


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0]
