# SPDX-License-Identifier: Apache-2.0
"""A plain loop over rensa: words of five, 20 bands of 13, the first of similar documents stays. Usage: rensa_loop.py
INPUT OUTPUT"""

import os
import sys

import orjson
from rensa import RMinHash, RMinHashLSH


def main() -> None:
    source, output = sys.argv[1], sys.argv[2]
    os.makedirs(output, exist_ok=True)
    index, number = RMinHashLSH(0.8, 260, 20), 0
    for name in sorted(os.listdir(source)):
        with open(os.path.join(source, name), "rb") as lines, open(os.path.join(output, name), "wb") as kept:
            for line in lines:
                words = orjson.loads(line)["text"].split()
                values = RMinHash(260, 42)
                values.update([" ".join(words[at : at + 5]) for at in range(max(1, len(words) - 4))])
                if not index.query(values):
                    kept.write(line)
                index.insert(number, values)
                number += 1


main()
