# SPDX-License-Identifier: Apache-2.0
"""Classifiers: sequence classification of transformers, a linear layer on the first token, several heads on the mean of
the tokens."""

from __future__ import annotations

from typing import Any

import torch

from thresher.errors import InputError
from thresher.models.architectures.backbone import backbone, load_into, read_weights
from thresher.models.inference.torch_model import quiet_transformers
from thresher.models.loading.folder import ModelFolder


def classifier(folder: ModelFolder) -> torch.nn.Module:
    """Return the classifier of a folder; the names of its tensors tell its layout."""
    names = folder.weight_names()
    if "head_0.fc.weight" in names:
        made: torch.nn.Module = SeveralHeads(folder, sum(name.startswith("head_") for name in names) // 2)
    elif "fc.weight" in names or (not names and "fc_dropout" in folder.config):
        made = FirstToken(folder)
    else:
        return Plain(folder)
    load_into(made, read_weights(folder), folder)
    return made


class Plain(torch.nn.Module):
    """A sequence classification model of transformers; gives its logits."""

    def __init__(self, folder: ModelFolder) -> None:
        super().__init__()
        from transformers import AutoModelForSequenceClassification

        quiet_transformers()
        is_safe = not folder.weights().endswith((".bin", ".pt", ".bin.index.json"))
        self.model: Any = AutoModelForSequenceClassification.from_pretrained(
            folder.path, use_safetensors=is_safe, local_files_only=True, dtype=torch.float32, trust_remote_code=False
        )

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the logits of each text."""
        found: torch.Tensor = self.model(input_ids=ids, attention_mask=mask).logits
        return found


class FirstToken(torch.nn.Module):
    """A transformer with a linear layer on its first token; gives logits. Tensors are named `model.…` and `fc.…`."""

    def __init__(self, folder: ModelFolder) -> None:
        super().__init__()
        self.model = backbone(folder)
        self.fc = torch.nn.Linear(self.model.config.hidden_size, len(folder.labels))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the logits of each text."""
        found: torch.Tensor = self.fc(self.model(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0])
        return found


class SeveralHeads(torch.nn.Module):
    """A transformer with several linear heads on the mean of its tokens; gives the logits of all heads in a row. Its
    tensors are named `backbone.…` and `head_N.fc.…`."""

    def __init__(self, folder: ModelFolder, heads: int) -> None:
        super().__init__()
        self.backbone = backbone(folder)
        width = self.backbone.config.hidden_size
        sizes = list(folder.config.get("target_sizes", {}).values())
        if len(sizes) != heads:
            raise InputError(
                f"{folder.caller}: {folder.path} has {heads} heads, and target_sizes in its config.json names "
                f"{len(sizes)}; fetch the model again"
            )
        for number, size in enumerate(sizes):
            self.add_module(f"head_{number}", torch.nn.ModuleDict({"fc": torch.nn.Linear(width, size)}))
        self._heads = heads

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the logits of each text."""
        mean = mean_of(self.backbone(input_ids=ids, attention_mask=mask).last_hidden_state, mask)
        return torch.cat([self.get_submodule(f"head_{number}.fc")(mean) for number in range(self._heads)], dim=1)


def mean_of(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the mean of the states of the tokens that are none of padding."""
    weights = mask.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)
