# SPDX-License-Identifier: Apache-2.0
"""The floor of every copy: whole files moved by plain processes in large blocks, each flushed to disk.

Usage: raw_copy.py INPUT_FOLDER OUTPUT_FOLDER PROCESSES
"""

from __future__ import annotations

import os
import sys

BLOCK_BYTES = 8_000_000


def copy_file(source: str, target: str) -> None:
    """Copy one file and flush it."""
    block = bytearray(BLOCK_BYTES)
    view = memoryview(block)
    with open(source, "rb", buffering=0) as reader, open(target, "wb", buffering=0) as writer:
        while count := reader.readinto(block):
            writer.write(view[:count])
        os.fsync(writer.fileno())


def main() -> int:
    source, target, processes = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.makedirs(target)
    names = sorted(name for name in os.listdir(source) if not name.startswith((".", "_")))
    pids = []
    for number in range(processes):
        pid = os.fork()
        if pid == 0:
            for name in names[number::processes]:
                copy_file(os.path.join(source, name), os.path.join(target, name))
            os._exit(0)
        pids.append(pid)
    return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)


if __name__ == "__main__":
    sys.exit(main())
