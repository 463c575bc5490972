# SPDX-License-Identifier: Apache-2.0
"""Models of texts as a stage names them: where their files are, what they need, and how a worker loads them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from thresher.core.resources import WorkerMetadata
from thresher.errors import InputError, UsageError, refusals
from thresher.models.inference.batches import TokenModel
from thresher.models.inference.onnx_model import OnnxModel, check_onnxruntime
from thresher.models.inference.token_ids import check_tokenizers, pad_id_of
from thresher.models.inference.torch_model import TorchModel, check_torch
from thresher.models.loading.folder import ModelFolder
from thresher.models.loading.reference import ModelReference

if TYPE_CHECKING:
    from thresher.models.inference.batches import Numbers
    from thresher.models.token_lists import Rows

Backend = Literal["auto", "onnx", "torch"]
Pooling = Literal["auto", "mean", "cls", "last"]


@dataclass(frozen=True)
class Runtime:
    """How a model is run."""

    backend: Backend = "auto"
    """`auto` takes ONNX Runtime for folders with a model.onnx, and torch for others."""
    device: str = "auto"
    """`auto` takes the accelerator of the worker, then `mps`, then the CPU."""
    autocast: bool = True
    """Compute in half precision on an accelerator."""


class TextModel(Protocol):
    """A model that is not loaded yet."""

    @property
    def references(self) -> tuple[ModelReference, ...]:
        """Return all folders that it consists of."""
        ...

    def problems(self) -> list[str]:
        """Return what is certain to fail on this machine, without downloading or loading anything."""
        ...

    def preloads(self) -> list[str]:
        """Return packages to import before workers are forked."""
        ...

    def load(self, metadata: WorkerMetadata | None) -> TokenModel:
        """Return the model, loaded for a worker."""
        ...

    def labels(self) -> list[str]:
        """Return the labels of its outputs, as the files say; empty if they do not."""
        ...


def folder_of(reference: ModelReference) -> ModelFolder:
    """Return the local folder of a model; it is downloaded if it is not here yet."""
    return ModelFolder(reference.fetch(), reference.caller, allow_pickle=reference.allow_pickle)


def known_folder(reference: ModelReference) -> ModelFolder | None:
    """Return the folder of a model if it is a local one."""
    path = reference.known_folder()
    return None if path is None else ModelFolder(path, reference.caller, allow_pickle=reference.allow_pickle)


def graph_of(folder: ModelFolder, runtime: Runtime) -> str | None:
    """Return the ONNX graph that is run; `None` if torch is."""
    if runtime.backend == "torch":
        return None
    if runtime.backend == "onnx" and folder.graph is None:
        raise InputError(f"{folder.caller}: {folder.path} has no model.onnx; export one, or leave backend at 'auto'")
    return folder.graph


def _problems(reference: ModelReference, runtime: Runtime) -> list[str]:
    """Return problems of a model with one folder."""
    found = [*reference.problems(), *refusals(lambda: check_tokenizers(reference.caller))]
    folder = known_folder(reference)
    if folder is None or found:
        return found
    graph: list[str | None] = []
    found += refusals(lambda: graph.append(graph_of(folder, runtime)))
    if not graph:
        return found
    if graph[0] is not None:
        return found + refusals(lambda: check_onnxruntime(reference.caller))
    return found + refusals(folder.weights) + refusals(lambda: check_torch(reference.caller))


def _preloads(reference: ModelReference, runtime: Runtime) -> list[str]:
    """Return `torch` if it is likely to be needed. ONNX Runtime starts threads, which a process that forks must not
    have."""
    folder = known_folder(reference)
    uses_torch = runtime.backend == "torch" or (runtime.backend == "auto" and (folder is None or folder.graph is None))
    return ["torch"] if uses_torch else []


@dataclass(frozen=True)
class SingleModel:
    """A model that one folder holds."""

    reference: ModelReference
    """Where it is."""
    runtime: Runtime = Runtime()
    """How it is run."""

    @property
    def references(self) -> tuple[ModelReference, ...]:
        """Return its folder."""
        return (self.reference,)

    def problems(self) -> list[str]:
        """Return what is certain to fail on this machine."""
        return _problems(self.reference, self.runtime)

    def preloads(self) -> list[str]:
        """Return packages to import before workers are forked."""
        return _preloads(self.reference, self.runtime)

    def labels(self) -> list[str]:
        """Return the labels of config.json."""
        return folder_of(self.reference).labels


@dataclass(frozen=True)
class ClassifierModel(SingleModel):
    """A sequence classification model: gives logits."""

    def load(self, metadata: WorkerMetadata | None) -> TokenModel:
        """Return the model, loaded for a worker."""
        folder = folder_of(self.reference)
        graph = graph_of(folder, self.runtime)
        if graph is not None:
            return _onnx(graph, folder, self.runtime, metadata)
        check_torch(folder.caller)
        from thresher.models.architectures.classifiers import classifier

        return TorchModel(
            lambda: classifier(folder),
            metadata,
            pad_id=pad_id_of(folder),
            device=self.runtime.device,
            autocast=self.runtime.autocast,
        )


@dataclass(frozen=True)
class EncoderModel(SingleModel):
    """A sentence encoder: gives vectors."""

    pooling: Pooling = "auto"
    """What a vector is made of; `auto`: as the files of sentence-transformers say, else the mean."""

    def load(self, metadata: WorkerMetadata | None) -> TokenModel:
        """Return the model, loaded for a worker."""
        folder = folder_of(self.reference)
        pooling = pooling_of(folder) if self.pooling == "auto" else self.pooling
        graph = graph_of(folder, self.runtime)
        if graph is not None:
            return PooledOnnx(_onnx(graph, folder, self.runtime, metadata), pooling)
        check_torch(folder.caller)
        from thresher.models.architectures.encoder import Encoder

        return TorchModel(
            lambda: Encoder(folder, pooling),
            metadata,
            pad_id=pad_id_of(folder),
            device=self.runtime.device,
            autocast=self.runtime.autocast,
        )


def pooling_of(folder: ModelFolder) -> str:
    """Return the pooling that the files of sentence-transformers name; the mean if there are none."""
    settings = folder.json("1_Pooling/config.json")
    named = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_lasttoken": "last"}
    chosen = [name for key, name in named.items() if settings.get(key)]
    others = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value and key not in named]
    if others or len(chosen) > 1:
        raise UsageError(
            f"{folder.caller}: {folder.path} pools with {', '.join([*chosen, *others])}; only one of mean, cls and "
            "last is possible: choose it with pooling"
        )
    return chosen[0] if chosen else "mean"


def _onnx(graph: str, folder: ModelFolder, runtime: Runtime, metadata: WorkerMetadata | None) -> OnnxModel:
    return OnnxModel(graph, metadata, pad_id=pad_id_of(folder), caller=folder.caller, device=runtime.device)


class PooledOnnx:
    """An ONNX encoder whose states of tokens become one vector; a `TokenModel`."""

    pads_left = False

    def __init__(self, model: OnnxModel, pooling: str) -> None:
        self._model = model
        self._pooling = pooling
        self.pad_id = model.pad_id
        self.most_tokens = model.most_tokens

    def forward(self, ids: Rows, mask: Rows) -> Numbers:
        """Return the vector of each text."""
        import numpy as np

        states = self._model.forward(ids, mask)
        if states.ndim == 2:  # pooled by the graph
            return states
        if self._pooling == "cls":
            return np.asarray(states[:, 0])
        if self._pooling == "last":
            return np.asarray(states[np.arange(len(states)), np.maximum(mask.sum(axis=1) - 1, 0)])
        weights = mask[:, :, None].astype(states.dtype)
        return np.asarray((states * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1e-9))

    def free_memory(self) -> None:
        """Do nothing: ONNX Runtime reuses what it keeps."""


@dataclass(frozen=True)
class GuardModel:
    """A language model, with an adapter if one is named, that judges a text."""

    base: ModelReference
    """The language model, and its tokenizer."""
    adapter: ModelReference | None = None
    """The LoRA adapter."""
    head: ModelReference | None = None
    """The network that judges the state of the last token; `None`: the answer of the model is what counts."""
    most_tokens: int = 100
    """Tokens of an answer."""
    runtime: Runtime = Runtime()
    """How it is run."""

    @property
    def references(self) -> tuple[ModelReference, ...]:
        """Return its folders."""
        return tuple(one for one in (self.base, self.adapter, self.head) if one is not None)

    def problems(self) -> list[str]:
        """Return what is certain to fail on this machine."""
        torch_only = replace(self.runtime, backend="torch")
        needs = refusals(lambda: check_torch(self.base.caller, *(["peft"] if self.adapter is not None else [])))
        return list(dict.fromkeys([text for one in self.references for text in _problems(one, torch_only)] + needs))

    def preloads(self) -> list[str]:
        """Return packages to import before workers are forked."""
        return ["torch"]

    def labels(self) -> list[str]:
        """Return no labels."""
        return []

    def load(self, metadata: WorkerMetadata | None) -> TokenModel:
        """Return the model, loaded for a worker."""
        check_torch(self.base.caller, *(["peft"] if self.adapter is not None else []))
        import torch

        from thresher.models.architectures.guard import Answer, LastToken, adapted
        from thresher.models.inference.devices import torch_placement
        from thresher.models.inference.torch_model import half_type

        base, device = folder_of(self.base), torch_placement(metadata, self.runtime.device).device
        adapter = None if self.adapter is None else folder_of(self.adapter)
        is_half = self.runtime.autocast and device != "cpu"
        kind = half_type(device) if is_half else torch.float32
        pad_id = pad_id_of(base)

        def module() -> Any:
            model = adapted(base, adapter, kind)
            if self.head is not None:
                return LastToken(model, folder_of(self.head))
            ends = model.generation_config.eos_token_id
            return Answer(model, self.most_tokens, pad_id, ends if isinstance(ends, list) else [ends])

        loaded = TorchModel(module, metadata, pad_id=pad_id, device=self.runtime.device, autocast=False)
        loaded.pads_left = self.head is None
        return loaded
