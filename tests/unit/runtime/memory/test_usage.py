# SPDX-License-Identifier: Apache-2.0
"""Memory is measured as the kernel counts it, and limits of control groups are respected."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from thresher.runtime.memory import usage as memory


def test_the_smallest_limit_on_the_way_to_the_root_counts(tmp_path: Path) -> None:
    groups = tmp_path / "sys"
    (groups / "a" / "b").mkdir(parents=True)
    (groups / "a" / "memory.max").write_text("5000\n")
    (groups / "a" / "b" / "memory.max").write_text("max\n")
    own = tmp_path / "cgroup"
    own.write_text("0::/a/b\n")
    assert memory._group_limits(str(groups), str(own)) == [5000]


def test_limits_of_the_first_version_of_control_groups_count(tmp_path: Path) -> None:
    (tmp_path / "memory" / "a").mkdir(parents=True)
    (tmp_path / "memory" / "a" / "memory.limit_in_bytes").write_text("7000\n")
    own = tmp_path / "cgroup"
    own.write_text("3:cpu,cpuacct:/x\n2:memory:/a\n")
    assert memory._group_limits(str(tmp_path), str(own)) == [7000]


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert memory._group_limits(str(tmp_path), str(tmp_path / "missing")) == []


def test_a_run_takes_a_share_of_what_there_is() -> None:
    assert 0 < memory.default_memory() < memory.available_memory()


def test_a_process_that_is_gone_takes_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    assert memory.private_bytes(process.pid) == 0
    assert memory.proportional_bytes(process.pid) is None
    assert memory.TreeMeter().measure([process.pid], 0.0) == 0


def test_the_meter_agrees_with_the_kernel_and_sees_descendants() -> None:
    """A child and its child hold 40 MB each."""
    hold = "import os, sys; data = b'x' * 40_000_000; child = {child}; print('ready', flush=True); sys.stdin.read()"
    inner = hold.format(child="None")
    child = f"__import__('subprocess').Popen([sys.executable, '-c', {inner!r}])"
    process = subprocess.Popen(
        [sys.executable, "-c", hold.format(child=child)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    for _ in range(2):
        assert process.stdout.readline() == "ready\n"
    pids = [process.pid, *memory.children_of(process.pid)]
    assert len(pids) == 2
    exact = sum(memory.proportional_bytes(pid) or 0 for pid in pids)
    measured = memory.TreeMeter().measure([process.pid], 0.0)
    assert measured > 80_000_000
    assert abs(measured - exact) < 0.1 * exact
    assert abs(memory.TreeMeter().measure(pids, 0.0) - exact) < 0.1 * exact, "a process was counted twice"
    process.communicate("")


def test_memory_that_was_freed_goes_back() -> None:
    code = (
        "from thresher.runtime.memory.usage import MemoryKeeper, private_bytes\n"
        "keeper = MemoryKeeper()\n"
        "data = [b'%d' % n * 20 for n in range(1_500_000)]\n"
        "full = private_bytes()\n"
        "del data\n"
        "keeper.tidy()\n"
        "print(full, private_bytes())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    full, left = map(int, done.stdout.split())
    assert left < full - 64 * 2**20


def test_our_own_children_are_found() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert process.pid in memory.children_of(os.getpid())
    process.communicate(b"\n")


def test_each_process_is_told_with_what_is_below_it_and_nothing_is_counted_twice() -> None:
    hold = "import sys; data = b'x' * {size}; print('ready', flush=True); sys.stdin.read()"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", hold.format(size=size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for size in (20_000_000, 60_000_000)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    first, second = (process.pid for process in processes)
    used = memory.TreeMeter().measure_each([os.getpid(), first, second], 0.0)
    assert used[second] - used[first] > 30_000_000
    alone = memory.TreeMeter().measure_each([os.getpid(), first], 0.0)
    assert alone[os.getpid()] - used[os.getpid()] > 50_000_000, "what nobody else is asked about is ours"
    for process in processes:
        process.communicate("")


def test_the_share_of_a_worker_is_enough_for_the_largest_record_that_must_be_worked_on() -> None:
    for workers in (1, 2, 8, 64):
        share = memory.worker_share(16_000, workers)
        assert share >= 6 * 1000
        assert share <= 16_000
    assert memory.worker_share(16_000, 1) == 10_000


KEEPER = """
import pyarrow
from thresher.runtime.memory.usage import MemoryKeeper, WorkerFull
keeper = MemoryKeeper({share})
print(keeper.before_call(10.0))
kept = [bytearray(b'x' * 1_000_000) for _ in range({kept})]
said = [keeper.between_chunks(at) // 10_000_000 for at in (20.0, 20.5, 21.5)]
print(*said, keeper.before_call(30.0) // 10_000_000)
try:
    keeper.raise_if_full()
except WorkerFull as full:
    print(full)
"""


def keeper_says(share: int, kept: int) -> list[str]:
    code = KEEPER.format(share=share, kept=kept)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_worker_that_keeps_most_of_its_share_says_so_once_a_second() -> None:
    said = keeper_says(share=100_000_000, kept=95)
    assert said[0] == "0"
    assert said[1] == "9 0 9 9"
    assert said[2].startswith("the worker had kept 9")


def test_a_worker_with_little_or_without_a_limit_says_nothing() -> None:
    assert keeper_says(share=100_000_000, kept=20) == ["0", "0 0 0 0"]
    assert keeper_says(share=0, kept=95) == ["0", "0 0 0 0"]


def test_a_worker_makes_no_call_that_would_fill_its_share_if_it_keeps_as_much_as_the_last_one() -> None:
    said = keeper_says(share=100_000_000, kept=55)
    assert said[1] == "0 0 0 5", "55 MB of 100 are not much, but the next call may take as many"


def test_beyond_its_limit_a_process_gets_a_memory_error_and_can_go_on() -> None:
    code = (
        "from thresher.runtime.processes.control import limit_private_memory\n"
        "limit_private_memory(200_000_000)\n"
        "kept = bytearray(100_000_000)\n"
        "try:\n"
        "    bytearray(300_000_000)\n"
        "except MemoryError:\n"
        "    print('no more')\n"
        "print(len(bytearray(50_000_000)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "no more\n50000000\n"


LATER = """
import os, sys
os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
from thresher.runtime.memory.usage import choose_pool_when_imported, release_freed
choose_pool_when_imported()
choose_pool_when_imported()
release_freed()
assert "pyarrow" not in sys.modules
import pyarrow, pyarrow.compute
said = os.environ["ARROW_DEFAULT_MEMORY_POOL"], "OMP_NUM_THREADS" in os.environ
print(pyarrow.default_memory_pool().backend_name, *said)
release_freed()
"""


def test_the_allocator_of_arrow_is_chosen_when_somebody_imports_it() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", LATER], capture_output=True, text=True, check=True, env=environment)
    import pyarrow as pa

    expected = "jemalloc" if "jemalloc" in pa.supported_memory_backends() else "system"
    assert done.stdout.split() == [expected, "system", "False"], "and the user's own settings are as they were"
