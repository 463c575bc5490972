# SPDX-License-Identifier: Apache-2.0
"""Every sample in README and docs runs as it stands. Pages that lag behind the code break the build.

The `bash`, `python` and `yaml` blocks of a page are run from top to bottom in one folder that holds `data/`, a few JSON
lines. A yaml block that begins with `# name.yaml` is written to that file. Others (`console`, `text`) are only shown.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from thresher.core.yaml_text import read_yaml

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")


class Block(NamedTuple):
    """A sample."""

    language: str  # as the page says
    code: str  # what it holds
    line: int  # where it stands


def blocks_of(page: Path) -> list[Block]:
    """The samples of a page that can be run."""
    text = page.read_text(encoding="utf-8")
    found = [Block(m[1], m[2], text.count("\n", 0, m.start()) + 1) for m in FENCE.finditer(text)]
    return [block for block in found if block.language in ("bash", "python", "yaml")]


def run_block(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command or a script as a reader would, with the environment that runs the tests."""
    bin_folder = os.path.dirname(sys.executable)
    env = {**os.environ, "PATH": bin_folder + os.pathsep + os.environ["PATH"], "NO_COLOR": "1"}
    if block.language == "bash":
        command = ["bash", "-euo", "pipefail", "-c", block.code]
    else:
        # A script of its own, because that is what people do: workers must not import it again.
        script = folder / f"line_{block.line}.py"
        script.write_text(block.code, encoding="utf-8")
        command = [sys.executable, str(script)]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=100, check=False)


def make_data(folder: Path) -> None:
    """Documents that the rules of the samples keep, drop and quarantine."""
    (folder / "data").mkdir()
    words = [
        "the",
        "threshing",
        "floor",
        "is",
        "where",
        "grain",
        "and",
        "straw",
        "are",
        "parted",
        "by",
        "many",
        "hands",
    ]
    for name, start in (("a.jsonl", 0), ("b.jsonl", 7)):
        lines = []
        for n in range(200):
            text = " ".join(words[(start + n + i * (n % 5 + 1)) % len(words)] for i in range(20 + n))
            if n % 20 == 0:
                text = f"{text} https://example.org/{'x' * len(text)}"
            if n % 25 == 0:
                text = text.upper()
            lines.append(json.dumps({"id": n, "text": text, "url": f"https://example.org/{n}"}))
        lines.insert(50, '{"text": "cut off')
        (folder / "data" / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)], ids=lambda page: page.name)
def test_the_samples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    make_data(tmp_path)
    for block in blocks_of(page):
        where = f"{page.name}, line {block.line}"
        if block.language == "yaml":
            read_yaml(block.code, where)
            named = re.match(r"# ([\w.-]+\.yaml)\n", block.code)
            if named:
                (tmp_path / named[1]).write_text(block.code, encoding="utf-8")
            continue
        ended = run_block(block, tmp_path)
        assert ended.returncode == 0, f"{where}:\n{ended.stdout}\n{ended.stderr}"


def test_recipe_and_python_of_the_readme_write_the_same_bytes(tmp_path: Path) -> None:
    make_data(tmp_path)
    recipe, commands, script, _ = blocks_of(ROOT / "README.md")
    (tmp_path / "english.yaml").write_text(recipe.code, encoding="utf-8")
    for block in (commands, script):
        assert run_block(block, tmp_path).returncode == 0
    by_recipe, by_python = (
        {path.name: path.read_bytes() for path in (tmp_path / folder).glob("*.jsonl")}
        for folder in ("kept", "kept-by-python")
    )
    assert by_recipe == by_python
    assert len(by_recipe) > 0
    lines = [line for path in (tmp_path / "dropped").glob("*.jsonl") for line in path.read_text().splitlines()]
    dropped = [json.loads(line) for line in lines]
    assert {record["_dropped"]["rule"] for record in dropped} >= {"WordCountFilter", "UrlsFilter"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    missing = [page.name for page in PAGES[1:] if page.name != "index.md" and f"({page.name})" not in index]
    assert missing == []
