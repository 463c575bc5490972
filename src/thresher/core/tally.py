# SPDX-License-Identifier: Apache-2.0
"""Counts of what stages did to records. Tallies of one unit add up to a line of the ledger, those of all units to the
report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from thresher.core.batching import CallSizes
    from thresher.core.stage import ProcessingStage

from thresher.core.arguments.sizes import counted
from thresher.core.outlets import DROPPED, QUARANTINED

_WITHOUT = "_records without field "
"""Before the name of a field, and a line feed and a hint: a count that is not the stage's own."""
_CHART = "_chart "
"""Before the name of a chart, a bar and a part of it as JSON: a count that belongs to a chart."""


class StageTally(msgspec.Struct, array_like=True, gc=False):
    """Counts of one stage."""

    in_docs: int = 0
    """Records that came in."""
    out_docs: int = 0
    """Records that went on."""
    in_bytes: int = 0
    """Bytes that came in."""
    out_bytes: int = 0
    """Bytes that went on."""
    created: int = 0
    """New records: what a reader read is not among them."""
    merged: int = 0
    """Records that new ones replaced."""
    dropped: int = 0
    """Records that a rule dropped."""
    quarantined: int = 0
    """Records that were set aside because they failed."""
    tasks: int = 0
    """Calls."""
    retries: int = 0
    """Calls that were made again."""
    busy_s: float = 0.0
    """Seconds spent in the stage's own code."""
    reasons: dict[str, int] = {}
    """Dropped records by rule."""
    errors: dict[str, int] = {}
    """Quarantined records by kind of error."""
    counts: dict[str, int] = {}
    """Numbers that the stage counted itself with `count()`."""
    splits: int = 0
    """Number of times that memory ran out and a call was halved."""
    split_to: int = 0
    """The fewest records of a call after that; 0: memory sufficed."""
    examples: dict[str, str] = {}
    """One quarantined record for each kind of error: its id, and what was wrong."""
    unknown_losses: int = 0
    """Places in the input where the number of lost records is unknown; each counts as one quarantined record."""
    sent: dict[str, int] = {}
    """Records that went to an outlet, by its name."""

    def add(self, other: StageTally) -> None:
        """Add `other` to this tally."""
        self.in_docs += other.in_docs
        self.out_docs += other.out_docs
        self.in_bytes += other.in_bytes
        self.out_bytes += other.out_bytes
        self.created += other.created
        self.merged += other.merged
        self.dropped += other.dropped
        self.quarantined += other.quarantined
        self.unknown_losses += other.unknown_losses
        self.tasks += other.tasks
        self.retries += other.retries
        self.busy_s += other.busy_s
        if other.reasons or other.errors or other.counts:
            _add_counts(self.reasons, other.reasons)
            _add_counts(self.errors, other.errors)
            _add_counts(self.counts, other.counts)
            for error, example in other.examples.items():
                self.examples.setdefault(error, example)
        if other.sent:
            _add_counts(self.sent, other.sent)
        if other.split_to:
            self.note_splits(other.splits, other.split_to)

    def count_out(self, records: int, nbytes: int) -> None:
        """Count records that go on."""
        self.out_docs += records
        self.out_bytes += nbytes

    def count_dropped(self, rule: str, records: int) -> None:
        """Count records that a rule dropped."""
        self.dropped += records
        self.reasons[rule] = self.reasons.get(rule, 0) + records

    def count_sent(self, outlet: str, records: int) -> None:
        """Count records that went to an outlet."""
        self.sent[outlet] = self.sent.get(outlet, 0) + records

    def count_own(self, counts: dict[str, int]) -> None:
        """Add what a stage counted itself."""
        _add_counts(self.counts, counts)

    def add_statistics(self, metadata: dict[str, Any]) -> None:
        """Add whole numbers that stages left in the metadata of a task, where the task ends."""
        for name, value in metadata.items():
            if isinstance(value, int) and not isinstance(value, bool):
                self.counts[str(name)] = self.counts.get(str(name), 0) + value

    def own_counts(self) -> dict[str, int]:
        """Return what the stage counted itself with `count()`, by name."""
        return {name: n for name, n in sorted(self.counts.items()) if not name.startswith((_WITHOUT, _CHART))}

    def charts(self) -> dict[str, list[dict[str, Any]]]:
        """Return the bars of each chart: numbers in order, then texts, the largest first.

        A bar has `bar`, its name or where its class begins, `n`, and `parts` if it has several.
        """
        found: dict[str, dict[str | float, dict[str, int]]] = {}
        for key, n in sorted(self.counts.items()):
            if key.startswith(_CHART):
                name, bar, part = msgspec.json.decode(key.removeprefix(_CHART))
                parts = found.setdefault(name, {}).setdefault(bar, {})
                parts[part] = parts.get(part, 0) + n  # 1 and 1.0 are counted apart and are one bar
        return {name: [_bar(bar, bars[bar]) for bar in sorted(bars, key=_order(bars))] for name, bars in found.items()}

    def missing_fields(self) -> dict[str, str]:
        """Return the fields that were asked for and that no record has, each with a hint or an empty text."""
        records: dict[str, int] = {}
        hints: dict[str, str] = {}
        for name, n in sorted(self.counts.items()):
            if name.startswith(_WITHOUT):
                field, _, hint = name.removeprefix(_WITHOUT).rpartition("\n")
                records[field] = records.get(field, 0) + n
                hints[field] = hints.get(field) or hint
        return {field: hint for field, hint in hints.items() if records[field] == (self.out_docs or self.merged)}

    def note_splits(self, count: int, smallest: int) -> None:
        """Add that memory ran out `count` times, and that calls got as few as `smallest` records."""
        self.splits += count
        self.split_to = min(self.split_to or smallest, smallest)


def without_field(field: str, hint: str) -> str:
    """Return the name under which records of batches without `field` are counted."""
    return f"{_WITHOUT}{field}\n{hint}"


def charted(name: str, bar: str | float, part: str) -> str:
    """Return the name under which a part of a bar of a chart is counted."""
    return _CHART + msgspec.json.encode([name, bar, part]).decode()


def _bar(bar: str | float, parts: dict[str, int]) -> dict[str, Any]:
    return {"bar": bar, "n": sum(parts.values()), **({} if parts.keys() == {""} else {"parts": parts})}


def _order(bars: dict[str | float, dict[str, int]]) -> Callable[[str | float], Any]:
    def place(bar: str | float) -> Any:
        return (1, -sum(bars[bar].values()), bar) if isinstance(bar, str) else (0, bar, "")

    return place


def _add_counts(mine: dict[str, int], others: dict[str, int]) -> None:
    for name, n in others.items():
        mine[name] = mine.get(name, 0) + n


class Tally(msgspec.Struct, array_like=True, gc=False):
    """Counts of all stages."""

    read: int = 0
    """Records that a reader found or that came with initial tasks."""
    written: int = 0
    """Records that reached the writer, or the caller where there is none."""
    stages: dict[int, StageTally] = {}
    """By number of the stage in the plan."""
    input_bytes: int = 0
    """Bytes of a stream's file that were read, as they lie on disk; for progress."""
    extras: dict[str, int] = {}
    """Values that fit no column of the output and went to its column for such values, by field."""
    handed_on: int = 0
    """Records that went to the next phase, minus those that came from the one before; 0 over a whole run."""

    def stage(self, number: int) -> StageTally:
        """Return the tally of one stage, made when it is first asked for."""
        found = self.stages.get(number)
        if found is None:
            found = self.stages[number] = StageTally()
        return found

    def add(self, other: Tally) -> None:
        """Add `other` to this tally."""
        self.read += other.read
        self.written += other.written
        self.input_bytes += other.input_bytes
        self.handed_on += other.handed_on
        for number, tally in other.stages.items():
            self.stage(number).add(tally)
        _add_counts(self.extras, other.extras)

    @property
    def records(self) -> int:
        """Return the number of records that stages had to do with: those that were read, or what was made of them."""
        made = sum(stage.created - stage.merged for stage in self.stages.values())
        return max(self.read, self.read + made)

    def common_failures(self, names: Sequence[str]) -> list[str]:
        """Return a text for each stage, by name, that failed for one reason on most records that reached it."""
        found = []
        for number, stage in sorted(self.stages.items()):
            came = stage.in_docs or self.read
            for error, n in stage.errors.items():
                if n > MOST * came:
                    example = stage.examples.get(error, "")
                    found.append(
                        f"{names[number]} failed on {n:,} of {came:,} records that reached it, for the same reason: "
                        f"{error}{f', such as {example}' if example else ''}. They are not in the output"
                    )
        return found

    def sent(self) -> dict[str, int]:
        """Return the number of records that went to each outlet."""
        total: dict[str, int] = {}
        for stage in self.stages.values():
            _add_counts(total, stage.sent)
        return total

    def sent_to_outlets(self) -> dict[str, int]:
        """Return `sent`, and what the framework keeps for outlets of its own."""
        totals = self.totals()
        return {**self.sent(), DROPPED: totals["dropped"], QUARANTINED: totals["quarantined"]}

    def totals(self) -> dict[str, int]:
        """Return the numbers of the law of counts: read + created = written + dropped + quarantined + merged + sent.

        `sent` is there if records went to outlets.
        """
        stages = self.stages.values()
        sent = sum(self.sent().values())
        return {
            "read": self.read,
            "created": sum(s.created for s in stages),
            "merged": sum(s.merged for s in stages),
            "written": self.written,
            "dropped": sum(s.dropped for s in stages),
            "quarantined": sum(s.quarantined for s in stages),
            **({"sent": sent} if sent else {}),
        }


MOST = 0.5
"""Share of the records of a stage above which one reason for failures is named at the end of the run."""


def unknown_losses_text(count: int) -> str:
    """Say that records are missing and that their number is unknown."""
    places = counted(count, "place")
    return f"an unknown number of records is missing: the input could not be read to its end in {places}"


def extras_text(extras: dict[str, int]) -> str:
    """Say which fields have values that fit no column of the output."""
    fields = ", ".join(f"{name} ({n:,})" for name, n in sorted(extras.items()))
    values = counted(sum(extras.values()), "value")
    return f"{values} in `_extra`, because they fit no column: {fields}. Give the writer a schema= with room for them"


def counts_add_up(totals: dict[str, int], handed_on: int = 0) -> bool:
    """Return True if the law of counts holds, for a unit with those that it handed on to the next phase."""
    came = totals["read"] + totals["created"]
    went = sum(totals.get(key, 0) for key in ("written", "dropped", "quarantined", "merged", "sent"))
    return came == went + handed_on


# -- what a stage counts between calls ---------------------------------------------------------------------------------


class StageContext:
    """The state of one stage that the framework keeps between calls. Each worker has one per stage and binds it."""

    __slots__ = ("by_unit", "checks_inputs", "noted", "sizes", "stage", "takes_lists")

    def __init__(self, stage: ProcessingStage[Any, Any], *, takes_lists: bool, checks_inputs: bool) -> None:
        self.stage = stage
        """The stage."""
        self.takes_lists = takes_lists
        """True if its author defined `process_batch`, which is then called for a single task too."""
        self.checks_inputs = checks_inputs
        """True if its author defined which tasks it takes, so that each is checked before a call."""
        self.noted = StageTally()
        """Counts that no task is charged with yet: those of `count()`, retries, and splits of calls."""
        self.sizes: CallSizes | None = None
        """Sizes that calls handle; `None` if memory never ran out in one."""
        self.by_unit = False
        """True if a call returned another number of entries than it got tasks of several units."""

    @property
    def has_noted(self) -> bool:
        """True if `take_noted` has something to return."""
        noted = self.noted
        return bool(noted.counts or noted.retries or noted.split_to)

    def take_noted(self) -> StageTally:
        """Return what was noted since the last call."""
        taken, self.noted = self.noted, StageTally()
        return taken


def context_of(stage: ProcessingStage[Any, Any]) -> StageContext:
    """Return the context that a worker has bound; outside of a run, one that is made when it is first asked for."""
    found: StageContext | None = stage.__dict__.get("_context")
    return bind_context(stage) if found is None else found


def bind_context(stage: ProcessingStage[Any, Any]) -> StageContext:
    """Give a stage a new context, to which `count()` writes from now on."""
    from thresher.core.planning.inputs import checks_inputs
    from thresher.core.stage import overrides

    takes_lists = overrides(stage, "process_batch")
    context = StageContext(stage, takes_lists=takes_lists, checks_inputs=checks_inputs(stage))
    stage.__dict__["_context"] = context
    return context


def hand_over_counts(inner: ProcessingStage[Any, Any], outer: ProcessingStage[Any, Any]) -> None:
    """Let what a stage has counted count for the one that calls it and that the run knows."""
    context = inner.__dict__.get("_context")
    if context is not None and context.has_noted:
        context_of(outer).noted.add(context.take_noted())


def unbind_context(stage: ProcessingStage[Any, Any]) -> None:
    """Leave a stage without a context, as it was before the run."""
    stage.__dict__.pop("_context", None)
