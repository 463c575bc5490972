# SPDX-License-Identifier: Apache-2.0
"""Languages are the same on every executor, with any number of workers and any units; the model is unpacked once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from thresher import (
    JsonlReader,
    JsonlWriter,
    LanguageFilter,
    LanguageId,
    LocalExecutor,
    Pipeline,
    RunResult,
    ScoreFilter,
    SerialExecutor,
)
from thresher.cli.main import main
from thresher.kernels.build.cache import use_own_folder

pytest.importorskip("py3langid", reason="needs the extra `langid`")
TEXTS = {
    "en": "The committee met again on Tuesday to discuss what had been decided the week before",
    "de": "Der Ausschuss traf sich am Dienstag erneut, um über die Beschlüsse der Vorwoche zu beraten",
    "ru": "Комитет вновь собрался во вторник, чтобы обсудить принятые на прошлой неделе решения",
    "vi": "Ủy ban đã họp lại vào thứ Ba để thảo luận về những gì đã được quyết định vào tuần trước",
}


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_own_folder()  # so that kernels stay where they are compiled already
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with open(tmp_path / "input.jsonl", "w", encoding="utf-8") as file:
        for number in range(2000):
            code, text = list(TEXTS.items())[number % 4]
            text = text.upper() if number % 9 == 0 else text
            file.write(json.dumps({"n": number, "is": code, "text": f"{text} {number}"}) + "\n")
    return tmp_path


def run(corpus: Path, name: str, executor: Any, blocksize: str) -> tuple[RunResult, list[dict[str, Any]]]:
    stages = [
        JsonlReader(str(corpus / "input.jsonl"), blocksize=blocksize),
        LanguageId(),
        ScoreFilter(LanguageFilter(languages=["de", "ru", "vi"]), score_field="score"),
        JsonlWriter(str(corpus / name)),
    ]
    result = Pipeline(name, stages=stages).run(executor, progress="none")
    records = [json.loads(line) for path in result.output_paths for line in Path(path).read_text().splitlines()]
    return result, sorted(records, key=lambda record: record["n"])


def test_languages_are_the_same_whoever_runs_them(corpus: Path) -> None:
    serial, expected = run(corpus, "serial", SerialExecutor(), "64MB")
    local, found = run(corpus, "local", LocalExecutor(workers=2), "40KB")
    assert found == expected
    assert local.units_total > 5
    assert len(found) == 1500
    assert all(record["language"] == record["is"] == record["score"][1] for record in found)
    assert local.drop_reasons == serial.drop_reasons == {"ScoreFilter/LanguageFilter": 500}
    (charts,) = [stage["charts"] for stage in local.to_dict()["stages"] if stage["name"] == "LanguageId"]
    assert charts["languages"] == [{"bar": code, "n": 500} for code in sorted(TEXTS)]
    assert len(list((corpus / "cache" / "thresher" / "indexes").iterdir())) == 1


def test_a_language_that_nobody_knows_ends_the_command_before_the_run(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", "fineweb-english", f"input_path={corpus / 'input.jsonl'}", f"output_path={corpus / 'out'}"]
    assert main([*arguments, "languages=[en, klingon]"]) == 2
    assert "LanguageFilter.languages: the model does not know 'klingon'" in capsys.readouterr().err
    assert not (corpus / "out").exists()
