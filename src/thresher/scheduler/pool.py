# SPDX-License-Identifier: Apache-2.0
"""Workers that serve the same ops."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from thresher.scheduler.capacity import Need, need_of
from thresher.scheduler.model import OpSpec, RunSpec

if TYPE_CHECKING:
    from thresher.scheduler.state import Op, Worker


class Pool:
    """Workers that serve the same ops."""

    __slots__ = (
        "balances",
        "dedicated",
        "failed_before",
        "free",
        "inner",
        "leaving",
        "losses",
        "low_most",
        "low_since_s",
        "measured_setup",
        "need",
        "setup_failures",
        "setup_s",
        "size",
        "sources",
        "target",
        "up",
    )

    def __init__(self, ops: list[Op], own: OpSpec | None, spec: RunSpec) -> None:
        self.dedicated = None if own is None else own.index  # the op they serve; None: the shared workers
        self.need: Need = need_of(own)  # what one worker takes from its node
        self.balances = own is not None and own.dedicated_workers is None  # how many there are follows what is measured
        self.target = spec.shared_workers if own is None else own.dedicated_workers or 1  # workers it should have
        self.leaving = 0  # workers that get no new tasks
        self.setup_s = 0.0 if own is None else own.setup_s  # time that a worker takes to start
        self.measured_setup = False  # setup_s is no guess any more
        self.low_since_s = -1.0  # since when fewer workers would do; -1: they would not
        self.low_most = 0  # most workers that were good since then
        self.inner = [op for op in ops if not op.source]  # most downstream first
        self.sources = [op for op in ops if op.source]
        self.free: list[OrderedDict[int, Worker]] = [OrderedDict() for _ in range(spec.depth)]  # by groups held
        self.size = 0  # workers that are up or starting, those that leave included
        self.up = 0  # of these, workers that are ready
        self.setup_failures = 0  # in a row
        self.failed_before = 0  # workers from this number on were started after the last failure
        self.losses = 0  # workers lost since a task of this pool ended
