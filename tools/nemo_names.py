# SPDX-License-Identifier: Apache-2.0
"""Which public names of NeMo Curator Thresher stands in for, and why not for the others.

    python tools/nemo_names.py WHEEL_OR_FOLDER [--write] [--list]

The names are read from the source text of an installed or downloaded NeMo Curator; nothing of it is imported. A name is
a class or function without a leading underscore, counted in the module that defines it. `--write` puts the table into
docs/migration.md, `--list` names what is missing. Exits with 1 where a package offers a mapped class which the table of
names lacks for that package.
"""

from __future__ import annotations

import argparse
import ast
import sys
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from thresher.compat.nemo.names import MODULES
from thresher.compat.nemo.table import not_there

PACKAGE = "nemo_curator"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "migration.md"
BEGIN, END = "<!-- names: begin, written by tools/nemo_names.py -->", "<!-- names: end -->"
AREAS = {
    "nemo_curator.pipeline": "pipeline, workflows",
    "nemo_curator.tasks": "tasks",
    "nemo_curator.backends": "executors",
    "nemo_curator.core.client": "cluster clients",
    "nemo_curator.core": "model servers",
    "nemo_curator.config": "configuration files",
    "nemo_curator.stages.text.io": "text: readers and writers",
    "nemo_curator.stages.text.filters": "text: filters",
    "nemo_curator.stages.text.modifiers": "text: modifiers",
    "nemo_curator.stages.text.modules": "text: ids, splitting, joining",
    "nemo_curator.stages.text.classifiers": "text: classifiers",
    "nemo_curator.stages.text.models": "text: classifiers",
    "nemo_curator.stages.text.embedders": "text: embedders",
    "nemo_curator.stages.text.download": "text: downloads",
    "nemo_curator.stages.text.deduplication": "deduplication",
    "nemo_curator.stages.text.experimental": "text: translation",
    "nemo_curator.stages.text.utils": "helper functions",
    "nemo_curator.stages.deduplication": "deduplication",
    "nemo_curator.stages.math": "mathematics",
    "nemo_curator.stages.synthetic": "synthetic data",
    "nemo_curator.eval": "synthetic data",
    "nemo_curator.stages.audio": "sound",
    "nemo_curator.stages.image": "images",
    "nemo_curator.stages.interleaved": "text with images",
    "nemo_curator.stages.video": "video",
    "nemo_curator.models": "model classes",
    "nemo_curator.metrics": "metrics",
    "nemo_curator.utils": "helper functions",
    "nemo_curator.stages": "stages: base classes",
}
"""Rows of the table, by the start of the module."""


@dataclass(frozen=True)
class Module:
    """One module of theirs."""

    name: str
    """Its name."""
    defined: tuple[str, ...]
    """Public classes and functions that it defines."""
    offered: tuple[str, ...]
    """Names that it offers from other modules."""


def read_modules(place: Path) -> Iterator[Module]:
    """Yield all modules of a wheel, or of the folder that holds the package."""
    if place.is_file():
        with zipfile.ZipFile(place) as wheel:
            for name in sorted(wheel.namelist()):
                if name.startswith(f"{PACKAGE}/") and name.endswith(".py"):
                    yield parsed(name, wheel.read(name).decode("utf-8"))
        return
    root = place if (place / PACKAGE).is_dir() else place.parent
    for path in sorted((root / PACKAGE).rglob("*.py")):
        yield parsed(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))


def parsed(path: str, text: str) -> Module:
    """Return the names of one file."""
    name = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    body = ast.parse(text).body
    defined = [one.name for one in body if isinstance(one, ast.ClassDef | ast.FunctionDef)]
    offered = [
        alias.asname or alias.name
        for one in body
        if isinstance(one, ast.ImportFrom) and (one.level or (one.module or "").startswith(PACKAGE))
        for alias in one.names
    ]
    public = [found for found in dict.fromkeys(defined) if not found.startswith("_")]
    return Module(name, tuple(public), tuple(offered) if path.endswith("__init__.py") else ())


def is_mapped(module: str, name: str) -> bool:
    """Return True if something of ours stands for a name."""
    return name in MODULES.get(module, {})


def area_of(module: str) -> str:
    """Return the row of a module."""
    found = max((start for start in AREAS if f"{module}.".startswith(f"{start}.")), key=len, default="")
    return AREAS.get(found, "other")


def table(modules: list[Module]) -> str:
    """Return the table as Markdown."""
    mapped: Counter[str] = Counter()
    total: Counter[str] = Counter()
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for module in modules:
        for name in module.defined:
            area = area_of(module.name)
            total[area] += 1
            if is_mapped(module.name, name):
                mapped[area] += 1
            else:
                hint = not_there(module.name, name)
                reasons[area][hint.reason if hint else "no counterpart"] += 1
    order = sorted(total, key=lambda area: (-mapped[area], area))
    rows = [f"| {area} | {total[area]} | {mapped[area]} | {_listed(reasons[area])} |" for area in order]
    whole = f"| all | {sum(total.values())} | {sum(mapped.values())} | |"
    return "\n".join(["| area | names | stands for | not, because it is |", "|---|---|---|---|", *rows, whole])


def _listed(reasons: Counter[str]) -> str:
    return ", ".join(f"{reason} ({count})" for reason, count in reasons.most_common())


def gaps(modules: list[Module]) -> list[str]:
    """Return the names that a package offers from its modules, which we have there and not in the package."""
    known = {name for listed in MODULES.values() for name in listed}
    return [
        f"{module.name}.{name}"
        for module in modules
        for name in module.offered
        if name in known and not is_mapped(module.name, name)
    ]


def main() -> int:
    """Print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--list", action="store_true")
    chosen = parser.parse_args()
    modules = list(read_modules(chosen.place))
    text = table(modules)
    if chosen.list:
        missing = [f"{m.name}.{name}" for m in modules for name in m.defined if not is_mapped(m.name, name)]
        sys.stdout.write("\n".join([*missing, ""]))
    elif chosen.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    else:
        sys.stdout.write(text + "\n")
    found = gaps(modules)
    for name in found:
        sys.stderr.write(f"missing in thresher.compat.nemo.names: {name}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
