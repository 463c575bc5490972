# SPDX-License-Identifier: Apache-2.0
"""View of a run, live or ended, from its run folder, as JSON. It is read again at most twice a second, and only what
was added."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from thresher.core.files.filesystem import is_url
from thresher.dashboard.gantt import Gantt
from thresher.ledger.folder.request import RUN_FILE, Attempt, RunState, read_state
from thresher.ledger.stores.store import Store, open_store
from thresher.observe.bottleneck import advise
from thresher.observe.event_log import NOW, TIMELINE, Moment, read_timeline
from thresher.observe.follow import LogTail
from thresher.observe.report_page.page import joined, most_workers, rates

REFRESH_S = 0.5
"""Time for which what was read is shown again."""
GANTT_S = 1.0
"""Time for reading the event log in one call."""
SILENT_S = 60.0
"""A driver that has written nothing for this long, although it does so every second, may have been killed."""
MOST_POINTS = 300
"""Points of a curve; of more, the largest of each stretch is sent."""


class AttemptFiles:
    """Files that the driver of one attempt leaves beside its event log."""

    def __init__(self, store: Store, number: int) -> None:
        self._store = store
        self._folder = f"events/{number:03d}"
        self._path = "" if is_url(store.root) else os.path.join(store.root, self._folder)
        self._offset = 0
        self._rest = b""
        self.moments: list[Moment] = []
        self.tail = LogTail(self._path) if self._path else None
        self.gantt = Gantt()
        self._lines: Iterator[bytes] = iter(())

    def read_log(self, most_s: float) -> bool:
        """Read what was added to the event log, for at most `most_s` seconds; return True if that was all of it."""
        assert self.tail is not None, "checked by the caller"
        end = time.monotonic() + most_s
        for lines in (self._lines, self.tail.read()):
            self._lines = lines
            for place, line in enumerate(lines):
                self.gantt.take(line)
                if place % 1000 == 999 and time.monotonic() > end:
                    return False
        return True

    def refresh(self) -> None:
        """Read the samples that were added to the timeline."""
        if not self._path:
            if not self.moments:
                self.moments = read_timeline(self._store.read(f"{self._folder}/{TIMELINE}") or b"")
            return
        try:
            with open(os.path.join(self._path, TIMELINE), "rb") as file:
                file.seek(self._offset)
                added = file.read()
        except OSError:
            return
        self._offset += len(added)
        whole, _, self._rest = (self._rest + added).rpartition(b"\n")
        self.moments += read_timeline(whole)

    def now(self) -> tuple[dict[str, Any], float]:
        """Return the last snapshot, and how many seconds ago it was written."""
        try:
            found = msgspec.json.decode(self._store.read(f"{self._folder}/{NOW}") or b"{}")
            age_s = time.time() - os.stat(os.path.join(self._path, NOW)).st_mtime if self._path else 0.0
        except (msgspec.DecodeError, RecursionError, OSError):
            return {}, 0.0
        return (found, age_s) if isinstance(found, dict) else ({}, 0.0)


class RunView:
    """A run folder, as the dashboard shows it. Its methods may be called from several threads."""

    def __init__(self, run_dir: str, options: dict[str, Any] | None = None) -> None:
        self.run_dir = run_dir
        self.options = dict(options or {})
        self.store = open_store(run_dir, self.options)
        self._lock = threading.Lock()
        self._gantt_lock = threading.Lock()
        self._attempts: dict[int, AttemptFiles] = {}
        self._read_at = -REFRESH_S
        self._state: dict[str, Any] = {"status": "waiting"}

    # -- what is shown ------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the state of the run."""
        with self._lock:
            if time.monotonic() - self._read_at >= REFRESH_S:
                self._state = self._read()
                self._read_at = time.monotonic()
            return self._state

    def timeline(self) -> dict[str, Any]:
        """Return the timeline of all attempts, each behind the other, with few points."""
        self.state()
        with self._lock:
            moments = joined([files.moments for files in self._attempts.values()])
            ends = [files.moments[-1].t for files in self._attempts.values() if files.moments]
        docs, nbytes = rates(moments, "docs"), rates(moments, "nbytes")
        places = fewer(len(moments), lambda place: docs[place])
        return {
            "t": [round(moments[place].t, 2) for place in places],
            "docs": [round(docs[place], 2) for place in places],
            "bytes": [round(nbytes[place]) for place in places],
            "memory": [moments[place].memory for place in places],
            "inflight": [moments[place].inflight for place in places],
            "busy": [moments[place].busy for place in places],
            "workers": [moments[place].workers for place in places],
            "borders": [round(sum(ends[: n + 1]), 2) for n in range(len(ends) - 1)],
        }

    def gantt(self) -> dict[str, Any]:
        """Return who used which accelerator in the last attempt, as far as its event log was read: a long one takes
        several calls."""
        self.state()
        files = next(reversed(self._attempts.values()), None)
        if files is None or files.tail is None or not self._uses_devices():
            return {"lanes": [], "width_s": 1.0, "t": 0.0, "more": 0, "complete": True}
        with self._gantt_lock:
            complete = files.read_log(GANTT_S)
            return {**files.gantt.as_json(), "complete": complete}

    def json(self, name: str) -> dict[str, Any]:
        """Return the content of a JSON file of the run folder; an empty dict if it is missing or damaged."""
        try:
            found = msgspec.json.decode(self.store.read(name) or b"{}")
        except (msgspec.DecodeError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    # -- reading ------------------------------------------------------------------------------------------------------

    def _uses_devices(self) -> bool:
        return any(op.get("on_device") for op in self.json("plan.json").get("ops", ()))

    def _read(self) -> dict[str, Any]:
        run = read_state(self.store.read(RUN_FILE))
        if run is None or not run.attempts:
            return {"status": "waiting"}
        for attempt in run.attempts:
            files = self._attempts.setdefault(attempt.number, AttemptFiles(self.store, attempt.number))
            if attempt is run.attempts[-1] or not files.moments:
                files.refresh()
        last = run.attempts[-1]
        now, age_s = self._attempts[last.number].now()
        report = self.json("report.json") if last.end else {}
        plan = self.json("plan.json")
        moments = joined([files.moments for files in self._attempts.values()])
        advice = None
        if report.get("stages"):
            now = _of_report(report, now)
            advice = advise(report, plan, most_workers(moments)).text
        return {
            **now,
            "status": _status(last, age_s) if not report else report.get("status", last.status),
            "run": _facts(run, self.run_dir),
            "plan": {"groups": plan.get("groups", []), "rules": [rule["column"] for rule in plan.get("rules", ())]},
            "advice": advice,
            "error": report.get("error"),
            "charts": {s["name"]: s["charts"] for s in report.get("stages", ()) if s.get("charts")},
            "has": {
                "scores": run.keep_scores,
                "dropped": bool(run.dropped_to),
                "devices": any(op.get("on_device") for op in plan.get("ops", ())),
            },
        }


def _of_report(report: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return the last snapshot with the numbers of the report, which counts committed units alone."""
    stages = {stage["name"]: stage for stage in now.get("stages", ())}
    reasons: dict[str, dict[str, dict[str, int]]] = {}
    for key, field in (("drop_reasons", "drop_reasons"), ("quarantine_reasons", "quarantine_reasons")):
        for reason, n in report.get(key, {}).items():
            stage, _, rule = reason.partition("/")
            reasons.setdefault(stage, {}).setdefault(field, {})[rule] = n
    empty: dict[str, Any] = {"drop_reasons": {}, "quarantine_reasons": {}, "queue_tasks": 0, "workers_busy": 0}
    merged = [{**stages.get(s["name"], {}), **s, **empty, **reasons.get(s["name"], {})} for s in report["stages"]]
    done = report["status"] in ("finished", "nothing-to-do")
    return {
        **now,
        "stages": merged,
        "counts": report["counts"],
        "elapsed_s": report["wall_s"],
        "units_resumed": report["units_resumed"],
        "memory_peak_bytes": report["peak_memory_bytes"],
        "memory_limit_bytes": report["memory_limit_bytes"],
        "quarantined": report["counts"]["quarantined"],
        **(_all_done(report, now) if done else {}),
    }


def _all_done(report: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return the progress of a run that is finished; its units are those of the input."""
    units, phases = report["units_total"], now.get("phases", 1)
    facts = {"units_done": units, "units_listed": units, "phase": phases, "listing_complete": True}
    return {**facts, "progress_ratio": 1.0, "eta_s": 0.0}


def _facts(run: RunState, run_dir: str) -> dict[str, Any]:
    return {
        "id": run.run_id,
        "name": run.name,
        "folder": run_dir,
        "fingerprint": run.fingerprint,
        "versions": run.versions,
        "output": run.output,
        "attempts": msgspec.to_builtins(run.attempts[-20:]),
    }


def _status(last: Attempt, age_s: float) -> str:
    """Return the state of an attempt: `running`, how it ended, or `killed` if nothing says that it ended."""
    if last.end is not None:
        return last.status or "stopped"
    if last.host == os.uname().nodename:
        try:
            os.kill(last.pid, 0)
        except ProcessLookupError:
            return "killed"
        except PermissionError:
            pass  # another user's process is alive, too
    return "running" if age_s < SILENT_S else "silent"


def fewer(count: int, value: Callable[[int], float], most: int = MOST_POINTS) -> Sequence[int]:
    """Return at most `most` of `count` places: of each stretch the one with the largest value, and the last one."""
    step = -(-count // most) if count else 1
    if step == 1:
        return range(count)
    found = [max(range(start, min(start + step, count)), key=value) for start in range(0, count, step)]
    return [*found[:-1], count - 1]
