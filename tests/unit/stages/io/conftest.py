# SPDX-License-Identifier: Apache-2.0
"""What tests of readers share."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest


@pytest.fixture
def run_python() -> Callable[[str], str]:
    """Runs a piece of code in a fresh interpreter and gives what it printed."""

    def run(code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True, timeout=100
        )
        return done.stdout

    return run
