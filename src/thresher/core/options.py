# SPDX-License-Identifier: Apache-2.0
"""Options of a run and of executors, checked before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from thresher.core.scores import ScoreSource
from thresher.errors import UnsupportedError, UsageError, nearest

PROGRESS_MODES = ("auto", "live", "lines", "none")
EXECUTION_MODES = ("streaming", "batch")


@dataclass(frozen=True)
class ErrorBudget:
    """How many records may fail before the run stops."""

    count: int | None = None
    """So many records."""
    share: float | None = None
    """This share of what was read; it counts from 1,000 records on."""

    SHARE_COUNTS_FROM = 1000

    @classmethod
    def parse(cls, value: int | float | str | None) -> ErrorBudget:
        """From `5%`, `20` or `0`; `None` is `100%`."""
        if value is None:
            return cls(share=1.0)
        text = str(value).strip()
        try:
            if text.endswith("%"):
                share = float(text[:-1]) / 100
                if 0 <= share <= 1:
                    return cls(share=share)
            elif not isinstance(value, bool) and int(text) >= 0:
                return cls(count=int(text))
        except ValueError:
            pass
        raise UsageError(f"max_errors: {value!r} is neither a number of records such as 20 nor a share such as 5%")

    def exceeded(self, failed: int, read: int) -> bool:
        """Whether too much has failed."""
        if self.count is not None:
            return failed > self.count
        share = self.share if self.share is not None else 1.0
        return share < 1.0 and read >= self.SHARE_COUNTS_FROM and failed > share * read

    def __str__(self) -> str:
        return str(self.count) if self.count is not None else f"{100 * (self.share or 0):g}%"


@dataclass(frozen=True)
class RunOptions:
    """What a caller asks of one run."""

    initial_tasks: tuple[Any, ...] | None = None
    """Tasks for the first stage, in place of one `EmptyTask`."""
    run_dir: str | None = None
    """Where to keep the run folder."""
    fresh: bool = False
    """Start over instead of going on."""
    accept_changes: bool = False
    """Go on although pipeline or input changed."""
    max_errors: ErrorBudget = ErrorBudget(share=0.05)
    """Stop when more records fail than this."""
    keep_scores: bool = False
    """Keep every score in the run folder."""
    known_scores: ScoreSource | None = None
    """A run whose scores are taken where they hold."""
    dropped_to: str | None = None
    """A folder for dropped records."""
    ledger: bool = True
    """Keep a run folder, so that the run can be resumed."""
    progress: str = "auto"
    """`auto`, `live`, `lines` or `none`."""
    recipe: Mapping[str, Any] | None = None
    """The recipe as resolved, for the run folder."""

    def __post_init__(self) -> None:
        if self.progress not in PROGRESS_MODES:
            raise UsageError(
                f"progress: {self.progress!r} is not one of {', '.join(PROGRESS_MODES)}."
                + nearest(self.progress, PROGRESS_MODES)
            )
        if self.keep_scores and not self.ledger:
            raise UsageError("keep_scores: scores are kept in the run folder; leave out --no-ledger (ledger=False)")


def merge_options(
    executor: str,
    given: Mapping[str, Any],
    config: Mapping[str, Any] | None,
    legal: Iterable[str],
    cannot: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Keyword arguments and `config={…}` of an executor as one dict; an unknown key is an error.

    What `cannot` rules out, whole options or `option=value`, is refused with its reason.
    """
    names = sorted(legal)
    options: dict[str, Any] = {}
    for source in (config or {}), given:
        for key, value in source.items():
            reason = next((cannot[one] for one in (key, f"{key}={value}") if one in cannot), "") if cannot else ""
            if reason:
                raise UnsupportedError(
                    f"{executor} does not honour {key}={value!r}: {reason}. Leave it out, or take another executor"
                )
            if key not in names:
                raise UsageError(
                    f"{executor}: unknown option {key!r}.{nearest(key, names)} Legal options: {', '.join(names)}"
                )
            options[key] = value
    return options


def check_choice(what: str, value: Any, legal: Iterable[str]) -> str:
    """`value`, if it is one of `legal`."""
    names = list(legal)
    if value not in names:
        raise UsageError(f"{what}: {value!r} is not one of {', '.join(names)}.{nearest(str(value), names)}")
    return str(value)


def check_count(what: str, value: Any, least: int = 1) -> int:
    """`value`, if it is a whole number of `least` or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{what}: {value!r} is not a whole number of {least} or more")
    return value


def check_flag(what: str, value: Any) -> bool:
    """`value`, if it is true or false."""
    if not isinstance(value, bool):
        raise UsageError(f"{what}: {value!r} is neither True nor False")
    return value


def check_positive(what: str, value: Any, unit: str) -> float:
    """`value`, if it is a number above 0; `unit` says of what, for people."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise UsageError(f"{what}: {value!r} is not a number of {unit} above 0")
    return float(value)


def check_amounts(what: str, value: Any) -> dict[str, float]:
    """`value`, if it maps names to numbers of 0 or more."""
    if not isinstance(value, Mapping):
        raise UsageError(f'{what}: {value!r} is no mapping of names to amounts, such as {{"licence": 2}}')
    for name, amount in value.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or amount < 0:
            raise UsageError(f"{what}: {name}: {amount!r} is not a number of 0 or more")
    return {str(name): float(amount) for name, amount in value.items()}
