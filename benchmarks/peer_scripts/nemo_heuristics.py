# SPDX-License-Identifier: Apache-2.0
"""NeMo Curator on Xenna filters JSON lines by the 22 English rules. Usage: nemo_heuristics.py INPUT OUTPUT"""

import sys

from nemo_cluster import two_cpu_cluster


def rules() -> list:
    """The rules of benchmarks/recipes/english_22.yaml, in its order."""
    from nemo_curator.stages.text.filters.heuristic import repetition, string

    found = [
        string.WordCountFilter(min_words=50, max_words=100000),
        string.MeanWordLengthFilter(min_mean_word_length=3, max_mean_word_length=10),
        string.SymbolsToWordsFilter(max_symbol_to_word_ratio=0.1),
        string.NonAlphaNumericFilter(max_non_alpha_numeric_to_text_ratio=0.25),
        string.BulletsFilter(max_bullet_lines_ratio=0.9),
        string.EllipsisFilter(max_num_lines_ending_with_ellipsis_ratio=0.3),
        string.UrlsFilter(max_url_to_text_ratio=0.2),
        string.WhiteSpaceFilter(max_white_space_ratio=0.25),
        string.BoilerPlateStringFilter(),
        string.PunctuationFilter(max_num_sentences_without_endmark_ratio=0.85),
        string.CommonEnglishWordsFilter(min_num_common_words=2, stop_at_false=True),
        repetition.RepeatedLinesFilter(max_repeated_line_fraction=0.7),
        repetition.RepeatedLinesByCharFilter(max_repeated_lines_char_ratio=0.8),
    ]
    tops = {2: 0.2, 3: 0.18, 4: 0.16}
    found += [repetition.RepeatingTopNGramsFilter(n=n, max_repeating_ngram_ratio=most) for n, most in tops.items()]
    duplicates = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.1}
    found += [
        repetition.RepeatingDuplicateNGramsFilter(n=n, max_repeating_duplicate_ngram_ratio=most)
        for n, most in duplicates.items()
    ]
    return found


def main() -> None:
    with two_cpu_cluster():
        from nemo_curator.backends.xenna import XennaExecutor
        from nemo_curator.pipeline import Pipeline
        from nemo_curator.stages.file_partitioning import FilePartitioningStage
        from nemo_curator.stages.resources import Resources
        from nemo_curator.stages.text.filters.score_filter import ScoreFilter
        from nemo_curator.stages.text.io.reader.jsonl import JsonlReaderStage
        from nemo_curator.stages.text.io.writer import JsonlWriter

        source, output = sys.argv[1], sys.argv[2]
        pipeline = Pipeline(name="heuristics")
        # Whole CPUs for each stage do not fit on two: it would not start. The rules get all that is left.
        pipeline.add_stage(FilePartitioningStage(source, files_per_partition=1).with_(resources=Resources(cpus=0.1)))
        pipeline.add_stage(JsonlReaderStage().with_(resources=Resources(cpus=0.2)))
        pipeline.add_stage(ScoreFilter(rules()).with_(resources=Resources(cpus=0.6)))
        pipeline.add_stage(JsonlWriter(output).with_(resources=Resources(cpus=0.2)))
        pipeline.run(XennaExecutor({"cpu_allocation_percentage": 1.0}))


if __name__ == "__main__":
    main()
