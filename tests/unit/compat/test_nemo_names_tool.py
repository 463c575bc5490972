# SPDX-License-Identifier: Apache-2.0
"""The tool that counts which names of NeMo Curator are there reads source text, of a wheel or a folder."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES = {
    "nemo_curator/__init__.py": "",
    "nemo_curator/pipeline/__init__.py": "from nemo_curator.pipeline.pipeline import Pipeline\n",
    "nemo_curator/pipeline/pipeline.py": "raise SystemExit(9)\nclass Pipeline: ...\ndef _hidden(): ...\n",
    "nemo_curator/stages/audio/common.py": "class ManifestReader: ...\nclass ManifestWriter: ...\n",
}


def run(place: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "nemo_names.py"), str(place), *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "nemo_curator-1.4.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
    return path


def test_names_are_counted_by_area_with_the_reason_for_those_that_are_not_there(wheel: Path) -> None:
    ended = run(wheel)
    assert ended.returncode == 0, ended.stderr
    assert "| pipeline, workflows | 1 | 1 |  |" in ended.stdout
    assert "| sound | 2 | 0 | images, sound and video (2) |" in ended.stdout
    assert "| all | 3 | 1 | |" in ended.stdout
    assert run(wheel, "--list").stdout.splitlines() == [
        "nemo_curator.stages.audio.common.ManifestReader",
        "nemo_curator.stages.audio.common.ManifestWriter",
    ]


def test_a_package_that_offers_a_name_which_the_table_lacks_is_found(tmp_path: Path) -> None:
    for name, text in {
        **FILES,
        "nemo_curator/extras/__init__.py": "from nemo_curator.pipeline import Pipeline\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    ended = run(tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.strip() == "missing in thresher.compat.nemo.names: nemo_curator.extras.Pipeline"
