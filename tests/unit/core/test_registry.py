# SPDX-License-Identifier: Apache-2.0
"""The table of names: every name leads to a class, and a wrong one to the nearest right one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from thresher.core import registry
from thresher.core.stage import ProcessingStage, SinkStage, SourceStage
from thresher.errors import UsageError
from thresher.stages.text.document_modifier import DocumentModifier
from thresher.stages.text.judging.rule import DocumentFilter


@pytest.fixture(autouse=True)
def _no_plug_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_plug_ins", {})


@pytest.mark.parametrize("name", sorted(registry.entries()))
def test_every_entry_has_its_class_its_kind_and_a_summary(name: str) -> None:
    entry = registry.lookup(name)
    cls = entry.load()
    assert cls.__name__ == name
    assert registry.kind_of(cls) == entry.kind
    assert 10 < len(entry.summary()) < 120


@pytest.mark.parametrize("name", sorted(registry.PUBLIC_NAMES))
def test_every_public_name_leads_somewhere(name: str) -> None:
    assert registry.resolve(registry.PUBLIC_NAMES[name]).__name__ == name


@pytest.mark.parametrize("name", sorted(registry.EXECUTORS))
def test_every_executor_knows_its_own_name(name: str) -> None:
    assert registry.load_executor(name).name == name


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("WordCounFilter", "Did you mean 'WordCountFilter'?"),
        ("jsonlreader", "Did you mean 'JsonlReader'?"),
        ("Parquet", "Did you mean 'ParquetReader' or 'ParquetWriter'?"),
        ("Zebra", "`thresher stages` lists them all"),
    ],
)
def test_an_unknown_name_suggests_what_was_meant(wrong: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        registry.lookup(wrong)
    assert repr(wrong) in str(caught.value)
    assert hint in str(caught.value)


def test_an_executor_that_nobody_knows_suggests_what_was_meant() -> None:
    with pytest.raises(
        UsageError, match=r"'seriell' is not an executor\. Did you mean 'serial'\? Executors: local, serial"
    ):
        registry.load_executor("seriell")


class MyStage(ProcessingStage[Any, Any]):
    """Does something of my own."""


class MySource(SourceStage[Any]):
    """Reads."""


class MySink(SinkStage[Any, Any]):
    """Writes."""


class MyFilter(DocumentFilter):
    """Judges."""

    def score_document(self, text: str) -> float:
        return float(len(text))

    def keep_document(self, score: float) -> bool:
        return score > 0


class MyModifier(DocumentModifier):
    """Changes."""

    def modify_document(self, text: str) -> str:
        return text


@pytest.mark.parametrize(
    ("cls", "kind"),
    [(MyStage, "stage"), (MySource, "reader"), (MySink, "writer"), (MyFilter, "filter"), (MyModifier, "modifier")],
)
def test_a_registered_class_can_be_looked_up_by_its_name(cls: type[Any], kind: str) -> None:
    assert registry.register(cls) is cls
    entry = registry.lookup(cls.__name__)
    assert entry.load() is cls
    assert entry.kind == kind


def test_registering_the_same_class_again_is_fine() -> None:
    registry.register(MyStage)
    registry.register(MyStage)
    assert registry.lookup("MyStage").summary() == "Does something of my own"


def test_a_name_that_is_taken_cannot_be_registered() -> None:
    taken = type("JsonlReader", (SourceStage,), {"__module__": "elsewhere"})
    with pytest.raises(
        UsageError, match="'JsonlReader' cannot be registered for elsewhere:JsonlReader: the name belongs"
    ):
        registry.register(taken)


def test_what_is_neither_stage_filter_nor_modifier_cannot_be_registered() -> None:
    with pytest.raises(UsageError, match="is neither a ProcessingStage, nor a DocumentFilter"):
        registry.register(dict)


def test_importing_the_package_loads_none_of_its_parts() -> None:
    code = (
        "import sys; before = set(sys.modules); import thresher; added = set(sys.modules) - before; dir(thresher);"
        "print(sorted(added))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['__future__', 'thresher', 'thresher.version']"


def test_planning_a_recipe_loads_neither_arrow_nor_numpy(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    code = (
        "import sys; from thresher import load_recipe;"
        "recipe = load_recipe('quick-text', {'input_path': 'a', 'output_path': 'b'});"
        "recipe.make_executor().plan(recipe.pipeline());"
        "print([name for name in ('pyarrow', 'numpy', 'pandas', 'fsspec', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
