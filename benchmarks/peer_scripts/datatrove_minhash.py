# SPDX-License-Identifier: Apache-2.0
"""datatrove removes similar documents in four steps: words of five, 20 bands of 13. Usage: datatrove_minhash.py INPUT
OUTPUT N"""

import os
import sys


def main() -> None:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import (
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter

    source, output, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    config = MinhashConfig(n_grams=5, num_buckets=20, hashes_per_bucket=13)
    files = len(os.listdir(source))

    def folder(name: str) -> str:
        return os.path.join(output, name)

    writer = JsonlWriter(folder("kept"), output_filename="${rank}.jsonl", compression=None, expand_metadata=True)
    steps = [
        ([JsonlReader(source), MinhashDedupSignature(folder("signatures"), config=config)], files),
        ([MinhashDedupBuckets(folder("signatures"), folder("buckets"), config=config)], 20),
        ([MinhashDedupCluster(folder("buckets"), folder("removed"), config=config)], 1),
        ([JsonlReader(source), MinhashDedupFilter(folder("removed")), writer], files),
    ]
    for number, (pipeline, tasks) in enumerate(steps):
        logs = folder(f"_logs{number}")
        LocalPipelineExecutor(pipeline=pipeline, tasks=tasks, workers=workers, logging_dir=logs).run()


# Its worker processes import this file again, so nothing may happen at import.
if __name__ == "__main__":
    main()
