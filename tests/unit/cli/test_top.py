# SPDX-License-Identifier: Apache-2.0
"""`thresher top`: a run seen from another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.prometheus_server import Prometheus
from tests.unit.cli.conftest import Thresher


def test_a_finished_run_shows_its_last_state(folder: Path, thresher: Thresher) -> None:
    assert thresher("run", "recipe.yaml").returncode == 0
    report = json.loads((folder / "output" / "_thresher" / "report.json").read_text())
    once = thresher("top", "output", "--once")
    assert once.returncode == 0
    assert "WordCountFilter" in once.stdout
    told = json.loads(thresher("top", "output", "--json").stdout)
    assert (told["name"], told["status"], told["counts"]) == ("small", "finished", report["counts"])
    followed = thresher("top", "output")
    assert followed.returncode == 0
    assert "the run has finished. `thresher report output` shows the report" in followed.stdout


def test_a_running_run_is_followed_to_its_end(folder: Path, thresher: Thresher) -> None:
    (folder / "stage.py").write_text(
        "import time\nfrom pathlib import Path\n"
        "from thresher import DocumentBatch, ProcessingStage\n\n\n"
        "class Waits(ProcessingStage[DocumentBatch, DocumentBatch]):\n"
        "    name = 'Waits'\n\n"
        "    def process(self, task):\n"
        "        while not Path('go').exists():\n"
        "            time.sleep(0.05)\n"
        "        return task\n"
    )
    text = (folder / "recipe.yaml").read_text().replace("  - JsonlWriter", "  - _target_: stage.Waits\n  - JsonlWriter")
    (folder / "recipe.yaml").write_text(text)
    env = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "thresher"]
    run = subprocess.Popen(
        [*command, "run", "recipe.yaml", "--trust", "stage", "--quiet"], cwd=folder, env=env, stdout=subprocess.DEVNULL
    )
    events = folder / "output" / "_thresher" / "events" / "001" / "000000.jsonl.zst"
    Prometheus._wait(events.exists, 60)
    told = json.loads(thresher("top", "output", "--json").stdout)
    assert told["status"] == "running"
    top = subprocess.Popen([*command, "top", "output"], cwd=folder, stdout=subprocess.PIPE, text=True)
    assert top.stdout is not None
    assert "small: executor local" in top.stdout.readline()
    (folder / "go").touch()
    assert run.wait(60) == 0
    out, _ = top.communicate(timeout=60)
    assert top.returncode == 0
    assert "the run has finished" in out


def test_names_from_somebody_else_do_not_control_the_terminal(folder: Path, thresher: Thresher) -> None:
    recipe = (folder / "recipe.yaml").read_text().replace('{min_words: "${min_words}"}', '{name: "\\e[31mred"}')
    (folder / "recipe.yaml").write_text(recipe)
    assert thresher("run", "recipe.yaml", "--max-errors", "100%").returncode == 0
    assert "\x1b" not in thresher("top", "output", "--once").stdout


def test_a_killed_run_does_not_keep_the_other_terminal_waiting(folder: Path, thresher: Thresher) -> None:
    assert thresher("run", "recipe.yaml").returncode == 0
    state = folder / "output" / "_thresher" / "run.json"
    known = json.loads(state.read_text())
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    known["attempts"][-1] |= {"pid": gone.pid}
    for key in ("end", "status", "exit_code"):
        known["attempts"][-1].pop(key, None)
    state.write_text(json.dumps(known))
    log = next((folder / "output" / "_thresher" / "events" / "001").glob("*.zst"))
    log.write_bytes(b"")  # killed before the first flush
    ended = thresher("top", "output")
    assert (ended.returncode, ended.stdout) == (0, "the process of the run has ended without a word.\n")
    once = thresher("top", "output", "--once")
    assert once.returncode == 2
    assert "has not begun to write its event log" in once.stderr
