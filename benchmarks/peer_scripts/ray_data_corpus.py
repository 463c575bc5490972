# SPDX-License-Identifier: Apache-2.0
"""Ray Data shuffles or counts JSON lines. Usage: ray_data_corpus.py shuffle|count INPUT_FOLDER OUTPUT_FOLDER"""

import logging
import sys


def main() -> None:
    import ray

    work, source, output = sys.argv[1:]
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    documents = ray.data.read_json(source, lines=True)
    if work == "shuffle":
        documents.random_shuffle(seed=42).write_json(output)
    else:
        documents.groupby("source").count().write_json(output)


if __name__ == "__main__":
    main()
