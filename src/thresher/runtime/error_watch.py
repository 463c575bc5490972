# SPDX-License-Identifier: Apache-2.0
"""Checks of the counts against the error budget, during a run and at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from thresher.core.arguments.options import ErrorBudget
from thresher.core.stage import ProcessingStage, SourceStage
from thresher.core.tally import StageTally, Tally, unknown_losses_text
from thresher.errors import TooManyErrorsError

SYSTEMATIC_FROM = 100
"""Number of records from which a stage that fails on every record stops the run. Shorter runs are judged at their end,
since the first records of a long run may be the only bad ones."""
_REASONS_SHOWN = 10
_NO_TEXT = ("field-missing", "not-a-string")
"""Errors of a stage whose `text_field` names a field without text."""


class Systematic(NamedTuple):
    """A stage that failed on every record it received."""

    number: int  # of the stage
    error: str  # the reason, or the most frequent one
    records: int  # how many
    reasons: int = 1  # number of reasons


class ErrorWatch:
    """Failed records, and the budget that limits their number."""

    def __init__(self, stages: Sequence[ProcessingStage[Any, Any]], budget: ErrorBudget, before: Tally) -> None:
        """`before`: counts of earlier attempts of the run."""
        self._stages = stages
        self._budget = budget
        self._before = before
        self.any_failed = False
        """True if a record failed, in this attempt or an earlier one; until then there is nothing to judge."""
        self._examples: dict[str, str] = {}
        """One example record per reason."""
        self._condemned: dict[str, int] = {}
        """Number of records that crashed workers, by reason. They count as failed once their unit gets past them."""
        for number, stage in before.stages.items():
            self.note(number, stage)

    def note(self, number: int, stage: StageTally) -> None:
        """Keep examples of what failed in a stage."""
        self.any_failed = self.any_failed or stage.quarantined > 0
        for error, example in stage.examples.items():
            self._examples.setdefault(f"{self._stages[number].name}/{error}", example)

    def condemned(self, reason: str, example: str) -> None:
        """Count a record that crashed a worker."""
        self.any_failed = True
        self._condemned[reason] = self._condemned.get(reason, 0) + 1
        self._examples.setdefault(reason, example)

    def verdict(self, now: Tally) -> TooManyErrorsError | None:
        """Return an error if the run must stop. `now`: counts of this attempt so far."""
        failed = max(_failed(now), sum(self._condemned.values()))
        if not failed:
            return None
        if self._budget.exceeded(failed, now.records):
            return self._over_budget(failed, now)
        if self._budget.is_unlimited:
            return None
        found = self._systematic(now)
        if found is not None and found.records >= SYSTEMATIC_FROM and not self._worked_before(found.number):
            return self._all_failed(found, wrote=bool(self._before.written or now.written), stopped=True)
        return None

    def verdict_at_end(self, total: Tally, run_dir: str | None = None) -> TooManyErrorsError | None:
        """Return an error if the finished run failed. `total`: counts of all attempts."""
        failed = _failed(total)
        if not failed:
            return None
        reader = total.stages.get(0)
        if isinstance(self._stages[0], SourceStage) and reader is not None and reader.quarantined >= total.read:
            named = {f"{self._stages[0].name}/{error}": n for error, n in reader.errors.items()}
            reasons = "; ".join(f"{n:,} {reason}{self._example(reason, n)}" for reason, n in named.items())
            shows = f". `thresher quarantine {run_dir}` shows what is wrong with each record" if run_dir else ""
            return TooManyErrorsError(f"no input could be read: {reasons}{shows}")
        if self._budget.is_unlimited:
            return None
        found = self._systematic(total)
        if found is not None and not total.written:
            return self._all_failed(found, wrote=False, stopped=False)
        if self._budget.exceeded(failed, total.records, ended=True):
            return self._over_budget(failed, total, ended=True)
        unknown = sum(stage.unknown_losses for stage in total.stages.values())
        return None if not unknown else self._unknown_losses(unknown, total, run_dir)

    def _systematic(self, tally: Tally) -> Systematic | None:
        """Return the first stage that failed on every record. The reader is left out: a damaged file does not predict
        the next one."""
        for number, stage in sorted(tally.stages.items()):
            if stage.quarantined and not isinstance(self._stages[number], SourceStage):
                errors = sorted((-n, error) for error, n in stage.errors.items() if n)
                if stage.quarantined == stage.in_docs and errors:
                    return Systematic(number, errors[0][1], stage.quarantined, len(errors))
        return None

    def _worked_before(self, number: int) -> bool:
        """Return True if the stage processed records in an earlier attempt."""
        earlier = self._before.stages.get(number, StageTally())
        return earlier.in_docs > earlier.quarantined

    # -- messages -----------------------------------------------------------------------------------------------------

    def _all_failed(self, found: Systematic, *, wrote: bool, stopped: bool) -> TooManyErrorsError:
        stage = self._stages[found.number]
        records = "the only record" if found.records == 1 else f"all {found.records:,} records"
        example = self._example(f"{stage.name}/{found.error}", found.records)
        same = ", for the same reason" if found.records > 1 else ""
        if found.reasons > 1:
            same = f", for {found.reasons} reasons; the most frequent one is"
        why = f"{same}{' ' if found.reasons > 1 else ': '}{found.error}{example}."
        lines = [f"{'stopped: ' if stopped else ''}{stage.name} failed on {records} that reached it{why}"]
        if found.error in _NO_TEXT and hasattr(stage, "text_field"):
            lines.append(
                f"Set text_field of {stage.name} to the field that holds the text, "
                f"on the command line as {stage.name}.text_field=NAME."
            )
        state = "What was committed stays." if wrote else "Nothing was written."
        lines.append(
            f"{state} Correct the recipe, the stage or the input and run the same command again, "
            'or accept any number of failed records with --max-errors 100% (max_errors="100%").'
        )
        return TooManyErrorsError("\n".join(lines))

    def _over_budget(self, failed: int, tally: Tally, *, ended: bool = False) -> TooManyErrorsError:
        counts = self._reasons(tally)
        counts |= {reason: max(counts.get(reason, 0), n) for reason, n in self._condemned.items()}
        reasons = sorted(counts.items(), key=lambda item: -item[1])[:_REASONS_SHOWN]
        listed = "\n".join(f"  {n:>8,}  {reason}{self._example(reason, n)}" for reason, n in reasons)
        few = ended and self._budget.is_for_many(tally.records)
        allowed = f"max_errors is {self._budget}"
        if few:
            allowed += f", at most half of a run with fewer than {ErrorBudget.SHARE_COUNTS_FROM:,} records"
        return TooManyErrorsError(
            f"{'' if ended else 'stopped: '}{failed:,} of {tally.records:,} records failed, and {allowed}.\n{listed}\n"
            "What was committed stays. Correct the input, the recipe or the stage and run the same command again, "
            "or allow more with --max-errors (max_errors=…)."
        )

    def _unknown_losses(self, unknown: int, tally: Tally, run_dir: str | None) -> TooManyErrorsError:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in self._reasons(tally).items())
        names = f"`thresher quarantine {run_dir}` names each place. " if run_dir else ""
        again = "run with --fresh" if run_dir else "run again"
        return TooManyErrorsError(
            f"{unknown_losses_text(unknown)} (quarantined: {reasons}). All that could be read is written. "
            f"{names}Get the damaged files again and {again}, or accept the loss with --max-errors 100%"
        )

    def _reasons(self, tally: Tally) -> dict[str, int]:
        """Return the number of failed records by stage and error."""
        return {
            f"{self._stages[number].name}/{error}": n
            for number, stage in tally.stages.items()
            for error, n in stage.errors.items()
            if n
        }

    def _example(self, reason: str, count: int) -> str:
        found = self._examples.get(reason)
        return f"{', such as' if count > 1 else ':'} {found}" if found else ""


def _failed(tally: Tally) -> int:
    return sum(stage.quarantined for stage in tally.stages.values())
