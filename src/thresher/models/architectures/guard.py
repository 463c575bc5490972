# SPDX-License-Identifier: Apache-2.0
"""Language models with a LoRA adapter that judge a text: by what they answer, or by a small network on the state of the
last token."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from thresher.models.architectures.backbone import load_into, read_weights
from thresher.models.inference.torch_model import quiet_transformers
from thresher.models.loading.folder import ModelFolder


def adapted(base: ModelFolder, adapter: ModelFolder | None, dtype: torch.dtype) -> Any:
    """Return a language model, with the weights of its adapter added to its own."""
    from transformers import AutoModelForCausalLM

    quiet_transformers()
    is_safe = not base.weights().endswith((".bin", ".pt", ".bin.index.json"))
    model: Any = AutoModelForCausalLM.from_pretrained(
        base.path, use_safetensors=is_safe, local_files_only=True, dtype=dtype, trust_remote_code=False
    )
    if adapter is None:
        return model
    import peft

    adapter.weights()  # refuses a pickle
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # between versions of peft and transformers
        return peft.PeftModel.from_pretrained(model, adapter.path).merge_and_unload()


class Answer(torch.nn.Module):
    """Gives the ids of the tokens that a language model answers, greedily; `-1` behind the end."""

    def __init__(self, model: Any, most_tokens: int, pad_id: int, end_ids: list[int]) -> None:
        super().__init__()
        self.model = model
        self._most_tokens = most_tokens
        self._pad_id = pad_id
        self._end_ids = end_ids

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return `most_tokens` ids for each text."""
        generated = self.model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=self._most_tokens,
            do_sample=False,
            pad_token_id=self._pad_id,
            eos_token_id=self._end_ids,
            temperature=None,
            top_p=None,
        )[:, ids.shape[1] :]
        found = torch.full((len(ids), self._most_tokens), -1, dtype=torch.int64, device=ids.device)
        found[:, : generated.shape[1]] = generated
        ends = torch.isin(found, torch.tensor(self._end_ids, device=ids.device))
        return found.masked_fill(ends.cumsum(dim=1) > 0, -1)


class LastToken(torch.nn.Module):
    """Gives the probability that a network reads from the state of the last token."""

    def __init__(self, model: Any, head: ModelFolder) -> None:
        super().__init__()
        self.model = model.get_decoder() if hasattr(model, "get_decoder") else model.model
        self.head = PoisonNetwork(int(head.config.get("input_dim", self.model.config.hidden_size)), head)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return one probability for each text."""
        states = self.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        last = states[torch.arange(len(states), device=states.device), mask.sum(dim=1) - 1]
        found: torch.Tensor = self.head(last.float())
        return found


class PoisonNetwork(torch.nn.Module):
    """Four linear layers on a vector of length 1; gives a probability."""

    def __init__(self, width: int, folder: ModelFolder) -> None:
        super().__init__()
        weights = read_weights(folder)
        first, second = (
            len(weights[f"hidden_layer_{n}.bias"]) if f"hidden_layer_{n}.bias" in weights else n for n in (0, 1)
        )
        self.input_layer = torch.nn.Linear(width, width)
        self.hidden_layer_0 = torch.nn.Linear(width, first)
        self.hidden_layer_1 = torch.nn.Linear(first, second)
        self.hidden_layer_2 = torch.nn.Linear(second, 1)
        load_into(self, weights, folder)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return the probability of each state."""
        found = torch.nn.functional.normalize(states, dim=-1)
        for layer in (self.input_layer, self.hidden_layer_0, self.hidden_layer_1):
            found = torch.relu(layer(found))
        return torch.sigmoid(self.hidden_layer_2(found))
