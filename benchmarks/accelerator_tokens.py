# SPDX-License-Identifier: Apache-2.0
"""How busy an accelerator is kept by a model of texts that is fed by a tokenizer on the same machine's two cores.

The accelerator is a declared one with one worker, which waits 50 ms for each forward pass of at most 32 texts. Counted
are the time inside of the model stage and that inside of forward passes, from the first call to the last.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from classifier_run import make_tokenizer
from corpus import DATA, corpus_folder
from harness import ROOT, compile_sources, options, scratch
from tables import Spread, print_table, print_target, write_results

RUN = Path(__file__).resolve().parent / "accelerator_tokens_run.py"
LEAST = 0.995


def main() -> None:
    """Print the shares."""
    chosen = options(__doc__, repeats=5)
    compile_sources()
    megabytes = 2 if chosen.quick else 16
    source = _input(megabytes, chosen.quick)
    tokenizer = DATA / "accelerator-tokens-tokenizer"
    if not tokenizer.is_dir():
        make_tokenizer(tokenizer, source)
    shares = [_measure(tokenizer, source) for _ in range(chosen.repeats)]
    calls, passes = (Spread.of(list(one)) for one in zip(*shares, strict=True))
    rows = [["in calls of the stage", calls.show(4)], ["in forward passes", passes.show(4)]]
    print_table(
        f"{megabytes} MB of documents, from the first call to the last, median (min..max)", ["busy", "share"], rows
    )
    print_target("busy in calls of the stage", f"at least {LEAST}", calls.median, calls.median >= LEAST)
    write_results("accelerator_tokens", {"megabytes": megabytes, "calls": calls, "passes": passes})


def _measure(tokenizer: Path, source: Path) -> tuple[float, float]:
    """Return the shares of the time from the first call to the last."""
    output = scratch(f"accelerator-tokens-{os.getpid()}")
    spans = scratch(f"accelerator-tokens-spans-{os.getpid()}")
    command: list[str | Path] = [sys.executable, RUN, tokenizer, source, output, spans]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, stdout=subprocess.DEVNULL)
    found = json.loads(spans.read_text())
    whole = found["calls"][-1][1] - found["calls"][0][0]
    in_calls, in_passes = (sum(end - start for start, end in found[kind]) / whole for kind in ("calls", "passes"))
    return in_calls, in_passes


def _input(megabytes: int, quick: bool) -> Path:
    """So many megabytes of the corpus; made when they are first asked for."""
    folder = DATA / f"accelerator-tokens-{megabytes}"
    if not folder.is_dir():
        unfinished = folder.with_name(f"{folder.name}.unfinished-{os.getpid()}")
        unfinished.mkdir(parents=True)
        left = megabytes * 10**6
        with (unfinished / "documents.jsonl").open("wb") as file:
            for path in sorted(corpus_folder(quick).glob("*.jsonl")):
                for line in path.read_bytes().splitlines(keepends=True):
                    if left > 0:
                        left -= file.write(line)
        unfinished.rename(folder)
    return folder


if __name__ == "__main__":
    main()
