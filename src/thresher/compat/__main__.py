# SPDX-License-Identifier: Apache-2.0
"""Run a script for another curator as it is: `python -m thresher.compat [--executor NAME] [--replace] script.py …`."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence

from thresher.compat.nemo.client import EXECUTOR
from thresher.compat.nemo.finder import install, installed_original
from thresher.core.registry import executor_fault
from thresher.errors import ThresherError, UsageError

USAGE = """\
usage: python -m thresher.compat [--executor NAME] [--replace] SCRIPT [ARGUMENT …]

Runs a script that imports nemo_curator; the script is not changed.

  --executor NAME  give the script this executor, whichever it asks for: local, serial, ray, actor-pool, …
  --replace        use Thresher although NeMo Curator is installed
"""


def main(arguments: Sequence[str]) -> int:
    """Run the script and return the exit code."""
    left = list(arguments)
    replace = False
    try:
        while left and left[0].startswith("-"):
            flag = left.pop(0)
            if flag in ("-h", "--help"):
                sys.stdout.write(USAGE)
                return 0
            if flag == "--replace":
                replace = True
            elif flag == "--executor" and left:
                fault = executor_fault(left[0])
                if fault:
                    raise UsageError(f"--executor: {fault}")
                os.environ[EXECUTOR] = left.pop(0)
            else:
                raise UsageError(f"{flag!r} is not a flag of thresher.compat.\n{USAGE}")
        if not left:
            raise UsageError(f"name the script.\n{USAGE}")
        _run(left, replace=replace)
    except ThresherError as error:
        sys.stderr.write(f"thresher: {error}\n")
        return error.exit_code
    return 0


def _run(command: list[str], *, replace: bool) -> None:
    install(replace=replace or None)
    if installed_original():
        sys.stderr.write("thresher: NeMo Curator is installed and runs the script; --replace lets Thresher run it\n")
    if not os.path.isfile(command[0]):
        raise UsageError(f"{command[0]}: there is no such script")
    sys.argv[:] = command
    sys.path[0] = os.path.dirname(os.path.abspath(command[0]))
    runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
