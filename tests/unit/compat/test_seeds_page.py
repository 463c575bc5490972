# SPDX-License-Identifier: Apache-2.0
"""The page that names a test for every statement names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "seeds.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", PAGE)))
SAMPLES = (ROOT / "tests" / "contract" / "test_published_samples.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(("file", "name"), NAMED, ids=["::".join(filter(None, pair)) for pair in NAMED])
def test_a_test_that_the_page_names_is_there(file: str, name: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    assert not name or re.search(rf"^def {name}\(", text, re.MULTILINE)


def test_every_published_sample_is_on_the_page() -> None:
    names = re.findall(r"^def (test_\w+)\(", SAMPLES, re.MULTILINE)
    assert [name for name in names if f"`tests/contract/test_published_samples.py::{name}`" not in PAGE] == []


def test_benchmarks_that_the_page_names_are_there() -> None:
    named = re.findall(r"`(benchmarks/\w+\.py)", PAGE)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
