# SPDX-License-Identifier: Apache-2.0
"""The Gopher, C4 and FineWeb rule sets (JSON lines to JSON lines, two workers) against datatrove.

datatrove finds words with spaCy, its default for English; how the times are compared is told in part_of_corpus.py.
"""

from __future__ import annotations

import peers
from part_of_corpus import Comparison, compare

if __name__ == "__main__":
    title = "Gopher, C4 and FineWeb sets"
    compare(
        Comparison("rule_sets", title, "rule_sets", peers.DATATROVE_RULES, peers.datatrove_rule_sets, least=200),
        __doc__,
    )
