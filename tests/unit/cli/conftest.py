# SPDX-License-Identifier: Apache-2.0
"""The command as users start it, and a small input."""

from __future__ import annotations

import functools
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


def thresher_in(
    folder: Path, *arguments: str, timeout_s: float = 100, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `thresher …` in a folder, as a real process without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "thresher", *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def small_folder(folder: Path) -> Path:
    """Write a recipe and an input of 100 records, the first 3 of which are short."""
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "input").mkdir()
    lines = [json.dumps({"id": n, "text": "word " * n}) for n in range(100)]
    (folder / "input" / "part.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def thresher(tmp_path: Path) -> Thresher:
    """Runs `thresher …` in a folder of its own."""
    return functools.partial(thresher_in, tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a recipe and a small input."""
    return small_folder(tmp_path)
