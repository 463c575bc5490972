# SPDX-License-Identifier: Apache-2.0
"""Every sample in README and docs runs as it stands. Pages that lag behind the code break the build.

The `bash`, `python` and `yaml` blocks of README and of all pages, in the order of the index, are run from top to bottom
in one folder that looks like a clone after `make demo`: with `.venv` and `examples`. A variable that a command sets, as
`activate` does with PATH, is set for those behind it. A yaml block that begins with `# name.yaml` is written to that
file. Blocks of `text` are only shown, and those of `console` hold what a test cannot do: install, or use a cluster.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from thresher.cli.arguments import Parser
from thresher.cli.main import COMMANDS
from thresher.core.recipes.yaml_text import read_yaml

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NEEDS_CLUSTER = {"cluster.md", "engines.md"}
"""Pages whose commands are compared with the parser elsewhere (`tests/unit/deploy`)."""
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAG = re.compile(r"`(--[\w-]+)")
TITLES = ("Commands", "Flags of `run`", "Flags of the other commands")
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


class Reader:
    """Does what a page says, in one folder and one shell."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
        self._environment["NO_COLOR"] = "1"
        bin_folder = os.path.dirname(sys.executable)
        path = self._environment["PATH"].split(os.pathsep)
        self._environment["PATH"] = os.pathsep.join(entry for entry in path if entry != bin_folder)
        (folder / ".venv").mkdir()
        (folder / ".venv" / "bin").symlink_to(bin_folder)
        (folder / "examples").symlink_to(ROOT / "examples")
        shutil.copytree(ROOT / "docs" / "pictures", folder / "docs" / "pictures")

    def follow(self, page: Path) -> None:
        """Write and run the samples of a page from top to bottom."""
        for block in blocks_of(page):
            where = f"{page.name}, line {block.line}"
            if block.language == "yaml":
                read_yaml(block.code, where)
                named = re.match(r"# ([\w.-]+\.yaml)\n", block.code)
                if named:
                    (self.folder / named[1]).write_text(block.code, encoding="utf-8")
                continue
            ended = self._bash(block.code) if block.language == "bash" else self._python(block, page)
            assert ended.returncode == 0, f"{where}:\n{ended.stdout}\n{ended.stderr}"

    def _bash(self, code: str) -> subprocess.CompletedProcess[str]:
        variables = self.folder / ".variables"
        ended = self._run(["bash", "-euo", "pipefail", "-c", f"trap 'env -0 > \"{variables}\"' EXIT\n{code}"])
        pairs = variables.read_bytes().decode().split("\0")
        self._environment = dict(pair.split("=", 1) for pair in pairs if pair)
        return ended

    def _python(self, block: Block, page: Path) -> subprocess.CompletedProcess[str]:
        # A script of its own, because that is what people do: workers must not import it again.
        script = self.folder / f"{page.stem}_{block.line}.py"
        script.write_text(block.code, encoding="utf-8")
        return self._run(["bash", "-c", f"python {script.name}"])

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=600, check=False
        )


def in_order() -> list[Path]:
    """README, the index, and all pages in the order in which the index names them."""
    index = ROOT / "docs" / "index.md"
    names = re.findall(r"^\| \[.*?\]\(([\w-]+\.md)\)", index.read_text(encoding="utf-8"), re.MULTILINE)
    return [ROOT / "README.md", index, *(ROOT / "docs" / name for name in names)]


@pytest.mark.timeout(1500)
def test_a_reader_who_follows_every_page_in_one_folder_meets_no_error(tmp_path: Path) -> None:
    assert sorted(in_order()) == sorted(PAGES)
    reader = Reader(tmp_path)
    for page in in_order():
        reader.follow(page)
    _compare_what_the_readme_wrote(tmp_path)


def _compare_what_the_readme_wrote(tmp_path: Path) -> None:
    """Its recipe and its Python are the same pipeline."""
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
def test_what_a_reader_types_is_a_sample_that_is_run_except_to_install_or_use_a_cluster(page: Path) -> None:
    shown = "\n".join(m[2] for m in FENCE.finditer(page.read_text(encoding="utf-8")) if m[1] in ("console", "text"))
    typed = re.findall(r"^\S*\$ +(.*)", shown, re.MULTILINE)
    not_run = [line for line in typed if not line.startswith(("make ", "pip install "))]
    assert page.name in NEEDS_CLUSTER or not not_run


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)], ids=lambda page: page.name)
def test_samples_with_pandas_say_how_to_install_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for block in blocks_of(page):
        if block.language == "python" and "pandas" in block.code:
            above = "\n".join(text.splitlines()[: block.line])
            assert "pip install 'thresher[pandas]'" in above, f"{page.name}, line {block.line}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    missing = [page.name for page in PAGES[1:] if page.name != "index.md" and f"({page.name})" not in index]
    assert missing == []


def flags_of(command: str) -> set[str]:
    """What the parser of a command knows."""
    module = importlib.import_module(f"thresher.cli.commands.{command.replace('-', '_')}")
    parser = Parser(prog=command, description=module.DESCRIPTION, planned=module.PLANNED_FLAGS)
    module.add_arguments(parser)
    flags = {flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")}
    return flags - {"--help"}


def test_the_page_on_the_command_line_names_every_command_and_all_of_its_flags() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    commands, flags_of_run, flags = (text.partition(f"## {title}\n")[2].partition("\n## ")[0] for title in TITLES)
    assert set(re.findall(r"^\| `thresher ([\w-]+)", commands, re.MULTILINE)) == set(COMMANDS)
    told = {command: set[str]() for command in COMMANDS}
    told["run"] = set(FLAG.findall(flags_of_run))
    for names, listed in re.findall(r"^\| (`[^|]+`) \| (.*) \|$", flags, re.MULTILINE):
        for name in re.findall(r"`([\w-]+)`", names):
            told[name] |= set(FLAG.findall(listed))
    assert told == {command: flags_of(command) for command in COMMANDS}
