# SPDX-License-Identifier: Apache-2.0
"""Write the decision of each rule set of datatrove on the documents of a file, each set applied alone.

Usage: datatrove_decisions.py INPUT_FILE OUTPUT_FILE spacy|white-space
With white-space, words lie between white space and sentences are those of thresher, so that only the rules may differ.
"""

import json
import sys
from pathlib import Path


def use_white_space() -> None:
    from datatrove.utils import word_tokenizers

    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
    from thresher.stages.text.c4.quality import split_sentences

    class WhiteSpace(word_tokenizers.WordTokenizer):
        def word_tokenize(self, text):
            return text.split()

        def sent_tokenize(self, text):
            return split_sentences(text)

        def span_tokenize(self, text):
            spans, place = [], 0
            for sentence in split_sentences(text):
                spans.append((place, place + len(sentence)))
                place += len(sentence)
            return spans

    words = WhiteSpace()
    word_tokenizers.load_word_tokenizer = lambda language: words


def main() -> None:
    source, output, kind = sys.argv[1:]
    if kind == "white-space":
        use_white_space()
    from datatrove.data import Document
    from datatrove.pipeline.filters import (
        C4ParagraphFilter,
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )

    sets = {
        "GopherRepetitionFilter": GopherRepetitionFilter(),
        "GopherQualityFilter": GopherQualityFilter(),
        "C4QualityFilter": C4QualityFilter(),
        "C4ParagraphFilter": C4ParagraphFilter(),
        "FineWebQualityFilter": FineWebQualityFilter(),
    }
    with open(source, encoding="utf-8") as lines, open(output, "w", encoding="utf-8") as written:
        for line in lines:
            said = {}
            for name, rules in sets.items():
                document = Document(text=json.loads(line)["text"], id="")
                try:
                    answer = rules.filter(document)
                except Exception as error:
                    said[name] = {"raised": type(error).__name__}
                    continue
                said[name] = {"text": document.text} if answer is True else {"reason": answer[1]}
            written.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
