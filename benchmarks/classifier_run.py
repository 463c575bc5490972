# SPDX-License-Identifier: Apache-2.0
"""One run for `classifier.py`. Usage: classifier_run.py pipeline|loop MODEL INPUT OUTPUT BATCH, or model MODEL INPUT

`pipeline` is a QualityClassifier between a reader and a writer. `loop` is what one writes without a framework: batches
in the order of the input, tokenized and padded together by transformers, one after another. `model` makes the model.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LABELS = ["High", "Medium", "Low"]
MAX_LENGTH = 512
MAX_CHARS = 6000
_VOCABULARY = 16_000


def make_model(folder: Path, source: Path) -> None:
    """Make a DeBERTa of 6 layers, 384 wide, with random weights and a head on its first token, and its tokenizer."""
    import safetensors.torch
    import torch
    from transformers import DebertaV2Config, DebertaV2Model

    vocabulary = make_tokenizer(folder, source)
    torch.manual_seed(5)
    config = DebertaV2Config(
        vocab_size=vocabulary,
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=6,
        intermediate_size=1536,
        relative_attention=True,
        position_buckets=256,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        type_vocab_size=0,
        max_position_embeddings=512,
        initializer_range=0.08,
    )
    module = torch.nn.ModuleDict({"model": DebertaV2Model(config), "fc": torch.nn.Linear(384, len(LABELS))})
    torch.nn.init.normal_(module["fc"].weight)  # so that labels differ
    safetensors.torch.save_file(module.state_dict(), str(folder / "model.safetensors"))
    known = {key: value for key, value in config.to_dict().items() if key not in ("id2label", "label2id")}
    known |= {"fc_dropout": 0.2, "id2label": {str(place): label for place, label in enumerate(LABELS)}}
    (folder / "config.json").write_text(json.dumps(known))


def make_tokenizer(folder: Path, source: Path) -> int:
    """Train a tokenizer on the documents, and return the size of its vocabulary."""
    import tokenizers

    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.BertNormalizer()
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=_VOCABULARY, special_tokens=special, show_progress=False)
    made.train_from_iterator((text[:MAX_CHARS] for text, _ in _records(source)), trainer)
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    folder.mkdir(parents=True)
    made.save(str(folder / "tokenizer.json"))
    names = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": MAX_LENGTH, **names})
    )
    return int(made.get_vocab_size())


def _records(source: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(source.glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                yield record["text"], record


def run_loop(folder: Path, source: Path, output: Path, batch: int) -> int:
    """Classify batch after batch."""
    import safetensors.torch
    import torch
    from transformers import AutoConfig, DebertaV2Model, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder))
    config = AutoConfig.from_pretrained(str(folder))
    module = torch.nn.ModuleDict({"model": DebertaV2Model(config), "fc": torch.nn.Linear(384, len(LABELS))}).eval()
    module.load_state_dict(safetensors.torch.load_file(str(folder / "model.safetensors")))
    records = list(_records(source))
    output.mkdir()
    with (output / "labels.jsonl").open("w", encoding="utf-8") as file, torch.inference_mode():
        for start in range(0, len(records), batch):
            some = records[start : start + batch]
            texts = [text[:MAX_CHARS] for text, _ in some]
            given = tokenizer(texts, padding=True, truncation=True, max_length=MAX_LENGTH, return_tensors="pt")
            states = module["model"](input_ids=given["input_ids"], attention_mask=given["attention_mask"])
            found = torch.softmax(module["fc"](states.last_hidden_state[:, 0]), dim=1)
            scores, best = found.max(dim=1)
            for (_, record), label, score in zip(some, best.tolist(), scores.tolist(), strict=True):
                file.write(json.dumps({**record, "quality_pred": LABELS[label], "score": score}) + "\n")
    return len(records)


def run_pipeline(folder: Path, source: Path, output: Path, batch: int) -> int:
    """Classify as a pipeline."""
    from thresher import JsonlReader, JsonlWriter, LocalExecutor, Pipeline, QualityClassifier

    classifier = QualityClassifier(
        model=str(folder),
        score_field="score",
        max_chars=MAX_CHARS,
        max_length=MAX_LENGTH,
        model_inference_batch_size=batch,
    ).with_(num_workers=os.cpu_count())
    stages = [JsonlReader(str(source)), classifier, JsonlWriter(str(output))]
    result = Pipeline("classifier", stages=stages).run(LocalExecutor(workers=2), progress="none")
    return int(result.counts["written"])


def main(side: str, model: Path, source: Path, output: Path | None = None, batch: int = 64) -> None:
    """Run one side, and print how many documents it wrote."""
    if side == "model":
        make_model(model, source)
        return
    assert output is not None, "both sides write"
    run = run_loop if side == "loop" else run_pipeline
    print(json.dumps({"documents": run(model, source, output, batch)}))


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:5]), *map(int, sys.argv[5:]))  # type: ignore[arg-type]  # by position
