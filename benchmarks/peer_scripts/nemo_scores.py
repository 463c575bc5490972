# SPDX-License-Identifier: Apache-2.0
"""Scores and decisions of NeMo Curator's rules. Usage: nemo_scores.py RULES < texts > scores

RULES is JSON: for each rule its class and arguments. A line of the input is a text as JSON; a line of the output has
for each rule [score, kept], or [name of the exception, null].
"""

import importlib.util
import json
import sys
import types
import warnings

warnings.simplefilter("ignore")
for package in ("sentencepiece", "bs4"):  # the module of the code rules imports both, and not every rule needs them
    if importlib.util.find_spec(package) is None:
        stub = sys.modules[package] = types.ModuleType(package)
        stub.BeautifulSoup = None

from nemo_curator.stages.text.filters import fasttext  # noqa: E402
from nemo_curator.stages.text.filters.heuristic import code, repetition, string  # noqa: E402


def filter_of(name, arguments):
    """A rule by the name of its class."""
    modules = (string, repetition, code, fasttext)
    rule = next(getattr(module, name) for module in modules if hasattr(module, name))(**arguments)
    if hasattr(rule, "load_model"):
        rule.load_model()
    return rule


def judged(rule, text):
    """Return the score and the decision of a rule for a text."""
    try:
        score = rule.score_document(text)
        return [score, bool(rule.keep_document(score))]
    except Exception as error:
        return [type(error).__name__, None]


rules = [filter_of(name, arguments) for name, arguments in json.loads(sys.argv[1])]
for line in sys.stdin:
    text = json.loads(line)
    print(json.dumps([judged(rule, text) for rule in rules]))
