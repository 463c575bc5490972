# SPDX-License-Identifier: Apache-2.0
"""What workers print arrives in whole lines, and a worker that prints too much waits instead of failing."""

from __future__ import annotations

import os
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from thresher.observe.terminal import PrintPipe


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


def test_of_a_line_that_is_drawn_in_place_the_last_picture_is_kept_and_it_is_no_line_until_it_ends() -> None:
    pipe = PrintPipe()
    os.write(pipe.write_fd, b"begins\n\r\033[K 10%\r\033[K 20%")
    assert pipe.lines() == ["begins"]
    assert pipe.bar() == " 20%"
    os.write(pipe.write_fd, b"\r\033[K 30%")
    assert pipe.lines() == []
    assert pipe.bar() == " 30%"
    os.write(pipe.write_fd, b"\r\033[Kdone\n")
    assert pipe.lines() == ["done"]
    assert pipe.bar() == ""
    os.write(pipe.write_fd, b"tqdm: 1%\rtqdm: 2%\r")
    assert pipe.lines() == []
    assert pipe.bar() == "tqdm: 2%"
    assert pipe.lines(include_partial=True) == [], "nothing is left of a bar that was not ended"
    pipe.close()


def test_a_line_without_an_end_waits_until_all_is_asked_for() -> None:
    pipe = PrintPipe()
    os.write(pipe.write_fd, b"one\ntw")
    assert pipe.lines() == ["one"]
    assert pipe.lines() == []
    os.write(pipe.write_fd, b"o")
    assert pipe.lines(include_partial=True) == ["two"]
    assert pipe.lines(include_partial=True) == []
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
