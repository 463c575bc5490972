# SPDX-License-Identifier: Apache-2.0
"""Pipelines that are complete: name input and output, and run them. Each is also a stage that a recipe can name.

`from thresher.workflows import ExactDeduplicationWorkflow` loads a workflow when it is first used.
"""

from __future__ import annotations

from typing import Any

_DEDUPLICATION = "thresher.workflows.deduplication"
_PASSAGES = "thresher.workflows.passages"

WORKFLOWS: dict[str, str] = {
    "BloomDeduplicationWorkflow": f"{_DEDUPLICATION}:BloomDeduplicationWorkflow",
    "ExactDeduplicationWorkflow": f"{_DEDUPLICATION}:ExactDeduplicationWorkflow",
    "DeduplicationIndexWorkflow": f"{_DEDUPLICATION}:DeduplicationIndexWorkflow",
    "FuzzyDeduplicationWorkflow": f"{_DEDUPLICATION}:FuzzyDeduplicationWorkflow",
    "LineDeduplicationWorkflow": f"{_PASSAGES}:LineDeduplicationWorkflow",
    "SemanticDeduplicationWorkflow": "thresher.workflows.semantic:SemanticDeduplicationWorkflow",
    "SubstringDeduplicationWorkflow": f"{_PASSAGES}:SubstringDeduplicationWorkflow",
    "TextSemanticDeduplicationWorkflow": "thresher.workflows.semantic:TextSemanticDeduplicationWorkflow",
    "TextDuplicatesRemovalWorkflow": f"{_DEDUPLICATION}:TextDuplicatesRemovalWorkflow",
}
"""Names that `from thresher.workflows import …` offers, and where they are defined."""


def __getattr__(name: str) -> Any:
    if name not in WORKFLOWS:
        raise AttributeError(f"module 'thresher.workflows' has no attribute {name!r}")
    from thresher.core.registry import resolve

    value = globals()[name] = resolve(WORKFLOWS[name])
    return value


def __dir__() -> list[str]:
    return sorted(WORKFLOWS)
