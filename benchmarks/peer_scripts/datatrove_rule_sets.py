# SPDX-License-Identifier: Apache-2.0
"""datatrove filters JSON lines by its Gopher, C4 and FineWeb sets. Usage: datatrove_rule_sets.py INPUT OUTPUT N"""

import os
import sys


def main() -> None:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter

    source, output, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    LocalPipelineExecutor(
        pipeline=[
            JsonlReader(source),
            GopherRepetitionFilter(),
            GopherQualityFilter(),
            C4QualityFilter(filter_no_terminal_punct=False),
            FineWebQualityFilter(),
            JsonlWriter(output, output_filename="${rank}.jsonl", compression=None, expand_metadata=True),
        ],
        tasks=len(os.listdir(source)),
        workers=workers,
        logging_dir=os.path.join(output, "_logs"),
    ).run()


# Its worker processes import this file again, so nothing may happen at import.
if __name__ == "__main__":
    main()
