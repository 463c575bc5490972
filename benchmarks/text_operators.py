# SPDX-License-Identifier: Apache-2.0
"""Four modifiers and eight rules (JSON lines to JSON lines, two workers) against the nearest operators of Data-Juicer.

Operators that need a file from a hub are not among them; how the times are compared is told in part_of_corpus.py.
"""

from __future__ import annotations

import peers
from part_of_corpus import Comparison, compare

if __name__ == "__main__":
    title = "Four modifiers and eight rules"
    compare(
        Comparison("text_operators", title, "text_operators", peers.DATA_JUICER, peers.data_juicer_operators, least=75),
        __doc__,
    )
