# SPDX-License-Identifier: Apache-2.0
"""Transformers without a head: their configuration, and their weights from a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from thresher.errors import InputError
from thresher.models.inference.torch_model import quiet_transformers
from thresher.models.loading.folder import ModelFolder

_DEBERTA_V3: dict[str, Any] = {
    "model_type": "deberta-v2",
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-7,
    "max_position_embeddings": 512,
    "max_relative_positions": -1,
    "norm_rel_ebd": "layer_norm",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 0,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
    "position_buckets": 256,
    "relative_attention": True,
    "share_att_key": True,
    "type_vocab_size": 0,
    "vocab_size": 128100,
}
BASES: dict[str, dict[str, Any]] = {
    "microsoft/deberta-v3-base": _DEBERTA_V3,
    "microsoft/deberta-v3-small": {**_DEBERTA_V3, "num_hidden_layers": 6},
    "microsoft/mdeberta-v3-base": {**_DEBERTA_V3, "vocab_size": 251000},
}
"""Configurations of models that checkpoints name instead of saying what they are."""


def configuration(folder: ModelFolder) -> Any:
    """Return the configuration of the transformer of a checkpoint, which may only name the model it was made of."""
    from transformers import AutoConfig

    quiet_transformers()
    known = dict(folder.config)
    base = known.get("base_model")
    if not known.get("model_type"):
        if isinstance(base, str) and base.lower() in BASES:
            known = {**BASES[base.lower()]}
        elif isinstance(base, str) and os.path.isdir(beside := os.path.join(folder.path, base)):
            known = ModelFolder(beside, folder.caller).config
        else:
            raise InputError(
                f"{folder.caller}: {folder.path}/config.json has no model_type, and its base_model {base!r} is not one "
                f"of {', '.join(BASES)}; add the configuration of that model to config.json"
            )
    kind = known.pop("model_type", None)
    for own in ("id2label", "label2id", "architectures"):
        known.pop(own, None)
    return AutoConfig.for_model(kind, **known)


def backbone(folder: ModelFolder) -> Any:
    """Return a transformer without weights."""
    from transformers import AutoModel

    return AutoModel.from_config(configuration(folder), trust_remote_code=False)


def read_weights(folder: ModelFolder) -> dict[str, torch.Tensor]:
    """Return all tensors of a checkpoint by name."""
    path = folder.weights()
    if path.endswith(".index.json"):
        parts = sorted(set(folder.json(os.path.basename(path))["weight_map"].values()))
        return {name: tensor for part in parts for name, tensor in _read(os.path.join(folder.path, part)).items()}
    return _read(path)


def _read(path: str) -> dict[str, torch.Tensor]:
    if path.endswith(".safetensors"):
        from safetensors.torch import load_file

        tensors: dict[str, torch.Tensor] = load_file(path)
        return tensors
    try:
        found: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # among them one for a pickle that wants to run code
        raise InputError(f"{path} cannot be read as weights: {error}. Convert it to safetensors") from error
    return found


def load_into(module: torch.nn.Module, weights: Mapping[str, torch.Tensor], folder: ModelFolder) -> None:
    """Give a module the weights of a checkpoint; all of its own must be there."""
    try:
        missing, _ = module.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, strict=False)
    except RuntimeError as error:  # other shapes
        raise InputError(
            f"{folder.caller}: {folder.weights()} does not fit {folder.path}/config.json: {error}"
        ) from error
    if missing:
        raise InputError(
            f"{folder.caller}: {folder.weights()} lacks {len(missing)} of the tensors that config.json calls for, such "
            f"as {missing[0]!r}; it is another kind of model, or incomplete"
        )
