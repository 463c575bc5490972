# SPDX-License-Identifier: Apache-2.0
"""The dashboard of a run in a process of its own beside the driver, which must not wait for a browser."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator

START_S = 20.0
"""Time for the dashboard to say its address."""
END_S = 3.0
"""Time for it to end."""


@contextlib.contextmanager
def dashboard_beside(run_dir: str) -> Iterator[str]:
    """Serve a run folder until the block ends; yield the address, or an empty text if there is none."""
    # -P: a folder or file `thresher` in the current folder is not what is meant.
    command = [sys.executable, "-P", "-m", "thresher", "dashboard", run_dir, "--wait", "--until-eof", "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            yield _address(process)
        finally:
            assert process.stdin is not None, "it is a pipe"
            process.stdin.close()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _address(process: subprocess.Popen[bytes]) -> str:
    """Return the address that the dashboard prints; empty if it ends or says nothing."""
    assert process.stdout is not None, "it is a pipe"
    ready, _, _ = select.select([process.stdout], [], [], START_S)
    line = os.read(process.stdout.fileno(), 4096) if ready else b""
    try:
        return str(json.loads(line)["url"])
    except (ValueError, KeyError, TypeError):
        return ""
