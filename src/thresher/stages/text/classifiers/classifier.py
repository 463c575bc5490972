# SPDX-License-Identifier: Apache-2.0
"""Any sequence classification model as a stage, and what the named classifiers build on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from thresher.core.arguments.options import field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.errors import UsageError, refusals
from thresher.models.inference.text_model import ClassifierModel, TextModel, known_folder
from thresher.stages.text.classifiers.outputs import BestLabel, Grade, Outputs, check_filter
from thresher.stages.text.models.composite import Stage, TextModelStage, model_stage
from thresher.stages.text.models.model_stage import ModelStage, keep_labels, set_columns

if TYPE_CHECKING:
    from thresher.models.inference.batches import Numbers


class RunClassifier(ModelStage):
    """Run a classifier on token ids, and keep documents with some labels."""

    def __init__(  # noqa: PLR0913  # each is a part of its own, and given by name
        self,
        model: TextModel,
        outputs: Outputs,
        *,
        tokens_field: str,
        model_inference_batch_size: int,
        sort_by_length: bool,
        keep_tokens: bool,
        filter_by: Sequence[str | bool] | None = None,
    ) -> None:
        super().__init__(
            model, tokens_field, model_inference_batch_size, sort_by_length=sort_by_length, keep_tokens=keep_tokens
        )
        self.outputs_of_model = outputs
        self.filter_by = None if filter_by is None else tuple(filter_by)
        self._labels: list[str] = []

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the columns that receive the results."""
        return ["data"], self.outputs_of_model.names()

    def check_before_run(self) -> list[str]:
        """Report what the model lacks, and labels that it does not have."""
        found = super().check_before_run()
        folder = known_folder(self.model.references[0])
        if found or folder is None:
            return found
        return refusals(lambda: self._check_filter(folder.labels))

    def load_more(self) -> None:
        """Read the labels."""
        self._labels = self.model.labels()
        self._check_filter(self._labels)

    def _check_filter(self, labels: list[str]) -> None:
        check_filter(self.name, self.filter_by, self.outputs_of_model.legal_labels(labels))

    def finished(self, task: DocumentBatch, numbers: Numbers) -> DocumentBatch:
        """Return the documents with their labels, and without those that are not wanted."""
        judged = self.outputs_of_model.judge(numbers, self._labels)
        task = set_columns(task, judged.columns)
        if self.filter_by is None:
            return task
        return keep_labels(task, judged.labels, judged.scores, self.filter_by)


@model_stage
class Classifier(TextModelStage):
    """Label texts with a sequence classification model."""

    field_docs = """`filter_by`: keep documents with these labels; null keeps all."""

    filter_by: Sequence[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.filter_by, str):
            raise UsageError(f"{type(self).__name__}.filter_by: {self.filter_by!r} is one label; give a list")
        for column in self.outputs_of_model().names():
            field_name(type(self).__name__, "label_field", column)

    def outputs_of_model(self) -> Outputs:
        """Return what the numbers of the model mean."""
        raise TypeError(f"{type(self).__name__} must define outputs_of_model()")

    def runner(self) -> Stage:
        """Return the stage that runs the model."""
        return self.running(ClassifierModel(self.reference("model", self.model), self.runtime))

    def running(self, model: TextModel) -> RunClassifier:
        """Return the stage that runs a model."""
        return RunClassifier(
            model,
            self.outputs_of_model(),
            tokens_field=self.tokens_field,
            model_inference_batch_size=self.model_inference_batch_size,
            sort_by_length=self.sort_by_length,
            keep_tokens=self.keep_tokens,
            filter_by=self.filter_by,
        )


@model_stage
class LabelClassifier(Classifier):
    """Write the most probable label of each text."""

    field_docs = """
        `label_field`: column for the most probable label. `score_field`: column for its probability, or null.
        `all_scores_field`: column for the probabilities of all labels, in the order of the model, or null."""

    label_field: str = "label"
    score_field: str | None = None
    all_scores_field: str | None = None

    def outputs_of_model(self) -> Outputs:
        """Return the best label."""
        return BestLabel(self.label_field, self.score_field, self.all_scores_field)


@model_stage
class SequenceClassifier(LabelClassifier):
    """Label texts with any sequence classification model in the layout of the Hugging Face Hub.

    `kind="grade"` is for models with one output, a number: it is written to `score_field`, or `score` if that is null,
    and rounded to a whole number from 0 to 5 to that name with `_int`; the label is `high_quality` from `threshold` on.
    """

    field_docs = """`kind`: `label`, or `grade` for models with a single output, and its `threshold`."""

    kind: Literal["label", "grade"] = "label"
    threshold: float = 2.5

    def outputs_of_model(self) -> Outputs:
        """Return the best label, or the grade."""
        if self.kind == "label":
            return super().outputs_of_model()
        score = self.score_field or "score"
        return Grade(score, f"{score}_int", self.label_field, self.threshold, clips=False)
