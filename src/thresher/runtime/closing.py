# SPDX-License-Identifier: Apache-2.0
"""Close what an attempt of a run has opened, however it ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thresher.core.arguments.options import RunOptions
from thresher.errors import ThresherError
from thresher.ledger.folder.open_run import OpenRun
from thresher.runtime.cluster import Cluster

if TYPE_CHECKING:
    from thresher.runtime.run import RunAttempt


@dataclass
class Parts:
    """Resources to close when an attempt ends, as far as they were created."""

    cluster: Cluster | None = None
    """The workers."""
    attempt: RunAttempt | None = None
    """The attempt, with its progress display."""


@contextlib.contextmanager
def closing_attempt(run: OpenRun) -> Iterator[Parts]:
    """Close everything however the block ends; if it fails, record the exit code in the run folder."""
    parts = Parts()
    exit_code = 1
    try:
        yield parts
        exit_code = 0
    except ThresherError as error:
        exit_code = error.exit_code
        raise
    except KeyboardInterrupt:
        exit_code = 130
        raise
    except SystemExit:
        exit_code = 143
        raise
    finally:
        if parts.cluster is not None:
            parts.cluster.close(kill=exit_code != 0)
        if parts.attempt is not None:
            parts.attempt.progress.close()
        if exit_code:
            run.abandon(exit_code)


def trace_at_end(run: OpenRun, options: RunOptions) -> contextlib.AbstractContextManager[None]:
    """Return what sends the trace of the attempt after its end, if that is wanted."""
    if not options.otel:
        return contextlib.nullcontext()
    from thresher.runtime.traces import sending_trace

    return sending_trace(run, options)
