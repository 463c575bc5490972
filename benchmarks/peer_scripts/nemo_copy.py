# SPDX-License-Identifier: Apache-2.0
"""NeMo Curator on Xenna reads JSON lines and writes them. Usage: nemo_copy.py INPUT_FOLDER OUTPUT_FOLDER"""

import sys

from nemo_cluster import two_cpu_cluster


def main() -> None:
    with two_cpu_cluster():
        from nemo_curator.backends.xenna import XennaExecutor
        from nemo_curator.pipeline import Pipeline
        from nemo_curator.stages.file_partitioning import FilePartitioningStage
        from nemo_curator.stages.resources import Resources
        from nemo_curator.stages.text.io.reader.jsonl import JsonlReaderStage
        from nemo_curator.stages.text.io.writer import JsonlWriter

        source, output = sys.argv[1], sys.argv[2]
        pipeline = Pipeline(name="copy")
        # Whole CPUs for each of three stages do not fit on two: it would not start.
        pipeline.add_stage(FilePartitioningStage(source, files_per_partition=1).with_(resources=Resources(cpus=0.2)))
        pipeline.add_stage(JsonlReaderStage().with_(resources=Resources(cpus=0.5)))
        pipeline.add_stage(JsonlWriter(output).with_(resources=Resources(cpus=0.5)))
        pipeline.run(XennaExecutor({"cpu_allocation_percentage": 1.0}))


if __name__ == "__main__":
    main()
