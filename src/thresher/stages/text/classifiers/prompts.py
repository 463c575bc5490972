# SPDX-License-Identifier: Apache-2.0
"""Classifier of prompts: what is asked for, and how complex it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thresher.core.documents.batch import DocumentBatch
from thresher.errors import refusals
from thresher.models.inference.text_model import ClassifierModel, folder_of, known_folder
from thresher.stages.text.classifiers.complexity import Heads, column_names, complexity
from thresher.stages.text.models.composite import Stage, TextModelStage, model_stage
from thresher.stages.text.models.model_stage import ModelStage, set_columns

if TYPE_CHECKING:
    from thresher.models.inference.batches import Numbers


class RunComplexity(ModelStage):
    """Run a model with a head for each property of a prompt."""

    _heads: Heads | None = None

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the columns that receive the results."""
        return ["data"], column_names()

    def check_before_run(self) -> list[str]:
        """Report what the model lacks."""
        found = super().check_before_run()
        folder = known_folder(self.model.references[0])
        return found if found or folder is None else refusals(lambda: Heads.of(folder))

    def load_more(self) -> None:
        """Read the description of the heads."""
        self._heads = Heads.of(folder_of(self.model.references[0]))

    def finished(self, task: DocumentBatch, numbers: Numbers) -> DocumentBatch:
        """Return the documents with their properties."""
        assert self._heads is not None, "it was set up"
        return set_columns(task, complexity(numbers, self._heads))


@model_stage
class PromptTaskComplexityClassifier(TextModelStage):
    """Write what kind of task a prompt is, and how complex: `prompt_complexity_score`, `task_type_1`, `task_type_2`,
    `task_type_prob`, `creativity_scope`, `reasoning`, `contextual_knowledge`, `number_of_few_shots`,
    `domain_knowledge`, `no_label_reason` and `constraint_ct`."""

    model: str = "nvidia/prompt-task-and-complexity-classifier"
    max_length: int | None = 512

    def runner(self) -> Stage:
        """Return the stage that runs the model."""
        return RunComplexity(
            ClassifierModel(self.reference("model", self.model), self.runtime),
            self.tokens_field,
            self.model_inference_batch_size,
            sort_by_length=self.sort_by_length,
            keep_tokens=self.keep_tokens,
        )
