# SPDX-License-Identifier: Apache-2.0
"""How pytest-xdist distributes tests over the processes that run them."""

from __future__ import annotations

import re

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

ON_RAY = re.compile(r"tests/contract/.*\[(ray|actor-pool|ray-data|xenna)\b")
LONGEST_FIRST = ("ray", "tests/contract/", "tests/faults/", "tests/e2e/", "tests/simulate/", "")
"""Beginnings of groups. What comes last should be short: while it runs, the other processes have nothing to do."""


class ByFile(LoadScopeScheduling):
    """Keep the tests of a file in one process, so that what they share is made once.

    The tests of the contract suite that run on Ray are a group too: one process starts Ray once for all of them.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "ray" if ON_RAY.match(nodeid) else nodeid.partition("::")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        def rank(group: str) -> int:
            return next(place for place, start in enumerate(LONGEST_FIRST) if group.startswith(start))

        self.workqueue.move_to_end(min(self.workqueue, key=rank), last=False)
        super()._assign_work_unit(node)
