# SPDX-License-Identifier: Apache-2.0
"""What simulated tasks cost and emit: drawn from a profile, scaled by bytes.

Samples are dealt like cards: every one once, in random order, then all of them again. So the mean of what is dealt is
the mean of what was measured, also where a run is short.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Generic, NamedTuple, TypeVar

from thresher.simulate.profile import CommitSample, OpProfile, Output, TaskSample

Card = TypeVar("Card")
LEAST_SHARE = 0.1
"""A call takes at least this part of the time that its stages take."""
NO_OUTPUT: tuple[Output, ...] = ()


class Drawn(NamedTuple):
    """What one task will take and give."""

    held_s: float  # time that it holds its worker
    busy_s: float  # time inside its stages, which is what workers tell
    outputs: tuple[Output, ...]  # what it emits


class Deck(Generic[Card]):
    """Deals its cards in random order, again and again."""

    __slots__ = ("_cards", "_random", "_waiting")

    def __init__(self, cards: Sequence[Card], random: Random) -> None:
        self._cards = list(cards)
        self._random = random
        self._waiting: list[Card] = []

    def deal(self) -> Card:
        """The next card."""
        if not self._waiting:
            self._waiting = self._cards.copy()
            self._random.shuffle(self._waiting)
        return self._waiting.pop()


class OpCosts:
    """Draws tasks of one op."""

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
        """One task of so many bytes."""
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
        return Drawn(held_s, busy_s, _more(sample, scale) if self._source else _larger(sample, scale))


class CommitCosts:
    """Draws commits: what the quickest one took is the same for every unit, what goes beyond grows with its bytes."""

    __slots__ = ("_deck", "_least_s")

    def __init__(self, samples: Sequence[CommitSample], random: Random) -> None:
        self._deck = Deck(samples, random)
        self._least_s = min(sample.held_s for sample in samples)

    def draw(self, in_bytes: int) -> float:
        """Time that a commit holds its worker."""
        sample = self._deck.deal()
        scale = in_bytes / sample.in_bytes if in_bytes and sample.in_bytes else 1.0
        return self._least_s + (sample.held_s - self._least_s) * scale


def _larger(sample: TaskSample, scale: float) -> tuple[Output, ...]:
    """A larger batch makes as many batches, each of them larger."""
    return tuple(Output(max(1, int(out.nbytes * scale)), out.unit, out.closes) for out in sample.outputs)


def _more(sample: TaskSample, scale: float) -> tuple[Output, ...]:
    """A larger file makes more batches of the same size, and more units where it is a stream."""
    outputs = sample.outputs
    units = 1 + max(out.unit for out in outputs)
    found = []
    for place in range(max(1, round(len(outputs) * scale))):
        turn, rest = divmod(place, len(outputs))
        out = outputs[rest]
        found.append(Output(out.nbytes, out.unit + turn * units, out.closes))
    return tuple(found)
