# SPDX-License-Identifier: Apache-2.0
"""The command as users start it, and a small input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Thresher = Callable[..., subprocess.CompletedProcess[str]]

RECIPE = """\
name: small
description: a recipe for tests
params: {min_words: 3}
stages:
  - JsonlReader: {file_paths: input}
  - WordCountFilter: {min_words: "${min_words}"}
  - JsonlWriter: {path: output}
"""


@pytest.fixture
def thresher(tmp_path: Path) -> Thresher:
    """Runs `thresher …` in a folder of its own, as a real process without a terminal."""

    def run(*arguments: str, timeout_s: float = 60, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "thresher", *arguments],
            cwd=tmp_path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a recipe and an input of 100 records, the first 3 of which are short."""
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    (tmp_path / "input").mkdir()
    lines = [json.dumps({"id": n, "text": "word " * n}) for n in range(100)]
    (tmp_path / "input" / "part.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path
