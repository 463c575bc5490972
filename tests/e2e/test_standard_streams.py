# SPDX-License-Identifier: Apache-2.0
"""Recipes in a pipe: standard input and standard output in place of files."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

RECIPE = """\
name: pipe
params: {input_path: "-", output_path: "-"}
stages:
  - JsonlReader: {file_paths: "${input_path}", blocksize: 100KB}
  - WordCountFilter: {min_words: 3}
  - JsonlWriter: {path: "${output_path}"}
"""
PRINTING = """\
from thresher import DocumentBatch, ProcessingStage


class Prints(ProcessingStage[DocumentBatch, DocumentBatch]):
    def process(self, task: DocumentBatch) -> DocumentBatch:
        print("printed by a stage")
        return task
"""
LINES = [json.dumps({"n": n, "text": "word " * (n % 40)}) for n in range(20_000)]
CONTENT = "".join(f"{line}\n" for line in LINES).encode()
KEPT = [n for n in range(20_000) if n % 40 >= 3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pipe.yaml").write_text(RECIPE)
    (tmp_path / "input.jsonl").write_bytes(CONTENT)
    return tmp_path


def thresher(
    folder: Path, *arguments: str, content: bytes | None = None, stdin: int | None = None
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "thresher", *arguments]
    stdin = None if content is not None else subprocess.DEVNULL if stdin is None else stdin
    return subprocess.run(
        command, cwd=folder, input=content, stdin=stdin, capture_output=True, timeout=100, check=False
    )


def into_full_disk(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "thresher", *arguments]
    with open("/dev/full", "wb") as full:
        return subprocess.run(
            command, cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True, timeout=100, check=False
        )


def numbers(output: bytes) -> list[int]:
    return [json.loads(line)["n"] for line in output.splitlines()]


@pytest.mark.parametrize("executor", ["local", "serial"])
def test_a_pipe_gives_the_bytes_that_files_would_have_in_input_order(folder: Path, executor: str) -> None:
    piped = thresher(folder, "run", "pipe.yaml", "--executor", executor, content=CONTENT)
    assert piped.returncode == 0, piped.stderr
    assert numbers(piped.stdout) == KEPT
    said = piped.stderr.decode()
    assert "cannot be resumed" in said
    assert "20,000 read" in said
    assert "standard output" in said
    assert sorted(path.name for path in folder.iterdir()) == ["input.jsonl", "pipe.yaml"]
    files = thresher(
        folder, "run", "pipe.yaml", "--executor", executor, "input_path=input.jsonl", "output_path=out", "--quiet"
    )
    assert files.returncode == 0, files.stderr
    written = b"".join(path.read_bytes() for path in sorted((folder / "out").glob("*.jsonl")))
    assert piped.stdout == written


@pytest.mark.parametrize(
    "pack", [gzip.compress, bz2.compress, lzma.compress, zstandard.compress], ids=["gzip", "bzip2", "xz", "zstd"]
)
def test_packed_input_is_recognised_by_its_first_bytes(folder: Path, pack: Callable[[bytes], bytes]) -> None:
    done = thresher(folder, "run", "pipe.yaml", "--executor", "serial", "--quiet", content=pack(CONTENT))
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    assert numbers(done.stdout) == KEPT


def test_a_file_can_be_standard_input_and_files_can_go_to_standard_output(folder: Path) -> None:
    with (folder / "input.jsonl").open("rb") as file:
        redirected = thresher(folder, "run", "pipe.yaml", "--quiet", stdin=file.fileno())
    assert numbers(redirected.stdout) == KEPT
    from_files = thresher(folder, "run", "pipe.yaml", "--quiet", "input_path=input.jsonl")
    assert from_files.stdout == redirected.stdout


def test_standard_input_can_be_written_to_a_folder_once(folder: Path) -> None:
    arguments = ("run", "pipe.yaml", "output_path=out", "--executor", "serial", "--quiet")
    first = thresher(folder, *arguments, content=CONTENT)
    assert first.returncode == 0, first.stderr
    again = thresher(folder, *arguments, content=CONTENT)
    assert again.returncode == 4, "a second run has other input, so nothing may be taken as done"


@pytest.mark.parametrize("executor", ["local", "serial"])
def test_a_reader_that_has_seen_enough_ends_the_run_quietly(folder: Path, executor: str) -> None:
    endless = """yes '{"text": "one two three"}'"""
    command = f"{endless} | {sys.executable} -m thresher run pipe.yaml --executor {executor} --quiet"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -n 2; echo ${{PIPESTATUS[1]}} >&2"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout == '{"text": "one two three"}\n' * 2
    assert done.stderr == "0\n"


def test_nothing_but_results_is_on_standard_output(folder: Path) -> None:
    (folder / "printing.py").write_text(PRINTING)
    (folder / "pipe.yaml").write_text(
        RECIPE.replace("  - JsonlWriter", "  - {_target_: printing.Prints}\n  - JsonlWriter")
    )
    for executor in ("local", "serial"):
        arguments = ("run", "pipe.yaml", "--executor", executor, "--json", "--trust", "printing")
        done = thresher(folder, *arguments, content=CONTENT[:1000].rsplit(b"\n", 1)[0])
        assert done.returncode == 0, done.stderr
        assert all(line.startswith(b'{"n"') for line in done.stdout.splitlines())
        assert b"printed by a stage" in done.stderr
        assert json.loads(done.stderr.splitlines()[-1])["output_paths"] == ["-"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--run-dir", "kept"), "run_dir: a run over standard input or output keeps no run folder"),
        (("--keep-scores",), "keep_scores: a run over standard input or output keeps no run folder"),
        (("JsonlWriter.target_file_size=1MB",), "'-' is standard output, which has one file"),
        (
            ('JsonlReader.file_paths=["-", "a.jsonl"]',),
            "'-' is standard input, which cannot be combined with other paths",
        ),
    ],
)
def test_what_a_pipe_cannot_do_is_refused(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    done = thresher(folder, "run", "pipe.yaml", *arguments, content=CONTENT[:0])
    assert done.returncode == 2
    assert message in done.stderr.decode()


def test_no_input_at_all_is_no_output(folder: Path) -> None:
    done = thresher(folder, "run", "pipe.yaml", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_pipe_is_read_only_once() -> None:
    script = (
        "from thresher.stages.io.jsonl.standard_input import open_standard_input, standard_input_unit\n"
        "piece = standard_input_unit().pieces[0]\n"
        "assert open_standard_input(piece).read() == b'all of it'\n"
        "open_standard_input(piece)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input="all of it", capture_output=True, text=True, check=False, env=os.environ
    )
    assert "RunFailedError: standard input can be read only once" in done.stderr


@pytest.mark.parametrize("executor", ["local", "serial"])
@pytest.mark.parametrize("flags", [(), ("--json",)], ids=["text", "json"])
def test_a_full_disk_behind_standard_output_is_a_clear_failure(
    folder: Path, executor: str, flags: tuple[str, ...]
) -> None:
    done = into_full_disk(folder, "run", "pipe.yaml", "input_path=input.jsonl", "--executor", executor, *flags)
    assert done.returncode == 1
    assert done.stderr.count("the result cannot be written to stdout: No space left on device") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [("stages",), ("run", "--help"), ("--help",), ("recipes",)], ids=" ".join)
def test_a_command_whose_result_cannot_be_written_fails(folder: Path, arguments: tuple[str, ...]) -> None:
    done = into_full_disk(folder, *arguments)
    assert done.returncode == 1
    assert done.stderr == "thresher: error: the result cannot be written to stdout: No space left on device\n"


def test_an_error_keeps_its_exit_code_where_nothing_can_be_printed(folder: Path) -> None:
    done = into_full_disk(folder, "run", "missing.yaml", "--json")
    assert done.returncode == 2
    assert "there is no such file" in done.stderr
    assert "Traceback" not in done.stderr
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "thresher", "run", "missing.yaml"]
        assert subprocess.run(command, cwd=folder, stderr=full, timeout=100, check=False).returncode == 2


@pytest.mark.parametrize("command", ["plan", "run"])
def test_closed_standard_input_is_not_taken_for_empty_input(folder: Path, command: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m thresher {command} pipe.yaml <&-"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "standard input, which is closed or cannot be read" in done.stderr


def test_a_run_that_keeps_no_quarantine_does_not_send_anybody_there(folder: Path) -> None:
    (folder / "bad.jsonl").write_bytes(b"no record\n" * 3 + CONTENT[:2000].rpartition(b"\n")[0])
    for content in ("bad.jsonl", "pipe.yaml"):
        done = thresher(folder, "run", "pipe.yaml", f"input_path={content}", "--max-errors", "100%")
        assert b"thresher quarantine" not in done.stderr
        assert b"failed" in done.stderr or b"no input could be read" in done.stderr
