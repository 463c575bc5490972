# SPDX-License-Identifier: Apache-2.0
"""What the numbers of a classifier mean: labels, probabilities and scores. Pure functions of its logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from thresher.errors import InputError, nearest

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.models.inference.batches import Numbers

DIGITS = 6
"""Digits of scores: what lies behind depends on the forward pass that a text was in."""


class Judged(NamedTuple):
    """What is known of some documents."""

    columns: dict[str, Any]
    """New columns by name, one value per document."""
    labels: list[str] | list[bool]
    """The label of each document, for `filter_by`."""
    scores: list[float] | None
    """What the label follows from."""


class Outputs(Protocol):
    """The meaning of the numbers of a model."""

    def names(self) -> list[str]:
        """Return the names of the columns."""
        ...

    def legal_labels(self, labels: Sequence[str]) -> list[str] | list[bool]:
        """Return the labels that a document can have; `labels`: those that the files of the model name."""
        ...

    def judge(self, numbers: Numbers, labels: Sequence[str]) -> Judged:
        """Return what the numbers of each document mean."""
        ...


def softmax(logits: Numbers) -> npt.NDArray[np.float64]:
    """Return probabilities."""
    import numpy as np

    wide = logits.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=1, keepdims=True, initial=-np.inf))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class BestLabel:
    """The label with the largest probability."""

    label_field: str
    """Column for the label."""
    score_field: str | None = None
    """Column for its probability, or `None`."""
    all_scores_field: str | None = None
    """Column for the probabilities of all labels, in the order of the model, or `None`."""

    def names(self) -> list[str]:
        """Return the names of the columns."""
        return [name for name in (self.label_field, self.score_field, self.all_scores_field) if name]

    def legal_labels(self, labels: Sequence[str]) -> list[str]:
        """Return the labels of the model."""
        return list(labels)

    def judge(self, numbers: Numbers, labels: Sequence[str]) -> Judged:
        """Return the best labels."""
        import numpy as np

        if numbers.shape[1] != len(labels):
            raise InputError(
                f"the model gives {numbers.shape[1]} numbers, and its config.json has {len(labels)} labels"
            )
        found = np.round(softmax(numbers), DIGITS)
        best = numbers.argmax(axis=1)
        chosen = [labels[place] for place in best.tolist()]
        scores = found[np.arange(len(best)), best]
        columns: dict[str, Any] = {self.label_field: chosen}
        if self.score_field:
            columns[self.score_field] = scores
        if self.all_scores_field:
            columns[self.all_scores_field] = _lists(found)
        return Judged(columns, chosen, scores.tolist())


def _lists(matrix: npt.NDArray[Any]) -> Any:
    """Return the rows of a matrix as an Arrow column of lists."""
    import numpy as np
    import pyarrow as pa

    offsets = np.arange(len(matrix) + 1, dtype=np.int32) * matrix.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.ascontiguousarray(matrix).reshape(-1)))


@dataclass(frozen=True)
class Grade:
    """A number of a regression model, as it is, rounded to a whole number from 0 to 5, and as one of two labels."""

    float_field: str
    """Column for the number."""
    int_field: str
    """Column for the whole number."""
    label_field: str | None = None
    """Column for the label, or `None`."""
    threshold: float = 2.5
    """The number from which the label is `high_quality`."""
    clips: bool = True
    """Write numbers beyond 0 and 5 as these."""

    def names(self) -> list[str]:
        """Return the names of the columns."""
        return [name for name in (self.float_field, self.int_field, self.label_field) if name]

    def legal_labels(self, labels: Sequence[str]) -> list[str]:
        """Return both labels."""
        return ["high_quality", "low_quality"]

    def judge(self, numbers: Numbers, labels: Sequence[str]) -> Judged:
        """Return the grades."""
        import numpy as np

        found = np.round(numbers[:, 0].astype(np.float64), DIGITS)
        limited = np.clip(found, 0, 5)
        whole = np.rint(limited).astype(np.int64)
        chosen = ["high_quality" if value >= self.threshold else "low_quality" for value in found.tolist()]
        columns: dict[str, Any] = {self.float_field: limited if self.clips else found, self.int_field: whole}
        if self.label_field:
            columns = {self.label_field: chosen, **columns}
        return Judged(columns, chosen, found.tolist())


@dataclass(frozen=True)
class Poisoned:
    """A probability, and whether it is at least one half."""

    label_field: str
    """Column for the truth value."""
    score_field: str
    """Column for the probability."""

    def names(self) -> list[str]:
        """Return the names of the columns."""
        return [self.label_field, self.score_field]

    def legal_labels(self, labels: Sequence[str]) -> list[bool]:
        """Return both truth values."""
        return [False, True]

    def judge(self, numbers: Numbers, labels: Sequence[str]) -> Judged:
        """Return the probabilities."""
        import numpy as np

        found = np.round(numbers[:, 0].astype(np.float64), DIGITS)
        chosen = [value >= 0.5 for value in found.tolist()]
        return Judged({self.label_field: chosen, self.score_field: found}, chosen, found.tolist())


def check_filter(caller: str, filter_by: Sequence[str | bool] | None, legal: Sequence[str | bool]) -> None:
    """Refuse labels that no document can have."""
    for label in filter_by or ():
        if legal and label not in legal:
            hint = nearest(str(label), [str(one) for one in legal])
            raise InputError(
                f"{caller}.filter_by: {label!r} is no label of the model.{hint} Labels: {', '.join(map(str, legal))}"
            )
