# SPDX-License-Identifier: Apache-2.0
"""Nonsense in any parameter of any stage, rule and modifier is refused when it is written, or it works: never does it
fail while documents are processed."""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.llm_server import Server, serving
from thresher.core.arguments.parameters import REQUIRED, parameters_of
from thresher.core.documents.batch import DocumentBatch
from thresher.core.phases import PhaseStage
from thresher.core.pipeline import as_stage
from thresher.core.registry import Entry, entries
from thresher.core.stage import CompositeStage, SinkStage, SourceStage
from thresher.errors import MissingPackageError, RefusedError

NONSENSE: tuple[Any, ...] = (
    None,
    "",
    "nonsense",
    b"bytes",
    True,
    -1,
    0,
    10**30,
    -0.5,
    1.5,
    math.nan,
    math.inf,
    [],
    [[]],
    [None],
    ["nonsense"],
    [-1, math.nan],
    {},
    {"nonsense": None},
    object(),
    object,
    len,
)
ROWS = [
    {
        "text": "One line of words.\nAnother line, with a https://example.org/a in it.",
        "url": "https://example.org",
        "id": "a",
    },
    {"text": "", "url": "", "id": "a", "segment_id": 1, "language": "en"},
]
CODE_TABLE = (
    "language,extension,Include,Long_line_threshold,Alphanum_threshold,Alpha filter\npython,py,1,1000,0.25,0.25\n"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("model")) as server:
        yield server


@pytest.fixture
def needed(tmp_path: Path, model: Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A value for every parameter that has no default, by its name."""
    with contextlib.suppress(ImportError):  # what is no file may be a name on the Hub, and nobody asks there
        monkeypatch.setattr(importlib.import_module("huggingface_hub.constants"), "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    words = tmp_path / "words.txt"
    words.write_text("the,12\nof,3\n")
    (tmp_path / "evaluation.txt").write_text(
        "one two three four five six seven eight nine ten eleven twelve thirteen\n"
    )
    (tmp_path / "code.csv").write_text(CODE_TABLE)
    return {
        "file_paths": str(tmp_path),
        "path": str(tmp_path / "out"),
        "filter_obj": [],
        "score_fn": len,
        "score_field": "score",
        "filter_fn": bool,
        "filter_field": "text",
        "modifier_fn": str.strip,
        "id_field": "new_id",
        "word_lists": {"en": ["bad"]},
        "separator": "\n",
        "evaluation_sets": str(tmp_path / "evaluation.txt"),
        "tokenizer": str(tmp_path / "none.json"),
        "path_to_tokenizer": str(tmp_path / "none.model"),
        "model_identifier": str(tmp_path / "none.json"),
        "model_path": str(tmp_path / "none.bin"),
        "frequency_file": str(words),
        "histogram_file": str(words),
        "domains": str(words),
        "language": "text/x-python",
        "lang": "python",
        "extension": "py",
        "metadata_file": str(tmp_path / "code.csv"),
        "regex_exp": "a",
        "substring": "a",
        "position": "any",
        "label": "__label__hq",
        "patterns": ["a"],
        "by": "text",
        "k": 1,
        "outlet": "side",
        "outlets": {"a": "side"},
        "share": 0.5,
        "weights": {"a": 2.5},
        "max_length": 100,
        "edges": [0.5],
        "shares": [0.5, 1],
        "number": 1,
        "endpoint": model.endpoint(),
        "prompt": "{text}",
        "target_language": "English",
        "fields": {"topic": "string"},
        "scores": ["score"],
        "ids_to_remove_path": str(tmp_path / "ids"),
        "model": str(Path(__file__).parents[3] / "examples" / "topics"),
    }


def arguments_of(entry: Entry, needed: dict[str, Any]) -> dict[str, Any]:
    also = {
        "BucketSample": ["edges", "shares"],
        "HistogramFilter": ["histogram_file"],
        "MegatronTokenizerWriter": ["model_identifier"],
        "PerExtensionFilter": ["metadata_file"],
        "StratifiedSample": ["number"],
        "TokenCountFilter": ["tokenizer"],
        "TopK": ["k"],
        "UrlBlocklistFilter": ["domains"],
    }
    # A model with a default would be downloaded.
    known = parameters_of(entry.load()).values()
    required = [p.name for p in known if p.default is REQUIRED or p.name == "model"]
    found = {name: needed[name] for name in [*required, *also.get(entry.name, [])]}
    if entry.name == "ScoreFilter":
        found["filter_obj"] = entries()["WordCountFilter"].load()()
    if entry.name == "QualityBuckets":
        found["edges"] = [0.3, 0.7]
    return found


def works(made: Any) -> None:
    """Do what a run would do with it: look for problems, set up, process; or stop where it says what is wrong."""
    stage = made if isinstance(made, SourceStage | SinkStage) else as_stage(made)
    if isinstance(stage, SourceStage | SinkStage) or stage.check_before_run():
        return
    stage.inputs(), stage.outputs()
    stage.setup()
    batch = DocumentBatch(ROWS)
    batch._task_id = "task"
    batch.name_records()
    if isinstance(stage, PhaseStage):
        stage.phase_ends()[0].process(batch)
    elif isinstance(stage, CompositeStage):
        for part in stage.parts():
            works(part)
    else:
        try:
            stage.process(batch)
        finally:
            stage.teardown()


@pytest.mark.parametrize("entry", entries().values(), ids=lambda entry: entry.name)
def test_nonsense_is_refused_at_once_or_works(entry: Entry, needed: dict[str, Any]) -> None:
    cls = entry.load()
    try:
        usual = arguments_of(entry, needed)
        works(cls(**usual))
    except MissingPackageError as error:
        pytest.skip(str(error))
    faults = []
    for name in parameters_of(cls):
        # A function is the user's own code.
        for value in [value for value in NONSENSE if not (name.endswith("_fn") and callable(value))]:
            shown = f"{entry.name}({name}={value!r})"
            try:
                made = cls(**{**usual, name: value})
            except RefusedError as refused:
                if not str(refused).startswith(entry.name) and name not in str(refused):
                    faults.append(f"{shown} is refused without its name: {refused}")
                continue
            except Exception as error:
                faults.append(f"{shown} raises {type(error).__name__}: {error}")
                continue
            try:
                works(made)
            except RefusedError:
                pass
            except Exception as error:
                faults.append(f"{shown} is taken, and fails with {type(error).__name__}: {error}")
    assert not faults, "\n".join(faults)
