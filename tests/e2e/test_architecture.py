# SPDX-License-Identifier: Apache-2.0
"""The architecture page is true: a real unit passes through the files that it names, in that order."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECTION = "## Following one document"


def named_files() -> list[str]:
    """Return the files of the table, in its order."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition(SECTION)[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+\.py)` \|", section, flags=re.MULTILINE)


def test_a_unit_passes_through_the_files_of_the_architecture_page_in_their_order() -> None:
    done = subprocess.run(
        [sys.executable, "tools/walk.py", "--path"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    path = iter(json.loads(done.stdout))
    named = named_files()
    assert len(named) > 8
    missing = [file for file in named if file not in path]  # `in` moves the iterator on, so the order counts
    assert not missing, f"control does not pass through {missing[0]} after the file before it in docs/architecture.md"
