# SPDX-License-Identifier: Apache-2.0
"""Small models with random weights, saved in the layouts of the checkpoints that the stages load."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

WORDS = ["the", "cat", "sat", "on", "a", "mat", "dog", "ran", "far", "away", "red", "blue", "and", "then", "home", "it"]
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
TEXTS = [
    "the cat sat on the mat",
    "dog",
    "a red dog ran far away and then it ran home and sat on a blue mat " * 3,
    "",
    "blue cat",
    "it sat then the red cat and the blue dog ran home",
    "unheard of words",
]


def save_tokenizer(folder: Path, specials: bool = True) -> Any:
    """Save a tokenizer of words, and return it. With `specials`, [CLS] and [SEP] stand around a text."""
    import tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {word: place for place, word in enumerate([*SPECIAL, *WORDS])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.add_special_tokens(SPECIAL)
    if specials:
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
        )
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 48}))
    return made


def deberta_config() -> Any:
    """A DeBERTa of the third version, as small as it gets."""
    from transformers import DebertaV2Config

    return DebertaV2Config(
        vocab_size=len(SPECIAL) + len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        relative_attention=True,
        position_buckets=8,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        type_vocab_size=0,
        max_position_embeddings=64,
        layer_norm_eps=1e-7,
        initializer_range=0.5,
    )


def save_custom_head(folder: Path, labels: list[str]) -> Any:
    """Save a DeBERTa with a linear layer on its first token, as classifiers of domain and quality are; return it."""
    import safetensors.torch
    import torch
    from transformers import DebertaV2Model

    torch.manual_seed(7)
    save_tokenizer(folder)
    config = deberta_config()
    model = torch.nn.ModuleDict(
        {"model": DebertaV2Model(config), "fc": torch.nn.Linear(config.hidden_size, len(labels))}
    ).eval()
    torch.nn.init.normal_(model["fc"].weight, std=2.0)
    own = {
        **{key: value for key, value in config.to_dict().items() if key not in ("id2label", "label2id")},
        "base_model": "microsoft/deberta-v3-base",
        "fc_dropout": 0.2,
        "id2label": {str(place): label for place, label in enumerate(labels)},
        "label2id": {label: place for place, label in enumerate(labels)},
    }
    (folder / "config.json").write_text(json.dumps(own))
    safetensors.torch.save_file(model.state_dict(), str(folder / "model.safetensors"))
    return model


def save_regression(folder: Path) -> Any:
    """Save a BERT with one output, as the classifiers of educational value are; return it."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(11)
    save_tokenizer(folder)
    model = BertForSequenceClassification(_bert(BertConfig, num_labels=1)).eval()
    torch.nn.init.normal_(model.classifier.weight, std=1.5)
    torch.nn.init.constant_(model.classifier.bias, 5.0)
    model.save_pretrained(folder)
    return model


def save_labels(folder: Path, labels: list[str]) -> Any:
    """Save a BERT that classifies sequences; return it."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(13)
    save_tokenizer(folder)
    names = dict(enumerate(labels))
    model = BertForSequenceClassification(_bert(BertConfig, num_labels=len(labels), id2label=names)).eval()
    torch.nn.init.normal_(model.classifier.weight, std=2.0)
    model.save_pretrained(folder)
    return model


def _bert(kind: Any, **more: Any) -> Any:
    return kind(
        vocab_size=len(SPECIAL) + len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
        initializer_range=0.5,
        **more,
    )


def save_encoder(folder: Path, pooling: str = "mean") -> Any:
    """Save a BERT without a head, with the files of sentence-transformers; return it."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(17)
    save_tokenizer(folder)
    model = BertModel(_bert(BertConfig)).eval()
    model.save_pretrained(folder)
    names = {"mean": "mean_tokens", "cls": "cls_token", "last": "lasttoken"}
    (folder / "1_Pooling").mkdir()
    settings = {f"pooling_mode_{name}": key == pooling for key, name in names.items()}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    return model


HEADS = {
    "task_type": 4,
    "creativity_scope": 3,
    "reasoning": 2,
    "contextual_knowledge": 2,
    "number_of_few_shots": 3,
    "domain_knowledge": 4,
    "no_label_reason": 1,
    "constraint_ct": 2,
}


def save_several_heads(folder: Path) -> Any:
    """Save a DeBERTa with a head for each property of a prompt; return it."""
    import safetensors.torch
    import torch
    from transformers import DebertaV2Model

    torch.manual_seed(19)
    save_tokenizer(folder)
    config = deberta_config()
    heads = {
        f"head_{n}": torch.nn.ModuleDict({"fc": torch.nn.Linear(32, size)}) for n, size in enumerate(HEADS.values())
    }
    model = torch.nn.ModuleDict({"backbone": DebertaV2Model(config), **heads}).eval()
    for head in heads.values():
        torch.nn.init.normal_(head["fc"].weight, std=1.0)
    own = {
        **{key: value for key, value in config.to_dict().items() if key not in ("id2label", "label2id")},
        "target_sizes": HEADS,
        "task_type_map": {str(n): f"type {n}" for n in range(HEADS["task_type"])},
        "weights_map": {name: list(range(size)) for name, size in HEADS.items()},
        "divisor_map": {name: max(1, size - 1) for name, size in HEADS.items()},
    }
    (folder / "config.json").write_text(json.dumps(own))
    safetensors.torch.save_file(model.state_dict(), str(folder / "model.safetensors"))
    return model


def save_language_model(folder: Path, adapter: Path | None = None) -> Any:
    """Save a small Llama, and a LoRA adapter for it; return the adapted model."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(23)
    save_tokenizer(folder, specials=False)
    config = LlamaConfig(
        vocab_size=len(SPECIAL) + len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=48,
        max_position_embeddings=256,
        initializer_range=0.5,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config).eval()
    torch.nn.init.normal_(model.lm_head.weight, std=1.0)
    model.save_pretrained(folder)
    if adapter is None:
        return model
    import peft

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # between versions of peft and transformers
        lora: Any = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    for name, parameter in lora.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    lora.save_pretrained(str(adapter))
    return lora.eval()


def save_guard(folder: Path, width: int = 32) -> Any:
    """Save a network that judges the state of the last token; return it."""
    import safetensors.torch
    import torch

    torch.manual_seed(29)
    folder.mkdir(parents=True)
    sizes = [width, width, 20, 10, 1]
    names = ["input_layer", "hidden_layer_0", "hidden_layer_1", "hidden_layer_2"]
    layers = torch.nn.ModuleDict({name: torch.nn.Linear(sizes[n], sizes[n + 1]) for n, name in enumerate(names)})
    for layer in layers.values():
        torch.nn.init.normal_(layer.weight, std=0.5)
    safetensors.torch.save_file(layers.state_dict(), str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps({"input_dim": width, "dropout": 0.7}))
    return layers


def needs_torch() -> None:
    """Skip a module of tests where models cannot be built."""
    for package in ("torch", "transformers", "safetensors", "tokenizers"):
        pytest.importorskip(package, reason="needs the extra `transformers`")
