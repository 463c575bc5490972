# SPDX-License-Identifier: Apache-2.0
"""A damaged run folder: `audit` reports a difference, and no command ends with a traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from thresher.cli.main import main

RECIPE = """
name: damaged
stages:
  - JsonlReader: {file_paths: in.jsonl}
  - WordCountFilter: {min_words: 3}
  - JsonlWriter: {path: out}
"""
RUN = ("run", "recipe.yaml", "--executor", "serial", "--keep-scores", "--dropped-to", "dropped", "--max-errors", "100%")
NOT_PROVEN = ("lock", "events", "scores", "report.html")
"""What `audit` does not read: `replay` reads events, `rethreshold` scores; `report --html` draws the page again."""


def truncated(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 3])


def junk(path: Path) -> None:
    path.write_bytes(bytes(range(256)))


def wrong_types(path: Path) -> None:
    path.write_bytes(b'{"unit": 5, "run_id": 7, "stages": 5, "counts": "x", "name": [], "id": {}, "attempts": 3}\n')


def nested(path: Path) -> None:
    path.write_bytes(b"[" * 100_000)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def missing(path: Path) -> None:
    path.unlink()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("finished")
    lines = [json.dumps({"text": "word " * n}) for n in range(1, 10)]
    (place / "in.jsonl").write_text("\n".join([*lines, "broken", ""]))
    (place / "recipe.yaml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert main(list(RUN)) == 0
    return place


@pytest.mark.parametrize("damage", [truncated, junk, wrong_types, nested, folder, missing])
def test_every_command_says_which_file_is_damaged(
    finished: Path,
    damage: Callable[[Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    place = tmp_path / "place"
    shutil.copytree(finished, place)
    monkeypatch.chdir(place)
    run_dir = place / "out/_thresher"
    entry = next((run_dir / "quarantine").iterdir()).read_text()
    serial = ("--executor", "serial")
    commands = [
        ("audit",),
        ("report",),
        ("report", "--html"),
        ("quarantine",),
        ("replay",),
        ("why", json.loads(entry)["id"]),
    ]
    commands += [("retry", *serial), ("rethreshold", "WordCountFilter.min_words=2", "--output", "more", *serial), RUN]
    names = sorted(str(path.relative_to(run_dir)) for path in run_dir.rglob("*") if path.is_file())
    assert len(names) >= 9
    for name in names:
        for command, *more in commands:
            shutil.rmtree(place / "out")
            shutil.rmtree(place / "more", ignore_errors=True)
            shutil.copytree(finished / "out", place / "out")
            damage(run_dir / name)
            code = main([command, *more] if command == "run" else [command, "out", *more])
            said = "".join(capfd.readouterr())
            assert "Traceback" not in said, (name, command, said)
            assert code in range(6), (name, command, said)
            optional = name.startswith(NOT_PROVEN) or (damage is missing and name in ("metrics.json", "recipe.yaml"))
            if command == "audit" and not optional and (name, damage) not in LEGAL:
                assert code == 5, (name, said)
                assert "/" in name or Path(name).stem in said, (name, said)


LEGAL = {("metrics.json", wrong_types), ("recipe.yaml", truncated)}
"""Files of another content that are still JSON, or still a recipe."""
