# SPDX-License-Identifier: Apache-2.0
"""Where text goes: results to stdout, everything else to stderr; colour for terminals only, and never with NO_COLOR."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from thresher.errors import RunFailedError

_UNSEEN = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""What JSON allows in a text and a terminal may obey; JSON itself escapes the rest."""
_BOLD, _RED, _YELLOW, _RESET = "\033[1m", "\033[1;31m", "\033[33m", "\033[0m"


def make_streams_usable() -> None:
    """Standard streams that the caller closed lead nowhere, and letters that they cannot show are spelled out."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Else the number would go to the next file or socket, which would then get our messages.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115  # for as long as the process lives
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115  # for as long as the process lives
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def silence_stdout() -> None:
    """Let what is still to be written to stdout go nowhere, so that nobody stumbles over it at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_result(text: str) -> None:
    """A result, on stdout."""
    with _explained():
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def flush_results() -> None:
    """Hand over what was printed."""
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
        raise RunFailedError(f"the result cannot be written to stdout: {error.strerror}") from None


def print_json(value: Any) -> None:
    """One JSON object in one line, on stdout."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    print_result(_UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def print_error(text: str) -> None:
    """What went wrong, on stderr."""
    _to_stderr(f"{painted('thresher: error:', _RED, sys.stderr)} {text}")


def print_warning(text: str) -> None:
    """What one should know, on stderr."""
    _to_stderr(f"{painted('thresher: warning:', _YELLOW, sys.stderr)} {text}")


def print_note(text: str) -> None:
    """What one may want to know, on stderr."""
    _to_stderr(f"thresher: {text}")


def heading(text: str) -> str:
    """A heading for stdout."""
    return painted(text, _BOLD, sys.stdout)


def painted(text: str, code: str, stream: TextIO) -> str:
    """`text` in colour, if `stream` takes it."""
    return f"{code}{text}{_RESET}" if wants_color(stream) else text


def wants_color(stream: TextIO) -> bool:
    """Colour is for terminals, and for people who did not set NO_COLOR."""
    return stream.isatty() and os.environ.get("TERM", "") != "dumb" and not os.environ.get("NO_COLOR")


def table(rows: Iterable[Sequence[str]], indent: str = "  ") -> list[str]:
    """Rows as lines, columns aligned; the last column is left as it is."""
    cells = [tuple(row) for row in rows]
    if not cells:
        return []
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]) - 1)]
    return [
        (indent + "".join(f"{cell:<{width}}  " for cell, width in zip(row, widths, strict=False)) + row[-1]).rstrip()
        for row in cells
    ]


def wrapped(text: str, indent: str) -> list[str]:
    """`text` as lines that fit the terminal; all but the first are indented further."""
    width = max(40, shutil.get_terminal_size((100, 24)).columns)
    return textwrap.wrap(text, width, initial_indent="  ", subsequent_indent=indent, break_on_hyphens=False)


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
