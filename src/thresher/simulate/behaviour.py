# SPDX-License-Identifier: Apache-2.0
"""Behaviour of simulated stages. The outputs of a task depend on its lineage and the seed, not on time or worker."""

from __future__ import annotations

from dataclasses import dataclass, field
from zlib import crc32

Path = tuple[int, ...]  # ordinals from the unit's root down


class RuleBroken(AssertionError):
    """The scheduler gave an action that no cluster could perform."""


@dataclass(frozen=True)
class OpBehaviour:
    """Behaviour of the tasks of one op. Ranges are inclusive; each task draws its own value."""

    duration_s: tuple[float, float] = (0.01, 0.01)  # time before each output, and before the end
    fan_out: tuple[int, int] = (1, 1)  # batches emitted by a task
    nbytes: tuple[int, int] = (100, 100)  # size of an emitted batch
    generator: bool = False  # emits batches one by one and parks without credit; otherwise all of them at its end
    failures: int = 0  # times that each task fails before it succeeds
    fail_after: int = 0  # outputs it has emitted when it fails
    setup_s: float | None = None  # setup time of a dedicated worker; None: `Behaviour.start_s`
    leak_bytes: int = 0  # memory that a worker keeps after each task
    grows_from: str = ""  # first unit, by name, whose tasks take longer; "": none do
    grows_by: float = 1.0  # how many times longer


@dataclass(frozen=True)
class Behaviour:
    """Behaviour of a simulated cluster."""

    ops: tuple[OpBehaviour, ...]  # one for each op of the run
    start_s: float = 0.1  # time until a worker is ready
    commit_s: float = 0.005  # time of a commit
    latency_s: float = 0.0  # delay of an action to a worker, and of an event from it
    crashes: tuple[tuple[float, int], ...] = ()  # (time, k): live worker k, modulo their number, crashes
    payload_losses: tuple[tuple[float, int], ...] = ()  # (time, k): live payload k, modulo their number, is lost
    memory: tuple[tuple[float, float], ...] = ()  # (time, share of the limit): a memory sample
    stop_s: float | None = None  # time of a StopRequested
    commit_failures: int = 0  # times that each commit fails before it succeeds
    node_losses: tuple[tuple[float, str, float], ...] = ()  # (time, node, time until it is back): a node is lost
    tick_s: float = 0.5  # time between two Ticks; 0: none
    worker_limit_bytes: int = 0  # memory above which a worker sends WorkerMemory; 0: never
    setup_failures: int = 0  # number of workers, the first ones, that cannot be set up
    stream_blocks: dict[str, int] = field(default_factory=dict)  # stream -> units it is cut into
    late_close: bool = False  # a stream closes a unit with an entry of its own, not with its last batch
    seed: int = 0  # changes every draw

    def draw(self, low: float, high: float, *what: object) -> float:
        """Return a number in a range that depends only on the seed and `what`."""
        if low == high:
            return low
        return low + (high - low) * (crc32(repr((self.seed, what)).encode()) / 0xFFFFFFFF)

    def sizes(self, op: int, unit: str, path: Path) -> list[int]:
        """Return the sizes of the batches that a task emits."""
        how = self.ops[op]
        count = round(self.draw(*how.fan_out, "count", op, unit, path))
        return [round(self.draw(*how.nbytes, "size", op, unit, path, n)) for n in range(count)]

    def duration_s(self, op: int, unit: str, path: Path, step: int) -> float:
        """Return the time of one step of a task."""
        how = self.ops[op]
        slower = how.grows_by if how.grows_from and unit >= how.grows_from else 1.0
        return slower * self.draw(*how.duration_s, "time", op, unit, path, step)

    def setup_s(self, op: int | None) -> float:
        """Return the setup time of a worker; None: of a shared one."""
        own = None if op is None else self.ops[op].setup_s
        return self.start_s if own is None else own

    def units_of_stream(self, stream: str) -> list[str]:
        """Return the units that a stream is cut into."""
        return [f"{stream}-{block:06d}" for block in range(self.stream_blocks.get(stream, 1))]
