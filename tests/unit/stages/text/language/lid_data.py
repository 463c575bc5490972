# SPDX-License-Identifier: Apache-2.0
"""Sentences with known languages, and models for tests of language identification."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import zstandard

from thresher.stages.text.language.codes import code_of

DATA = Path(__file__).parents[6] / "shared" / "data" / "lid"


def gold(kind: str) -> list[tuple[str, str]]:
    """Return texts and the codes of their languages; the test is skipped where the data is not at hand."""
    path = DATA / f"{kind}.jsonl.zst"
    if not path.is_file():
        pytest.skip(f"the sentences with their languages are not at {path}")
    with open(path, "rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()
    records = [json.loads(line) for line in lines]
    return [(record["text"], code_of(record["language"])) for record in records]


def small_fasttext_model(folder: Path) -> str:
    """Train a fastText model that knows English (`eng_Latn`) and German (`deu_Latn`) a little."""
    fasttext = pytest.importorskip("fasttext", reason="needs the extra `fasttext`")
    texts = {"eng_Latn": "the weather is nice and warm today", "deu_Latn": "das Wetter ist heute schön und warm"}
    lines = [f"__label__{code} {text}" for code, text in texts.items()] * 300
    (folder / "train.txt").write_text("\n".join(lines), encoding="utf-8")
    model = fasttext.train_supervised(str(folder / "train.txt"), dim=8, epoch=15, lr=0.5, thread=1, bucket=0, verbose=0)
    model.save_model(str(folder / "model.bin"))
    return str(folder / "model.bin")
