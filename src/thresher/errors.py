# SPDX-License-Identifier: Apache-2.0
"""Every exception that Thresher raises on purpose, and the exit code each one stands for.

ThresherError                    1   the run failed; what was committed stays
├── RefusedError                 2   refused before any work
│   ├── UsageError                   a wrong argument, option or name
│   ├── RecipeError                  a recipe that cannot be read or does not fit its stages
│   ├── PlanError                    stages that do not fit together, or can never run here
│   ├── InputError                   input that is missing or cannot be listed
│   ├── MissingPackageError          an optional package that a stage needs
│   └── UnsupportedError             a setting that the chosen executor cannot honour
├── RunFailedError               1   a fault that is no record's: disk full, a worker that keeps dying
├── TooManyErrorsError           3   more records failed than `max_errors` allows, or no input could be read
├── OutputRefusedError           4   the output folder is foreign, in use, or belongs to a changed pipeline
└── CheckFailedError             5   `audit` or `replay` found a difference
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ThresherError(Exception):
    """The root of the tree; `exit_code` is what the command line returns."""

    exit_code = 1


class RefusedError(ThresherError):
    """Nothing was started."""

    exit_code = 2


class UsageError(RefusedError):
    """A wrong argument, option or name."""


class RecipeError(RefusedError):
    """A recipe that cannot be read or does not fit its stages."""


class PlanError(RefusedError):
    """Stages that do not fit together, or that can never run here."""


class InputError(RefusedError):
    """Input that is missing or cannot be listed."""


class MissingPackageError(RefusedError):
    """An optional package that a stage needs is not installed."""


class UnsupportedError(RefusedError):
    """A setting that the chosen executor cannot honour."""


class RunFailedError(ThresherError):
    """A fault that is no record's: the same command goes on from what was committed."""


class TooManyErrorsError(ThresherError):
    """More records failed than `max_errors` allows, or no input could be read."""

    exit_code = 3


class OutputRefusedError(ThresherError):
    """The output folder is foreign, in use, or belongs to a changed pipeline or input."""

    exit_code = 4


class CheckFailedError(ThresherError):
    """A check of a finished run found a difference."""

    exit_code = 5


def nearest(name: str, legal: Iterable[str]) -> str:
    """A hint such as ` Did you mean 'min_words'?`, or nothing when no legal name is close."""
    close = difflib.get_close_matches(name, list(legal), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""
