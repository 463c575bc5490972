# SPDX-License-Identifier: Apache-2.0
"""Draw the cost and the outputs of simulated tasks from a profile, scaled by bytes.

Samples are drawn without replacement in random order, then all of them again. So the mean of the drawn samples is the
measured mean, even in a short run.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Generic, NamedTuple, TypeVar

from thresher.simulate.profile import CommitSample, OpProfile, Output, TaskSample

Card = TypeVar("Card")
LEAST_SHARE = 0.1
"""A call takes at least this share of the time of its stages."""
NO_OUTPUT: tuple[Output, ...] = ()


class Drawn(NamedTuple):
    """Cost and outputs of one task."""

    held_s: float  # time that it occupies its worker
    busy_s: float  # time inside its stages, as workers report it
    outputs: tuple[Output, ...]  # emitted batches


class Deck(Generic[Card]):
    """Draws cards without replacement in random order, and starts over when none is left."""

    __slots__ = ("_cards", "_random", "_waiting")

    def __init__(self, cards: Sequence[Card], random: Random) -> None:
        self._cards = list(cards)
        self._random = random
        self._waiting: list[Card] = []

    def deal(self) -> Card:
        """Return the next card."""
        if not self._waiting:
            self._waiting = self._cards.copy()
            self._random.shuffle(self._waiting)
        return self._waiting.pop()


class OpCosts:
    """Draws the costs of tasks of one op."""

    __slots__ = ("_deck", "_source", "at_once", "cold_s", "emits", "most_outputs", "overhead_s")

    def __init__(self, profile: OpProfile, source: bool, emits: bool, random: Random) -> None:
        self._deck = Deck(profile.samples, random)
        self._source = source
        self.emits = emits
        self.overhead_s = profile.overhead_s
        self.cold_s = profile.cold_s
        self.at_once = profile.at_once
        self.most_outputs = max(len(sample.outputs) for sample in profile.samples)

    def draw(self, in_bytes: int) -> Drawn:
        """Return the cost of one task with `in_bytes` of input."""
        sample = self._deck.deal()
        scale = in_bytes / sample.in_bytes if in_bytes and sample.in_bytes else 1.0
        busy_s = sample.busy_s * scale
        held_s = busy_s + self.overhead_s
        if held_s < LEAST_SHARE * busy_s:
            held_s = LEAST_SHARE * busy_s
        if not self.emits or not sample.outputs:
            return Drawn(held_s, busy_s, NO_OUTPUT)
        if 0.999 < scale < 1.001:
            return Drawn(held_s, busy_s, sample.outputs)
        return Drawn(held_s, busy_s, _scale_count(sample, scale) if self._source else _scale_sizes(sample, scale))


class CommitCosts:
    """Draws the costs of commits: the time of the quickest one is fixed, the rest is scaled by bytes."""

    __slots__ = ("_deck", "_least_s")

    def __init__(self, samples: Sequence[CommitSample], random: Random) -> None:
        self._deck = Deck(samples, random)
        self._least_s = min(sample.held_s for sample in samples)

    def draw(self, in_bytes: int) -> float:
        """Return the time that a commit occupies its worker."""
        sample = self._deck.deal()
        scale = in_bytes / sample.in_bytes if in_bytes and sample.in_bytes else 1.0
        return self._least_s + (sample.held_s - self._least_s) * scale


def _scale_sizes(sample: TaskSample, scale: float) -> tuple[Output, ...]:
    """Scale the size of each output, for tasks that read a batch."""
    return tuple(Output(max(1, int(out.nbytes * scale)), out.unit, out.closes) for out in sample.outputs)


def _scale_count(sample: TaskSample, scale: float) -> tuple[Output, ...]:
    """Scale the number of outputs (and of units of a stream), for tasks that read a file."""
    outputs = sample.outputs
    units = 1 + max(out.unit for out in outputs)
    found = []
    for place in range(max(1, round(len(outputs) * scale))):
        turn, rest = divmod(place, len(outputs))
        out = outputs[rest]
        found.append(Output(out.nbytes, out.unit + turn * units, out.closes))
    return tuple(found)
