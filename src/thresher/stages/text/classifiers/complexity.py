# SPDX-License-Identifier: Apache-2.0
"""Kind and complexity of prompts, from the logits of several heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thresher.errors import InputError
from thresher.models.loading.folder import ModelFolder
from thresher.stages.text.classifiers.outputs import softmax

if TYPE_CHECKING:
    from thresher.models.inference.batches import Numbers

TASK_TYPE = "task_type"
FEW_SHOTS = "number_of_few_shots"
SUMMARY = "prompt_complexity_score"
WEIGHTS = {
    "creativity_scope": 0.35,
    "reasoning": 0.25,
    "constraint_ct": 0.15,
    "domain_knowledge": 0.15,
    "contextual_knowledge": 0.05,
    FEW_SHOTS: 0.05,
}
"""Parts of the summary, and their weights."""
_NEVER_ABOVE = 0.1
"""A second task type that is less probable is not named."""
_FEWEST_SHOTS = 0.05


@dataclass(frozen=True)
class Heads:
    """The heads of a model, as its config.json describes them."""

    sizes: dict[str, int]
    """Number of classes of each head."""
    task_types: dict[str, str]
    """Names of the task types, by number."""
    weights: dict[str, list[float]]
    """The value of each class of a head."""
    divisors: dict[str, float]
    """By what the mean value of a head is divided."""

    @classmethod
    def of(cls, folder: ModelFolder) -> Heads:
        """Return the heads of the model in a folder."""
        config = folder.config
        missing = [key for key in ("target_sizes", "task_type_map", "weights_map", "divisor_map") if key not in config]
        if missing:
            raise InputError(
                f"{folder.caller}: {folder.path}/config.json has no {', '.join(missing)}; it is another kind of model"
            )
        return cls(*(config[key] for key in ("target_sizes", "task_type_map", "weights_map", "divisor_map")))


def complexity(numbers: Numbers, heads: Heads) -> dict[str, Any]:
    """Return the columns that the logits of all heads mean."""
    import numpy as np

    columns: dict[str, Any] = {SUMMARY: []}
    start = 0
    for name, size in heads.sizes.items():
        found = softmax(numbers[:, start : start + size])
        start += size
        if name == TASK_TYPE:
            columns |= _task_types(found, heads.task_types)
            continue
        values = np.round(found @ np.asarray(heads.weights[name], dtype=np.float64) / heads.divisors[name], 4)
        columns[name] = np.where(values >= _FEWEST_SHOTS, values, 0.0) if name == FEW_SHOTS else values
    columns[SUMMARY] = np.round(sum(weight * columns[name] for name, weight in WEIGHTS.items()), 5)
    return columns


def _task_types(probabilities: Any, names: dict[str, str]) -> dict[str, Any]:
    import numpy as np

    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :2]
    best = np.round(np.take_along_axis(probabilities, order, axis=1), 3)
    first = [names[str(place)] for place in order[:, 0].tolist()]
    second = [
        names[str(place)] if value >= _NEVER_ABOVE else "NA"
        for place, value in zip(order[:, 1].tolist(), best[:, 1].tolist(), strict=True)
    ]
    return {"task_type_1": first, "task_type_2": second, "task_type_prob": best[:, 0]}


def column_names() -> list[str]:
    """Return the names of all columns."""
    return [SUMMARY, "task_type_1", "task_type_2", "task_type_prob", *WEIGHTS, "no_label_reason"]
