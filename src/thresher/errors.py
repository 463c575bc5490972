# SPDX-License-Identifier: Apache-2.0
"""All exceptions that Thresher raises on purpose, with their exit codes.

ThresherError                    1   the run failed; what was committed stays
├── RefusedError                 2   refused before any work
│   ├── UsageError                   a wrong argument, option or name; also a ValueError
│   │   ├── DamagedRunError          a file of a run folder that is not what the run wrote
│   │   └── ParameterTypeError       a parameter of a wrong type, unknown or missing; also a TypeError
│   ├── RecipeError                  a recipe that cannot be read or does not fit its stages
│   ├── PlanError                    stages that do not fit together, or can never run here; also a ValueError
│   ├── InputError                   input that is missing or cannot be listed
│   ├── MissingPackageError          an optional package that a stage needs
│   ├── NotMappedError               a name of another curator that nothing here stands for; also an ImportError
│   └── UnsupportedError             a setting that the chosen executor cannot honour; also a ValueError
├── RunFailedError               1   a failure that no record caused: disk full, a worker that keeps crashing
├── TooManyErrorsError           3   more records failed than `max_errors` allows, or no input could be read
├── OutputRefusedError           4   the output folder is foreign, in use, or belongs to a changed pipeline
└── CheckFailedError             5   `audit` or `replay` found a difference
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence

from thresher.credentials import redacted


class ThresherError(Exception):
    """Root of all Thresher errors. `exit_code` is the exit code of the command line; the message never holds
    credentials."""

    exit_code = 1

    def __init__(self, *args: object) -> None:
        super().__init__(*(redacted(value) if isinstance(value, str) else value for value in args))


class RefusedError(ThresherError):
    """The request was refused before anything started."""

    exit_code = 2


class UsageError(RefusedError, ValueError):
    """A wrong argument, option or name."""


class ParameterTypeError(UsageError, TypeError):
    """A parameter of a stage, rule or modifier that has a wrong type, is unknown, or is missing."""


class DamagedRunError(UsageError):
    """A file of a run folder that is not what the run wrote: cut short, not JSON, of another form."""


class RecipeError(RefusedError):
    """A recipe that cannot be read or does not fit its stages."""


class PlanError(RefusedError, ValueError):
    """Stages that do not fit together, or that can never run here."""


class InputError(RefusedError):
    """Input that is missing or cannot be listed."""


class MissingPackageError(RefusedError):
    """An optional package that a stage needs is not installed."""


class NotMappedError(RefusedError, ImportError):
    """A name of another curator that nothing here stands for."""


class UnsupportedError(RefusedError, ValueError):
    """A setting that the chosen executor cannot honour."""


class RunFailedError(ThresherError):
    """A failure that no record caused. The same command resumes from what was committed."""


class TooManyErrorsError(ThresherError):
    """More records failed than `max_errors` allows, or no input could be read."""

    exit_code = 3


class OutputRefusedError(ThresherError):
    """The output folder is foreign, in use, or belongs to a changed pipeline or input."""

    exit_code = 4


class CheckFailedError(ThresherError):
    """A check of a finished run found a difference."""

    exit_code = 5


def cannot_write_results(error: OSError) -> RunFailedError:
    """Return the failure of a write to standard output."""
    return RunFailedError(f"the result cannot be written to stdout: {error.strerror}")


def refusals(*checks: Callable[[], object]) -> list[str]:
    """Run all checks and return the messages of those that raise a `RefusedError`."""
    found = []
    for check in checks:
        try:
            check()
        except RefusedError as error:
            found.append(str(error))
    return found


def numbered(messages: Sequence[str], indent: str = "  ") -> str:
    """Return the messages as a numbered list, one per line."""
    return "\n".join(f"{indent}{number}. {text}" for number, text in enumerate(messages, start=1))


def with_article(kind: type | str) -> str:
    """Return `a str` or `an int`, for a type or a noun."""
    noun = kind if isinstance(kind, str) else kind.__name__
    return f"{'an' if re.match('(?!uni|us)[aeiou]', noun, re.IGNORECASE) else 'a'} {noun}"


def nearest(name: str, legal: Iterable[str]) -> str:
    """Return a hint such as ` Did you mean 'min_words'?`, or an empty string if no legal name is close."""
    close = difflib.get_close_matches(name, list(legal), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""
