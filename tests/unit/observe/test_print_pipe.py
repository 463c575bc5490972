# SPDX-License-Identifier: Apache-2.0
"""What workers print arrives in whole lines, and a worker that prints too much waits instead of failing."""

from __future__ import annotations

import os
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from thresher.observe.print_pipe import PrintPipe


@given(st.lists(st.text(st.characters(exclude_categories=["C"], exclude_characters="\u2028\u2029"))), st.data())
def test_lines_come_back_whole_however_they_were_cut(lines: list[str], data: st.DataObject) -> None:
    pipe = PrintPipe()
    rest = "".join(f"{line}\n" for line in lines).encode()
    found: list[str] = []
    while rest:
        cut = data.draw(st.integers(1, len(rest)))
        os.write(pipe.write_fd, rest[:cut])
        rest = rest[cut:]
        found += pipe.lines()
    pipe.close()
    assert [line for line in found if line] == [line for line in lines if line]


def test_a_line_without_an_end_waits_until_all_is_asked_for() -> None:
    pipe = PrintPipe()
    os.write(pipe.write_fd, b"one\ntw")
    assert pipe.lines() == ["one"]
    assert pipe.lines() == []
    os.write(pipe.write_fd, b"o")
    assert pipe.lines(all_of_it=True) == ["two"]
    assert pipe.lines(all_of_it=True) == []
    pipe.close()


def test_bytes_that_are_no_text_do_no_harm() -> None:
    pipe = PrintPipe()
    os.write(pipe.write_fd, b"gr\xc3\xbcn \xff\n")
    assert pipe.lines() == ["grün \ufffd"]
    pipe.close()


def test_a_worker_that_prints_more_than_fits_waits_for_room() -> None:
    pipe = PrintPipe()
    script = "import sys\nfor n in range(300_000): print(n)\n"
    worker = subprocess.Popen([sys.executable, "-c", script], stdout=pipe.write_fd, stderr=pipe.write_fd)
    found: list[str] = []
    while worker.poll() is None:
        found += pipe.lines()
    found += pipe.lines()
    pipe.close()
    assert worker.returncode == 0
    assert found == [str(n) for n in range(300_000)]
