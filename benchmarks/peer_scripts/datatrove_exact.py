# SPDX-License-Identifier: Apache-2.0
"""datatrove removes documents with the same text, in three steps. Usage: datatrove_exact.py INPUT OUTPUT N"""

import os
import sys


def text_of(document: object) -> str:
    return document.text  # type: ignore[attr-defined, no-any-return]  # datatrove is not installed here


def main() -> None:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import ExactDedupFilter, ExactDedupSignature, ExactFindDedups
    from datatrove.pipeline.dedup.exact_dedup import ExactDedupConfig
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter

    source, output, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    config = ExactDedupConfig(content_getter=text_of)
    files = len(os.listdir(source))

    def folder(name: str) -> str:
        return os.path.join(output, name)

    writer = JsonlWriter(folder("kept"), output_filename="${rank}.jsonl", compression=None, expand_metadata=True)
    steps = [
        ([JsonlReader(source), ExactDedupSignature(folder("hashes"), config, finder_workers=workers)], files),
        ([ExactFindDedups(folder("hashes"), folder("found"), config)], workers),
        ([JsonlReader(source), ExactDedupFilter(folder("found"), config), writer], files),
    ]
    for number, (pipeline, tasks) in enumerate(steps):
        logs = folder(f"_logs{number}")
        LocalPipelineExecutor(pipeline=pipeline, tasks=tasks, workers=workers, logging_dir=logs).run()


# Its worker processes import this file again, so nothing may happen at import.
if __name__ == "__main__":
    main()
