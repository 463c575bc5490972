# SPDX-License-Identifier: Apache-2.0
"""The traces of a run in its run folder, which may lie behind a URL."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from datetime import datetime

from thresher.core.arguments.options import RunOptions
from thresher.core.arguments.sizes import counted
from thresher.core.files.filesystem import is_url
from thresher.credentials import error_line
from thresher.errors import UsageError
from thresher.ledger.folder.open_run import OpenRun
from thresher.ledger.folder.request import RUN_FILE, Attempt, RunState, read_state
from thresher.ledger.stores.store import Store
from thresher.observe.otlp import send
from thresher.observe.progress import make_progress
from thresher.observe.tracing import TASKS, Trace, TracedAttempt, trace_attempt


@contextlib.contextmanager
def sending_trace(run: OpenRun, options: RunOptions) -> Iterator[None]:
    """Send the trace of an attempt that the block makes, however it ends; what a collector does must not fail it."""
    try:
        yield
    finally:
        if run.store is not None:
            try:
                trace = read_trace(run.store, run.attempt)
                text = f"{counted(len(trace.spans), 'span')} of trace {trace.trace_id} sent to {send(trace)}"
            except Exception as error:
                text = f"warning: no trace: {error_line(error)}"
            make_progress(options.progress).message(text)


def read_trace(store: Store, number: int | None = None, most_tasks: int = TASKS) -> Trace:
    """Return the trace of an attempt, by default of the last one. Raise if it has no event log."""
    state = read_state(store.read(RUN_FILE))
    if state is None or not state.attempts:
        raise UsageError(f"{store.root}: no readable {RUN_FILE} here, so this is not a run folder")
    attempt = _attempt(state, number)
    events = f"events/{attempt.number:03d}"
    facts = TracedAttempt(
        run_id=state.run_id,
        number=attempt.number,
        start_s=datetime.fromisoformat(attempt.start).timestamp(),
        status=attempt.status,
    )
    with tempfile.TemporaryDirectory(prefix="thresher-trace-") as copy:
        folder = os.path.join(store.root, events)
        if is_url(store.root):
            folder = copy
            _fetch(store, events, copy)
        trace = trace_attempt(folder, facts, most_tasks)
    if trace is None:
        raise UsageError(
            f"{store.root} has no event log of attempt {attempt.number}; a run on an object store uploads it at its end"
        )
    return trace


def _attempt(state: RunState, number: int | None) -> Attempt:
    for attempt in state.attempts:
        if attempt.number == number or (number is None and attempt is state.attempts[-1]):
            return attempt
    has = ", ".join(str(attempt.number) for attempt in state.attempts)
    raise UsageError(f"--attempt {number}: the run has no such attempt. It has: {has}")


def _fetch(store: Store, events: str, folder: str) -> None:
    """Copy the segments of an event log into a local folder."""
    for name in store.names(events):
        if name.endswith(".zst"):
            with open(os.path.join(folder, os.path.basename(name)), "wb") as file:
                file.write(store.read(f"{events}/{name}") or b"")
