# SPDX-License-Identifier: Apache-2.0
"""Output of the CLI: results on stdout, everything else on stderr; colour on terminals only, unless NO_COLOR is set."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from thresher.credentials import redacted
from thresher.errors import cannot_write_results

_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""Characters that JSON allows in strings and that may control a terminal; JSON escapes the others."""
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
"""Characters of untrusted text (documents, file names) that control the terminal or are invisible."""
_ON_TERMINAL_S, _ELSEWHERE_S = 0.2, 10.0
"""Interval between two prints of progress."""
_BOLD, _RED, _YELLOW, _RESET = "\033[1m", "\033[1;31m", "\033[33m", "\033[0m"


def make_streams_usable() -> None:
    """Redirect closed standard streams to /dev/null and escape characters that a stream cannot encode."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Otherwise the next file or socket would get the descriptor, and our messages.
            # A closed standard input must fail to read, not look like empty input.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR if number else os.O_WRONLY), True)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115  # for as long as the process lives
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115  # for as long as the process lives
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def silence_stdout() -> None:
    """Discard what is still buffered for stdout, so that the exit of the interpreter does not fail on it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_result(text: str, stream: TextIO | None = None) -> None:
    """Print a result, on stdout by default."""
    with _explained():
        (stream or sys.stdout).write(text if text.endswith("\n") else f"{text}\n")


def flush_results() -> None:
    """Flush stdout."""
    with _explained():
        sys.stdout.flush()


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        silence_stdout()
        raise cannot_write_results(error) from None


def print_json(value: Any, stream: TextIO | None = None) -> None:
    """Print one JSON object on one line, on stdout by default."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    print_result(_UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text), stream)


_logs_json = False


def log_as_json(wanted: bool) -> None:
    """Make errors, warnings and notes lines of JSON from now on, or texts again."""
    global _logs_json
    _logs_json = wanted


def print_error(text: str) -> None:
    """Print an error on stderr."""
    _tell("error", painted("thresher: error:", _RED, sys.stderr), text)


def print_warning(text: str) -> None:
    """Print a warning on stderr."""
    _tell("warning", painted("thresher: warning:", _YELLOW, sys.stderr), text)


def print_note(text: str) -> None:
    """Print a note on stderr."""
    _tell("info", "thresher:", text)


def _tell(level: str, label: str, text: str) -> None:
    if not _logs_json:
        _to_stderr(f"{label} {text}")
        return
    from thresher.observe.json_lines import log_line

    _to_stderr(log_line("message", level, time.time(), text=redacted(text)).rstrip("\n"))


def heading(text: str) -> str:
    """Return a heading for stdout."""
    return painted(text, _BOLD, sys.stdout)


def painted(text: str, code: str, stream: TextIO) -> str:
    """Return `text` with a colour code if `stream` supports it."""
    return f"{code}{text}{_RESET}" if wants_color(stream) else text


def wants_color(stream: TextIO) -> bool:
    """Return True if `stream` is a terminal and NO_COLOR is not set."""
    return stream.isatty() and os.environ.get("TERM", "") != "dumb" and not os.environ.get("NO_COLOR")


def result_width() -> int | None:
    """Return the width of the terminal behind stdout; `None` for a file or a pipe, where lines may be long."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(rows: Iterable[Sequence[str]], indent: str = "  ") -> list[str]:
    """Return rows as lines with aligned columns; the last column is not padded."""
    cells = [tuple(row) for row in rows]
    if not cells:
        return []
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]) - 1)]
    return [
        (indent + "".join(f"{cell:<{width}}  " for cell, width in zip(row, widths, strict=False)) + row[-1]).rstrip()
        for row in cells
    ]


def wrapped(text: str, indent: str) -> list[str]:
    """Return `text` as lines that fit the terminal; all but the first are indented."""
    width = max(40, shutil.get_terminal_size((100, 24)).columns)
    return textwrap.wrap(text, width, initial_indent="  ", subsequent_indent=indent, break_on_hyphens=False)


def _to_stderr(text: str) -> None:
    with suppress(OSError):  # a full disk behind stderr must not hide the exit code
        print(redacted(text), file=sys.stderr, flush=True)


def shown(text: object, width: int = 0) -> str:
    """Return `text` on one line with such characters escaped; at most `width` characters, if not 0."""
    plain = str(text)
    if width:
        plain = plain[: width + 1]
    safe = _UNSAFE.sub(_escape, plain)
    return f"{safe[: width - 1]}…" if width and len(safe) > width else safe


def shown_lines(text: object) -> list[str]:
    """Return the lines of `text`, each escaped."""
    return [shown(line) for line in str(text).splitlines()]


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character]
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


class ProgressLine:
    """Prints the progress of a command on stderr; nothing if it ends soon."""

    def __init__(self, what: str, quiet: bool = False) -> None:
        self._what = what
        self._quiet = quiet
        self._live = sys.stderr.isatty()
        self._every_s = _ON_TERMINAL_S if self._live else _ELSEWHERE_S
        self._printed_at = time.monotonic()
        self._shown = False

    def update(self, done_bytes: int, total_bytes: int) -> None:
        """Print the progress if the last print was long enough ago."""
        from thresher.observe.figures import megabytes, percent

        now = time.monotonic()
        if self._quiet or now - self._printed_at < self._every_s:
            return
        self._printed_at = now
        share = percent(min(1.0, done_bytes / total_bytes)) if total_bytes else "-"
        text = f"thresher: {self._what}: {megabytes(done_bytes)} of {megabytes(total_bytes)} MB, {share}"
        sys.stderr.write(f"\r\033[K{text}" if self._live else f"{text}\n")
        sys.stderr.flush()
        self._shown = True

    def close(self) -> None:
        """Clear the line."""
        if self._live and self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
