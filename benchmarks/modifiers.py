# SPDX-License-Identifier: Apache-2.0
"""How fast each modifier is on one core: batches of JSON lines of the corpus through `Modify`.

Once as it is, with its test over bytes, and once as a plain function, for which every text is made a Python string. The
speed is input per second of CPU time of the process; extracting texts from the lines is part of it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import Any

from corpus import corpus_folder
from tables import print_table

from thresher import (
    BoilerPlateStringModifier,
    DocumentBatch,
    FastTextLabelModifier,
    JsonlReader,
    LineRemover,
    MarkdownRemover,
    Modify,
    NewlineNormalizer,
    PiiRedactor,
    QuotationRemover,
    Slicer,
    UnicodeNormalizer,
    UnicodeReformatter,
    UrlRemover,
)
from thresher.core.source import ReadContext
from thresher.kernels.build.cache import use_own_folder

MB = 10**6
MODIFIERS = {
    "QuotationRemover": QuotationRemover(),
    "LineRemover": LineRemover(["Read more"]),
    "NewlineNormalizer": NewlineNormalizer(),
    "UnicodeNormalizer": UnicodeNormalizer(),
    "FastTextLabelModifier": FastTextLabelModifier("__label__hq"),
    "Slicer": Slicer(),
    "BoilerPlateStringModifier": BoilerPlateStringModifier(),
    "MarkdownRemover": MarkdownRemover(),
    "UrlRemover": UrlRemover(),
    "PiiRedactor, all kinds": PiiRedactor(),
    "PiiRedactor, e-mail and IP": PiiRedactor(kinds=["email", "ip"]),
    "PiiRedactor, keys": PiiRedactor(kinds=["key"]),
    "UnicodeReformatter": UnicodeReformatter(),
}
SLOW = ("UnicodeReformatter",)
"""Measured on the first batches alone."""


def main() -> None:
    """Measure every modifier, round after round, and print the speeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small corpus")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--records", type=int, default=16_000, help="of the corpus")
    chosen = parser.parse_args()
    use_own_folder()
    batches = _batches(str(corpus_folder(quick=chosen.quick)), chosen.records)
    print(f"  {sum(map(len, batches))} records, {sum(batch.nbytes for batch in batches) / MB:.0f} MB")
    print(f"  the scan for personal data alone: {statistics.median(_scan_speeds(batches, chosen.repeats)):.0f} MB/s")
    rows: list[list[str]] = []
    for name, modifier in MODIFIERS.items():
        some = batches[:3] if name in SLOW else batches
        _speed(Modify(modifier), some[:1])  # compiled and loaded before anything is measured
        tested = [_speed(Modify(modifier), some) for _ in range(chosen.repeats)]
        plain = [_speed(Modify(modifier.modify_document), some) for _ in range(chosen.repeats)]
        speeds = [f"{statistics.median(found):.0f}" for found in (tested, plain)]
        rows.append([name, *speeds, _changed(modifier, some)])
    header = ["modifier", "MB/s", "as a plain function, MB/s", "texts changed"]
    print_table("input per second of one core, median", header, rows)


def _batches(folder: str, records: int) -> list[DocumentBatch]:
    reader = JsonlReader(folder, limit=records)
    items = (item for unit in reader.list_units() for item in reader.read(unit, ReadContext()))
    return [reader.parse(item.task) for item in items if item.task is not None]


def _fresh(batches: Sequence[DocumentBatch]) -> list[DocumentBatch]:
    """Batches that remember nothing."""
    assert all(batch.raw_lines is not None and batch.ids is not None for batch in batches)
    return [DocumentBatch.from_lines(batch.raw_lines, batch.ids) for batch in batches]  # type: ignore[arg-type]  # both are there


def _speed(stage: Modify, batches: Sequence[DocumentBatch]) -> float:
    given = _fresh(batches)
    started = time.process_time()
    for batch in given:
        stage.process(batch)
    return sum(batch.nbytes for batch in batches) / MB / (time.process_time() - started)


def _scan_speeds(batches: Sequence[DocumentBatch], repeats: int) -> list[float]:
    """Of texts that are bytes already."""
    from thresher.kernels.edits.pii import kinds_in
    from thresher.stages.text.columns.text_column import text_column

    columns = [text_column(batch, "text").texts for batch in _fresh(batches)]
    size = sum(int((texts.ends - texts.starts).sum()) for texts in columns)
    speeds = []
    for _ in range(repeats):
        started = time.process_time()
        for texts in columns:
            kinds_in(texts)
        speeds.append(size / MB / (time.process_time() - started))
    return speeds


def _changed(modifier: Any, batches: Sequence[DocumentBatch]) -> str:
    texts = [text for batch in batches for text in batch.values("text")]
    return f"{sum(modifier.modify_document(text) != text for text in texts) / len(texts):.1%}"


if __name__ == "__main__":
    main()
