# SPDX-License-Identifier: Apache-2.0
"""NeMo Curator on Xenna encodes JSON lines and writes .bin and .idx files.

Usage: nemo_megatron.py INPUT_FOLDER OUTPUT_FOLDER TOKENIZER_FOLDER
"""

import sys

from nemo_cluster import two_cpu_cluster


def main() -> None:
    with two_cpu_cluster():
        from nemo_curator.backends.xenna import XennaExecutor
        from nemo_curator.pipeline import Pipeline
        from nemo_curator.stages.file_partitioning import FilePartitioningStage
        from nemo_curator.stages.resources import Resources
        from nemo_curator.stages.text.io.reader.jsonl import JsonlReaderStage
        from nemo_curator.stages.text.io.writer.megatron_tokenizer import MegatronTokenizerWriter

        class Writer(MegatronTokenizerWriter):
            """The writer, which calls a method that transformers 5 no longer has."""

            def setup(self, worker_metadata=None):
                super().setup(worker_metadata)
                if not hasattr(self.tokenizer, "batch_encode_plus"):
                    self.tokenizer.batch_encode_plus = self.tokenizer.__call__

        source, output, tokenizer = sys.argv[1:4]
        pipeline = Pipeline(name="megatron")
        # Whole CPUs for each of three stages do not fit on two: it would not start.
        pipeline.add_stage(FilePartitioningStage(source, files_per_partition=1).with_(resources=Resources(cpus=0.2)))
        pipeline.add_stage(JsonlReaderStage(fields=["text"]).with_(resources=Resources(cpus=0.2)))
        writer = Writer(output, model_identifier=tokenizer, append_eod=True)
        pipeline.add_stage(writer.with_(resources=Resources(cpus=0.75)))
        pipeline.run(XennaExecutor({"cpu_allocation_percentage": 1.0}))


if __name__ == "__main__":
    main()
