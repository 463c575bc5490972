# SPDX-License-Identifier: Apache-2.0
"""What all stages have in common that tokenize texts and run a model on them."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from typing import Any, Literal, TypeVar, dataclass_transform

from thresher.core.arguments.construction import check_constructor
from thresher.core.arguments.options import check_choice, check_count, field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.core.stage import CompositeStage, ProcessingStage
from thresher.errors import UsageError
from thresher.models.inference.text_model import Backend, Runtime
from thresher.models.loading.reference import ModelReference
from thresher.stages.text.models.model_stage import MODEL_RESOURCES
from thresher.stages.text.models.tokenize import Tokenize

C = TypeVar("C", bound=type[Any])
Stage = ProcessingStage[Any, Any]
CPU_TASK_TOKENS = 65_536
"""Tokens of a task for a model on a CPU, which takes up to half a minute for them. With larger tasks, workers would be
idle at the end of a run."""
BACKENDS = ("auto", "onnx", "torch")


@dataclass_transform(kw_only_default=True)
def model_stage(cls: C) -> C:
    """Make a constructor of the fields of a class, whose docstrings describe them to `thresher stages`."""
    made: Any = dataclasses.dataclass(kw_only=True, eq=False, repr=False)(cls)
    # Each hint is resolved where its class is defined: the names are not known where a subclass is.
    hints = typing.get_type_hints(made)
    made.__init__.__annotations__ = {field.name: hints[field.name] for field in dataclasses.fields(made)}
    docs = [parent.__dict__["field_docs"] for parent in cls.__mro__ if "field_docs" in parent.__dict__]
    made.__init__.__doc__ = "\n".join(inspect.cleandoc(text) for text in docs)
    check_constructor(made)
    return cls


@model_stage
class TextModelStage(CompositeStage[DocumentBatch, DocumentBatch]):
    """Tokenize texts on shared CPU workers, and run a model on workers of its own.

    What is set with `with_`, or beside the parameters in a recipe, holds for the workers of the model: `resources`,
    `batch_size`, `num_workers`, `timeout_s`, `max_attempts`.
    """

    field_docs = """
        `model`: a folder, a URL, or `owner/name` of the Hugging Face Hub (`@revision` may follow).
        `max_chars`: use so many characters of a text; `max_length`: so many tokens, null: as many as the model takes.
        `model_inference_batch_size`: texts of a forward pass at most; `sort_by_length`: for little padding.
        `tokens_field`: column of the token ids, which is dropped unless `keep_tokens`; with `use_existing_tokens` an
        earlier stage has written it.
        `backend`: `onnx`, `torch`, or `auto`: ONNX Runtime if there is a model.onnx. `device`: `auto`, `cpu`, `cuda` or
        `mps`. `autocast`: compute in half precision on an accelerator.
        `sha256`: checksums of files of the model by name. `allow_pickle`: also load weights that are pickles.
        `cache_dir`, `storage_options`: where remote models are kept, and how they are reached."""

    resources = MODEL_RESOURCES

    model: str
    text_field: str = "text"
    max_chars: int | None = None
    max_length: int | None = None
    model_inference_batch_size: int = 256
    sort_by_length: bool = True
    tokens_field: str = "input_ids"
    keep_tokens: bool = False
    use_existing_tokens: bool = False
    backend: Literal["auto", "onnx", "torch"] = "auto"
    device: str = "auto"
    autocast: bool = True
    sha256: dict[str, str] | None = None
    allow_pickle: bool = False
    cache_dir: str | None = None
    storage_options: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        own = type(self).__name__
        for name in ("text_field", "tokens_field"):
            field_name(own, name, getattr(self, name))
        for name in ("max_chars", "max_length"):
            if getattr(self, name) is not None:
                check_count(f"{own}.{name}", getattr(self, name))
        check_count(f"{own}.model_inference_batch_size", self.model_inference_batch_size)
        check_choice(f"{own}.backend", self.backend, BACKENDS)
        if not isinstance(self.device, str) or not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", self.device):
            raise UsageError(f"{own}.device: {self.device!r} is not auto, cpu, mps, cuda or cuda:N")
        self.reference("model", self.model)

    def reference(self, parameter: str, name: str) -> ModelReference:
        """Return a model that a parameter names."""
        caller = f"{type(self).__name__}.{parameter}"
        sums = self.sha256 if parameter == "model" else None
        return ModelReference(name, caller, sums or {}, self.allow_pickle, self.cache_dir, self.storage_options)

    @property
    def runtime(self) -> Runtime:
        """Return how the model is run."""
        backend: Backend = self.backend
        return Runtime(backend, self.device, self.autocast)

    def tokenizer(self) -> Tokenize:
        """Return the stage that makes the ids."""
        made = Tokenize(
            self.model,
            text_field=self.text_field,
            tokens_field=self.tokens_field,
            max_chars=self.max_chars,
            max_length=self.max_length,
            tokens_per_task=None if self.resources.requires_gpu else CPU_TASK_TOKENS,
        )
        made.model = self.reference("model", self.model)
        return made

    def runner(self) -> Stage:
        """Return the stage that runs the model."""
        raise TypeError(f"{type(self).__name__} must define runner()")

    def decompose(self) -> list[Stage]:
        """Return the stage that tokenizes and the one that runs the model, with the settings of this one."""
        first = [] if self.use_existing_tokens else [self.tokenizer().with_(name=f"{self.name}-tokens")]
        return [*first, self.with_settings(self.runner())]

    def with_settings(self, stage: Stage) -> Stage:
        """Return a stage with what was set for this one."""
        changed = stage.with_(
            name=self.name,
            resources=self.resources,
            batch_size=self.batch_size,
            timeout_s=self.timeout_s,
            max_attempts=self.max_attempts,
            runtime_env=self.runtime_env,
        )
        workers = self.num_workers()
        return changed if workers is None else changed.with_(num_workers=workers)
