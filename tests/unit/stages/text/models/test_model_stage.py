# SPDX-License-Identifier: Apache-2.0
"""What a model stage does around its model: several tasks in one call, memory that runs out, settings, refusals."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.unit.core.json_batches import batch_of_lines
from tests.unit.models.tiny_models import SPECIAL, WORDS, save_tokenizer
from thresher import DocumentBatch, Pipeline, QualityClassifier, Resources, SerialExecutor, Tokenize
from thresher.core.resources import WorkerMetadata
from thresher.core.tally import context_of
from thresher.errors import UsageError
from thresher.models.inference.text_model import SingleModel
from thresher.models.loading.reference import ModelReference
from thresher.stages.text.models.model_stage import HALVED, ModelStage, set_columns

pytest.importorskip("tokenizers", reason="needs the extra `models`")


class Lengths:
    """A model that gives the number of tokens of each text, and whose memory holds so many."""

    pad_id = 0
    pads_left = False
    most_tokens = None

    def __init__(self, room: int) -> None:
        self.room = room

    def forward(self, ids: Any, mask: Any) -> Any:
        if ids.size > self.room:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return mask.sum(axis=1, keepdims=True)

    def free_memory(self) -> None:
        pass


@dataclass(frozen=True)
class LengthModel(SingleModel):
    """Stands for a model on a device with little memory."""

    room: int = 10**9

    def problems(self) -> list[str]:
        return []

    def preloads(self) -> list[str]:
        return []

    def load(self, metadata: WorkerMetadata | None) -> Any:
        return Lengths(self.room)


class CountTokens(ModelStage):
    """Writes the number of tokens."""

    def finished(self, task: DocumentBatch, numbers: Any) -> DocumentBatch:
        return set_columns(task, {"length": numbers[:, 0]})


@pytest.fixture
def folder(tmp_path: Path) -> str:
    save_tokenizer(tmp_path / "model")
    return str(tmp_path / "model")


def stage(folder: str, room: int, batch: int = 8) -> CountTokens:
    return CountTokens(LengthModel(ModelReference(folder, "x"), room=room), "input_ids", batch)


def texts(*lengths: int) -> DocumentBatch:
    return DocumentBatch([{"text": "cat " * length} for length in lengths])


def test_documents_of_several_tasks_are_computed_together_and_given_back_to_their_tasks(folder: str) -> None:
    tokenize = Tokenize(folder)
    tasks = [tokenize.process(task) for task in (texts(3, 1), texts(), texts(7))]
    made = stage(folder, room=10**9)
    assert [task.values("length") for task in made.process_batch(tasks) if len(task)] == [[5, 3], [9]]
    assert made.process_batch(tasks)[0].columns == ["text", "length"]


def test_memory_that_runs_out_halves_forward_passes_and_stands_in_the_report(folder: str) -> None:
    tokenized = Tokenize(folder).process(texts(*range(1, 9)))
    made = stage(folder, room=20)
    (found,) = made.process_batch([tokenized])
    assert found.values("length") == list(range(3, 11))
    noted = context_of(made).take_noted()
    assert (noted.counts, noted.splits, noted.split_to) == ({HALVED: 2}, 2, 2)
    result = Pipeline("p", stages=[Tokenize(folder), stage(folder, room=20)]).run(
        SerialExecutor(), initial_tasks=[texts(*range(1, 9))], ledger=False, progress="none"
    )
    assert [task.values("length") for task in result] == [list(range(3, 11))]
    last = result.stages[-1]
    assert (last["user_counts"], last["split_to"]) == ({HALVED: 2}, 2)


def test_settings_of_a_classifier_are_those_of_the_workers_of_its_model(folder: str) -> None:
    wanted = QualityClassifier(model=folder).with_(
        name="q", resources=Resources(cpus=1, gpus=0.5), batch_size=4, num_workers=2, timeout_s=60
    )
    tokens, model = wanted.decompose()
    assert (tokens.name, tokens.resources, tokens.num_workers()) == ("q-tokens", Resources(), None)
    assert (model.name, model.resources, model.batch_size) == ("q", Resources(cpus=1, gpus=0.5), 4)
    assert (model.num_workers(), model.timeout_s) == (2, 60)


def test_tokens_are_small_integers_of_a_prompt_around_a_part_of_the_text(folder: str) -> None:
    made = Tokenize(folder, max_chars=3, crop="center", prompt="dog {text} ran")
    found = made.process(DocumentBatch([{"text": "the red cat sat far"}, {"text": "a"}]))
    assert str(found.column("input_ids").type) == "list<item: uint16>"
    place = {word: len(SPECIAL) + n for n, word in enumerate(WORDS)}
    cls, sep = 1, 2
    assert found.values("input_ids") == [[cls, place["dog"], place[word], place["ran"], sep] for word in ("cat", "a")]
    assert Tokenize(folder, max_length=3).process(texts(5)).values("input_ids") == [[cls, place["cat"], sep]]
    with pytest.raises(UsageError, match=r"has no \{text\}"):
        Tokenize(folder, prompt="no place")
    with pytest.raises(UsageError, match="is not one of start, center"):
        Tokenize(folder, crop="end")  # type: ignore[arg-type]  # what is refused


def test_tokens_beyond_16_bits_get_32(folder: str) -> None:
    import json

    Path(folder, "config.json").write_text(json.dumps({"vocab_size": 70_000}))
    assert str(Tokenize(folder).process(texts(1)).column("input_ids").type) == "list<item: uint32>"


def test_a_missing_folder_is_told_before_the_run_by_both_stages(tmp_path: Path) -> None:
    tokens, model = QualityClassifier(model=str(tmp_path / "none")).decompose()
    problems = [text for part in (tokens, model) for text in part.check_before_run()]
    assert [text.partition(" does not")[0] for text in problems] == [f"QualityClassifier.model: '{tmp_path}/none'"] * 2


def test_documents_are_handed_on_in_tasks_of_so_many_tokens_and_stay_the_same_records(folder: str) -> None:
    lines = [b'{"text": "%s"}' % (b"cat " * n) for n in (1, 4, 2, 9, 1)]
    batch = batch_of_lines([b'{"text": 0}', *lines])
    parts = Tokenize(folder, tokens_per_task=10).process(batch)
    assert isinstance(parts, list)
    assert [[len(ids) for ids in part.values("input_ids")] for part in parts] == [[3, 6], [4], [11, 3]]
    assert batch.ids is not None
    assert [name for part in parts if part.ids for name in part.ids.strings()] == batch.ids.strings()[1:]
    assert [one.error for part in parts for one in part.take_failed()] == ["not-a-string"]
    given = [texts(3), texts(5, 1)]
    stages = [Tokenize(folder, tokens_per_task=4), stage(folder, room=10**9)]
    result = Pipeline("p", stages=stages).run(SerialExecutor(), initial_tasks=given, ledger=False, progress="none")
    assert [value for task in result for value in task.values("length")] == [5, 7, 3]
    assert (result.counts["created"], result.counts["merged"]) == (0, 0)


PLANNING = """
import sys
from thresher import AegisClassifier, EmbeddingCreatorStage, QualityClassifier
for kind in (AegisClassifier, EmbeddingCreatorStage, QualityClassifier):
    kind(model=sys.argv[1]).decompose()
heavy = ("numpy", "pyarrow", "torch", "transformers", "onnxruntime", "tokenizers")
print([name for name in heavy if name in sys.modules])
"""


def test_the_process_that_plans_a_run_loads_neither_numpy_nor_a_runtime(folder: str) -> None:
    done = subprocess.run([sys.executable, "-c", PLANNING, folder], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
