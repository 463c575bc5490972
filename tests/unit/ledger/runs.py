# SPDX-License-Identifier: Apache-2.0
"""Small runs, written by hand: what the driver and a worker do to the ledger, without either of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from tests.unit.core.json_batches import batch_of_lines
from thresher.core.tally import StageTally, Tally
from thresher.core.unit import Piece, Unit, unit_id
from thresher.ledger.folder.open_run import OpenRun
from thresher.ledger.folder.opening import RunRequest, open_run
from thresher.ledger.parts import join
from thresher.ledger.records import CommitRecord
from thresher.ledger.unit_output import UnitOutput
from thresher.stages.io.jsonl.writer import JsonlWriter

FINGERPRINT = {"version": "0.1", "stages": "s", "Words.parameters": "p", "Words.code": "c"}


def request(output: os.PathLike[str] | str, **changes: Any) -> RunRequest:
    """What a run of a small pipeline asks for."""
    given: dict[str, Any] = {
        "name": "words",
        "sink_path": str(output),
        "extension": ".jsonl",
        "fingerprint": FINGERPRINT,
        "executor": "local",
    }
    return RunRequest(**(given | changes))


def units(count: int, name: str = "a.jsonl", version: str = "1") -> list[Unit]:
    """Consecutive units of one file."""
    piece = Piece(f"in/{name}", name, 100, version)
    return [Unit(unit_id(name, k), (0, k), (piece,), name.split(".")[0]) for k in range(count)]


def lines_of(unit: Unit) -> list[bytes]:
    """The records of a unit; every fourth unit has none."""
    number = unit.order[1]
    return [] if number % 4 == 3 else [json.dumps({"unit": number, "row": row}).encode() for row in range(2 + number)]


def tally_of(unit: Unit) -> Tally:
    """What happened to the records of a unit: besides those that were written, one was dropped and one failed."""
    count = len(lines_of(unit))
    return Tally(read=count + 2, written=count, stages={1: StageTally(dropped=1, quarantined=1)})


def commit(run: OpenRun, unit: Unit, epoch: int = 0) -> CommitRecord:
    """What a worker does to a unit."""
    output = UnitOutput(run.target, JsonlWriter("unused"), unit, epoch)
    output.write(batch_of_lines(lines_of(unit)))
    output.quarantine([b'{"id": "%s"}' % unit.id.encode()])
    output.dropped([b'{"dropped": "%s"}' % unit.id.encode()])
    return output.commit(tally_of(unit))


def commit_all(run: OpenRun, listed: Iterable[Unit]) -> None:
    """What a driver does with what is left, up to the joins."""
    listed = list(listed)
    run.record_units(listed, last=True)
    first = True
    for number, unit in enumerate(listed):
        if unit.id not in run.committed:
            if first:
                run.before_first_commit()
                first = False
            commit(run, unit)
            run.fold(unit.id)
            if number % 3 == 1:
                run.sync()
    for unit in run.join_units():
        if first:
            run.before_first_commit()
            first = False
        run.fold(unit.id, join(run.target, JsonlWriter("unused"), unit))


def whole_run(asked: RunRequest, count: int = 6) -> OpenRun:
    """A run from its opening to its end."""
    run = open_run(asked)
    commit_all(run, units(count))
    run.finish("finished", 0)
    return run


def files_below(folder: os.PathLike[str] | str) -> dict[str, bytes]:
    """Every file below a folder by its relative path."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found


def result_of(folder: os.PathLike[str] | str) -> dict[str, Any]:
    """What must be the same however often a run was interrupted: all files but those that tell about attempts."""
    files = {name: data for name, data in files_below(folder).items() if "/old/" not in name}
    ledger = [json.loads(line) for name in sorted(files) if "/ledger/" in name for line in files[name].splitlines()]
    kept = {name: data for name, data in files.items() if "/ledger/" not in name and not name.endswith("run.json")}
    return {"files": kept, "ledger": sorted((line["unit"], line["outputs"], line["read"]) for line in ledger)}
