# SPDX-License-Identifier: Apache-2.0
"""How often the rules here and those of NeMo Curator say different things about the same documents.

Usage: rule_parity.py [DOCUMENTS]     so many documents of the benchmark corpus (2000), evenly spread

One row per rule: documents with another score, with another decision, and documents on which NeMo Curator raises. Of
`RepeatingTopNGramsFilter` only ties differ, and there from run to run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, NamedTuple

from corpus import corpus_folder
from peers import NEMO, SCRIPTS, available
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
            *("XMLHeader", "Alpha"),
        )
    ],
    ("SubstringFilter", {"substring": "the", "position": "any"}),
    *[("RepeatingTopNGramsFilter", {"n": n}) for n in (2, 3, 4)],
    *[("RepeatingDuplicateNGramsFilter", {"n": n}) for n in (5, 10)],
    *[("GeneralCommentToCodeFilter", {"language": f"text/{name}"}) for name in ("x-c", "x-shellscript", "html")],
]


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


def sample(number: int) -> list[str]:
    """Documents of the corpus, evenly spread, and some that are nearly empty."""
    lines = [line for file in sorted(corpus_folder().iterdir()) for line in file.read_bytes().splitlines()]
    texts = [json.loads(line)["text"] for line in lines[:: max(len(lines) // number, 1)]]
    return ["", " ", "\n\n", "word", "a\n\na", *(text for text in texts if len(text) < 60_000)]


def main() -> None:
    """Print the table."""
    if not available(NEMO):
        return
    texts = sample(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
    command = [str(NEMO.python), str(SCRIPTS / "nemo_scores.py"), json.dumps(RULES)]
    lines = "".join(f"{json.dumps(text)}\n" for text in texts)
    answers = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    theirs = [json.loads(line) for line in answers]
    rows = []
    for place, (name, arguments) in enumerate(RULES):
        found = difference(getattr(thresher, name)(**arguments), texts, [answer[place] for answer in theirs])
        shown = ", ".join(map(str, arguments.values()))
        rows.append((f"{name}({shown})", *map(str, found)))
    title = f"{len(texts)} documents, here and {NEMO.title.partition(' on ')[0]}"
    print_table(title, ("rule", "other score", "other decision", "it raises"), rows)


if __name__ == "__main__":
    main()
