# SPDX-License-Identifier: Apache-2.0
"""Custom stages: one that adds columns and drops documents, one made from a function, one that splits batches.

Run it from anywhere: `python examples/own_stage.py [INPUT [OUTPUT]]`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from thresher import (
    DocumentBatch,
    JsonlReader,
    JsonlWriter,
    LocalExecutor,
    Pipeline,
    ProcessingStage,
    Resources,
    processing_stage,
)


class Dialogue(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Count words and lines of speech, and drop very short documents."""

    resources = Resources(cpus=1.0)

    def __init__(self, min_words: int = 20) -> None:
        self.min_words = min_words

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column it reads; a pipeline in which no stage provides it is refused before it runs."""
        return ["data"], ["text"]

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the columns it adds."""
        return ["data"], ["words", "spoken_lines"]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Process one batch; the framework handles ids, counts, retries and failing records."""
        texts = task.values("text")
        odd = [row for row, text in enumerate(texts) if not isinstance(text, str)]
        if odd:
            task = task.set_aside(odd, error="not-a-string", messages=["no text to look at"] * len(odd))
            texts = [text for text in texts if isinstance(text, str)]
        words = [len(text.split()) for text in texts]
        spoken = [sum(line.lstrip()[:1] in tuple('–—»„“"') for line in text.split("\n")) for text in texts]
        self.count("lines of speech", sum(spoken))
        short = [row for row, number in enumerate(words) if number < self.min_words]
        task = task.replace("words", words).replace("spoken_lines", spoken)
        return task.drop(short, rule="few words", scores=[words[row] for row in short], threshold=self.min_words)


@processing_stage(name="sources")
def without_fragment(task: DocumentBatch) -> DocumentBatch:
    """Remove the number of the chapter from the source."""
    return task.replace("source", [str(source or "unknown").split(" #")[0] for source in task.values("source")])


class Halves(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Split each batch in two; each half continues as soon as it is yielded."""

    def process(self, task: DocumentBatch) -> Iterator[DocumentBatch]:
        """Yield one half, then the other. Records that are only moved keep their ids."""
        middle = len(task) // 2
        yield task.take(range(middle))
        yield task.take(range(middle, len(task)))


source = sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parent / "demo" / "data")
target = sys.argv[2] if len(sys.argv) > 2 else "own-stage-output"

pipeline = Pipeline("own-stage")
pipeline.add_stage(JsonlReader(source))
pipeline.add_stage(Dialogue(min_words=30))
pipeline.add_stage(without_fragment)
pipeline.add_stage(Halves())
pipeline.add_stage(JsonlWriter(target, compression="gzip"))
result = pipeline.run(LocalExecutor(workers=2))

print(result.counts)
print(result.drop_reasons)
