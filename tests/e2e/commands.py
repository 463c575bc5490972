# SPDX-License-Identifier: Apache-2.0
"""Commands that tests give in their own process, because to start one for each takes most of the time."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from thresher.cli.main import main


def thresher(folder: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `thresher …` in a folder whose module of stages is imported anew."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        sys.modules.pop(module, None)
        code = main(list(arguments))
        sys.modules.pop(module, None)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
