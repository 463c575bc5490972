# SPDX-License-Identifier: Apache-2.0
"""Random kills: run after run is disturbed until it is finished all the same, and compared with a calm one."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.faults.disturbed import Attempt, Disturbed, Scene, Tally

STORMED = ("one-call", "own-workers", "phases", "deduplication", "outlets")
"""Shapes that random kills are tried on."""
VICTIMS = ("worker", "worker", "worker", "all workers", "zygote", "driver", "driver")
"""Who may be killed, some more often than others."""


def kill_until_finished(run: Disturbed, chance: random.Random) -> Counter[str]:
    """Kill processes of a run at random moments until it is finished all the same; who was killed."""
    killed: Counter[str] = Counter()
    while True:
        with run.start(SLOW_S=str(chance.choice((0.02, 0.05, 0.1)))) as attempt:
            # Two at most in one attempt: a unit whose third worker dies is taken for the one that kills them.
            for _ in range(chance.choice((0, 1, 1, 2, 2, 2))):
                victim = chance.choice(VICTIMS)
                if victim != "driver":
                    attempt.wait_for(attempt.zygote if victim == "zygote" else attempt.workers, "somebody to kill")
                wait_for_a_moment(attempt, chance)
                if kill(attempt, victim, chance):
                    killed[victim] += 1
            if attempt.finish()[0] == 0:
                return killed


def wait_for_a_moment(attempt: Attempt, chance: random.Random) -> None:
    """Anywhere in the run: soon after the start, or around a commit, of which there is one for every file."""
    if chance.random() < 0.3:
        time.sleep(chance.uniform(0.0, 0.6))  # the moment itself is what is random
        return
    attempt.wait_for_more_files(chance.randint(0, 4))
    time.sleep(chance.uniform(0.0, 0.06))


def storm(
    scene: Scene, folder: Path, kills: int, seed: int, shapes: Sequence[str] = STORMED
) -> tuple[Counter[str], Tally]:
    """Disturb one run after the other until so many processes were killed; who, and what went wrong."""
    chance = random.Random(seed)
    killed: Counter[str] = Counter()
    tally = Tally()
    while killed.total() < kills:
        run = scene.disturbed(folder / uuid.uuid4().hex, chance.choice(shapes))
        killed += kill_until_finished(run, chance)
        tally.add(run.differences())
        if run.tally.is_clean():
            shutil.rmtree(run.folder)
        else:
            sys.stderr.write(f"seed {seed}: {run.tally}: {run.folder}\n")
    return killed, tally


def kill(attempt: Attempt, victim: str, chance: random.Random) -> bool:
    """SIGKILL; whether there was anybody."""
    if victim == "driver":
        if attempt.alive():
            attempt.kill()
            return True
        return False
    pids = attempt.zygote() if victim == "zygote" else attempt.workers()
    if victim == "worker" and pids:
        pids = [chance.choice(pids)]
    killed = False
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
            killed = True
        except ProcessLookupError:
            continue
    return killed
