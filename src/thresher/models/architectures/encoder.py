# SPDX-License-Identifier: Apache-2.0
"""Sentence encoders: a transformer whose states of a text become one vector."""

from __future__ import annotations

from typing import Any

import torch

from thresher.models.architectures.classifiers import mean_of
from thresher.models.inference.torch_model import quiet_transformers
from thresher.models.loading.folder import ModelFolder


class Encoder(torch.nn.Module):
    """A transformer that gives one vector for each text: of the mean, the first or the last of its tokens."""

    def __init__(self, folder: ModelFolder, pooling: str) -> None:
        super().__init__()
        from transformers import AutoModel

        quiet_transformers()
        is_safe = not folder.weights().endswith((".bin", ".pt", ".bin.index.json"))
        self.model: Any = AutoModel.from_pretrained(
            folder.path, use_safetensors=is_safe, local_files_only=True, dtype=torch.float32, trust_remote_code=False
        )
        self._pooling = pooling

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the vector of each text."""
        states: torch.Tensor = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        if self._pooling == "mean":
            return mean_of(states.float(), mask)
        if self._pooling == "cls":
            return states[:, 0]
        return states[torch.arange(len(states), device=states.device), (mask.sum(dim=1) - 1).clamp(min=0)]
