# SPDX-License-Identifier: Apache-2.0
"""A plain loop that encodes JSON lines and writes one .bin and .idx. Usage: megatron_loop.py INPUT OUTPUT TOKENIZER

It takes 1,000 documents at a time; with TOKENIZERS_PARALLELISM=true the tokenizer uses all cores for them.
"""

from __future__ import annotations

import itertools
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import tokenizers


class Record(msgspec.Struct):
    """A line."""

    text: str


def main() -> None:
    source, output, folder = map(Path, sys.argv[1:4])
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    end = tokenizer.token_to_id(msgspec.json.decode((folder / "tokenizer_config.json").read_bytes())["eos_token"])
    kind, code = (np.uint16, 8) if tokenizer.get_vocab_size() <= 2**16 else (np.int32, 4)
    output.mkdir()
    lengths: list[int] = []
    with (output / "all.bin").open("wb") as file:
        texts = _texts(source)
        while some := list(itertools.islice(texts, 1000)):
            for one in tokenizer.encode_batch_fast(some, add_special_tokens=False):
                ids = [*one.ids, end]
                lengths.append(len(ids))
                file.write(np.array(ids, dtype=kind).tobytes())
    sizes = np.array(lengths, dtype=np.int64) * np.dtype(kind).itemsize
    with (output / "all.idx").open("wb") as file:
        file.write(struct.pack("<9sQBQQ", b"MMIDIDX\x00\x00", 1, code, len(lengths), len(lengths) + 1))
        file.write(np.array(lengths, dtype="<i4").tobytes() + (np.cumsum(sizes) - sizes).astype("<i8").tobytes())
        file.write(np.arange(len(lengths) + 1, dtype="<i8").tobytes())


def _texts(source: Path) -> Iterator[str]:
    decoder = msgspec.json.Decoder(Record)
    for path in sorted(source.glob("*.jsonl")):
        with path.open("rb") as lines:
            for line in lines:
                yield decoder.decode(line).text


if __name__ == "__main__":
    main()
