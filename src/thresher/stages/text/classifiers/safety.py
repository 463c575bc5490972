# SPDX-License-Identifier: Apache-2.0
"""Classifiers of safety that are language models with an adapter: by their answer, or by the state of their last
token."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from thresher.core.documents.batch import DocumentBatch
from thresher.errors import UsageError
from thresher.models.inference.text_model import GuardModel, TextModel, folder_of
from thresher.models.inference.token_ids import IdTokenizer
from thresher.stages.text.classifiers.classifier import RunClassifier
from thresher.stages.text.classifiers.outputs import Outputs, Poisoned, check_filter
from thresher.stages.text.models.composite import Stage, TextModelStage, model_stage
from thresher.stages.text.models.model_stage import ModelStage, keep_labels, set_columns
from thresher.stages.text.models.tokenize import TEXT, Tokenize

if TYPE_CHECKING:
    from thresher.models.inference.batches import Numbers

BASE = "meta-llama/LlamaGuard-7b"
CATEGORIES = (
    "Violence",
    "Sexual",
    "Criminal Planning/Confessions",
    "Guns and Illegal Weapons",
    "Controlled/Regulated Substances",
    "Suicide and Self Harm",
    "Sexual (minor)",
    "Hate/Identity Hate",
    "PII/Privacy",
    "Harassment",
    "Threat",
    "Profanity",
    "Needs Caution",
)
"""O1 to O13."""
LABELS = ["safe", *(f"O{number}" for number in range(1, len(CATEGORIES) + 1)), "unknown"]
PROMPT = "\n".join(
    [
        "[INST] Decide whether the content below is unsafe by these categories.",
        "",
        *(f"O{number}: {name}" for number, name in enumerate(CATEGORIES, start=1)),
        "",
        TEXT,
        "",
        "Answer 'safe' or 'unsafe'; if unsafe, list the categories on a second line. [/INST]",
    ]
)
"""Used where the prompt that an adapter was trained with is not given."""


def label_of(answer: str) -> str:
    """Return the label that an answer means: `safe`, the first category that it names, or `unknown`."""
    lines = answer.strip().splitlines()
    first = lines[0].strip().lower() if lines else ""
    if first == "safe":
        return "safe"
    named = re.search(r"\bO(1[0-3]|[1-9])\b", "\n".join(lines[1:])) if first == "unsafe" else None
    return named[0] if named else "unknown"


class RunGuard(ModelStage):
    """Run a language model, and read its answer."""

    def __init__(  # noqa: PLR0913  # each is a part of its own, and given by name
        self,
        model: GuardModel,
        *,
        tokens_field: str,
        model_inference_batch_size: int,
        sort_by_length: bool,
        keep_tokens: bool,
        label_field: str,
        raw_output_field: str | None,
        filter_by: Sequence[str] | None,
    ) -> None:
        super().__init__(
            model, tokens_field, model_inference_batch_size, sort_by_length=sort_by_length, keep_tokens=keep_tokens
        )
        self.label_field = label_field
        self.raw_output_field = raw_output_field
        self.filter_by = None if filter_by is None else tuple(filter_by)
        self._tokenizer: IdTokenizer | None = None

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the columns that receive the results."""
        return ["data"], [self.label_field, *([self.raw_output_field] if self.raw_output_field else [])]

    def load_more(self) -> None:
        """Load the tokenizer, which turns answers into text."""
        self._tokenizer = IdTokenizer(folder_of(self.model.references[0]))

    def finished(self, task: DocumentBatch, numbers: Numbers) -> DocumentBatch:
        """Return the documents with the labels that the answers mean."""
        assert self._tokenizer is not None, "it was set up"
        answers = [self._tokenizer.decode([one for one in row if one >= 0]) for row in numbers.tolist()]
        labels = [label_of(answer) for answer in answers]
        raw = {self.raw_output_field: answers} if self.raw_output_field else {}
        task = set_columns(task, {self.label_field: labels, **raw})
        return task if self.filter_by is None else keep_labels(task, labels, None, self.filter_by)


@model_stage
class AegisClassifier(TextModelStage):
    """Label the safety of texts: safe, O1 to O13 for the category that makes it unsafe, or unknown.

    The model is LlamaGuard with an adapter. Give the prompt that the adapter was trained with, from its model card.
    """

    field_docs = """
        `model`: the language model. `aegis_variant`: its LoRA adapter, or null.
        `prompt`: the text around `{text}` that the model gets; null: one that names the categories.
        `label_field`: column for the label. `raw_output_field`: column for the answer with `keep_raw_output`.
        `max_new_tokens`: tokens of an answer. `filter_by`: keep documents with these labels; null keeps all."""

    model: str = BASE
    aegis_variant: str | None = "nvidia/Aegis-AI-Content-Safety-LlamaGuard-Defensive-1.0"
    prompt: str | None = None
    label_field: str = "aegis_pred"
    raw_output_field: str = "_aegis_raw_pred"
    keep_raw_output: bool = False
    filter_by: Sequence[str] | None = None
    max_new_tokens: int = 100
    max_chars: int | None = 6000
    max_length: int | None = 4096
    model_inference_batch_size: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.filter_by, str):
            raise UsageError(f"AegisClassifier.filter_by: {self.filter_by!r} is one label; give a list")
        check_filter("AegisClassifier", self.filter_by, LABELS)
        if self.prompt is not None and TEXT not in self.prompt:
            raise UsageError(f"AegisClassifier.prompt: it has no {TEXT}, where the text of a document belongs")

    def tokenizer(self) -> Tokenize:
        """Return the stage that makes the ids of the prompt."""
        made = super().tokenizer()
        made.prompt = PROMPT if self.prompt is None else self.prompt
        return made

    def runner(self) -> Stage:
        """Return the stage that runs the model."""
        adapter = None if self.aegis_variant is None else self.reference("aegis_variant", self.aegis_variant)
        model = GuardModel(
            self.reference("model", self.model), adapter, most_tokens=self.max_new_tokens, runtime=self.runtime
        )
        return RunGuard(
            model,
            tokens_field=self.tokens_field,
            model_inference_batch_size=self.model_inference_batch_size,
            sort_by_length=self.sort_by_length,
            keep_tokens=self.keep_tokens,
            label_field=self.label_field,
            raw_output_field=self.raw_output_field if self.keep_raw_output else None,
            filter_by=self.filter_by,
        )


@model_stage
class InstructionDataGuardClassifier(TextModelStage):
    """Find poisoned records among instruction data: the probability, and whether it is at least one half.

    The model is LlamaGuard with an adapter, and a small network on the state of its last token.
    """

    field_docs = """
        `model`: the language model. `adapter`: its LoRA adapter, or null. `guard`: the network.
        `label_field`, `score_field`: columns for the truth value and the probability.
        `filter_by`: [false] keeps documents that are not poisoned; null keeps all."""

    model: str = BASE
    adapter: str | None = "nvidia/Aegis-AI-Content-Safety-LlamaGuard-Defensive-1.0"
    guard: str = "nvidia/instruction-data-guard"
    label_field: str = "is_poisoned"
    score_field: str = "instruction_data_guard_poisoning_score"
    filter_by: Sequence[bool] | None = None
    max_length: int | None = 4096
    model_inference_batch_size: int = 64

    def outputs_of_model(self) -> Outputs:
        """Return the probability."""
        return Poisoned(self.label_field, self.score_field)

    def runner(self) -> Stage:
        """Return the stage that runs the model."""
        adapter = None if self.adapter is None else self.reference("adapter", self.adapter)
        head = self.reference("guard", self.guard)
        model: TextModel = GuardModel(self.reference("model", self.model), adapter, head, runtime=self.runtime)
        return RunClassifier(
            model,
            self.outputs_of_model(),
            tokens_field=self.tokens_field,
            model_inference_batch_size=self.model_inference_batch_size,
            sort_by_length=self.sort_by_length,
            keep_tokens=self.keep_tokens,
            filter_by=self.filter_by,
        )
