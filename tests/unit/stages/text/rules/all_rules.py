# SPDX-License-Identifier: Apache-2.0
"""The rules that are tried on every text, with and without parameters."""

from __future__ import annotations

from thresher.stages.text.judging.rule import CountRule, DocumentFilter
from thresher.stages.text.rules.characters.character_shares import (
    AlphaFilter,
    NonAlphaNumericFilter,
    NumbersFilter,
    ParenthesesFilter,
    WhiteSpaceFilter,
)
from thresher.stages.text.rules.characters.patterns import SubstringFilter
from thresher.stages.text.rules.code.comments import LANGUAGES, GeneralCommentToCodeFilter, PythonCommentToCodeFilter
from thresher.stages.text.rules.code.source_files import (
    HTMLBoilerplateFilter,
    NumberOfLinesOfCodeFilter,
    XMLHeaderFilter,
)
from thresher.stages.text.rules.lines.line_marks import BulletsFilter, EllipsisFilter, PunctuationFilter
from thresher.stages.text.rules.lines.paragraphs import BoilerPlateStringFilter
from thresher.stages.text.rules.lines.repeated_ngrams import RepeatingDuplicateNGramsFilter, RepeatingTopNGramsFilter
from thresher.stages.text.rules.lines.repeated_passages import (
    RepeatedLinesByCharFilter,
    RepeatedLinesFilter,
    RepeatedParagraphsByCharFilter,
    RepeatedParagraphsFilter,
)
from thresher.stages.text.rules.web.urls import PornographicUrlsFilter, UrlsFilter
from thresher.stages.text.rules.words.word_counts import (
    CommonEnglishWordsFilter,
    LongWordFilter,
    MeanWordLengthFilter,
    SymbolsToWordsFilter,
    WordCountFilter,
    WordsWithoutAlphabetsFilter,
)

COUNTED: dict[str, CountRule] = {
    **{
        type(rule).__name__: rule
        for rule in (
            AlphaFilter(),
            BoilerPlateStringFilter(),
            BulletsFilter(),
            CommonEnglishWordsFilter(),
            EllipsisFilter(),
            LongWordFilter(),
            MeanWordLengthFilter(),
            NonAlphaNumericFilter(),
            NumberOfLinesOfCodeFilter(),
            NumbersFilter(),
            ParenthesesFilter(),
            PornographicUrlsFilter(),
            PunctuationFilter(),
            RepeatedLinesFilter(),
            RepeatedLinesByCharFilter(),
            RepeatedParagraphsFilter(),
            RepeatedParagraphsByCharFilter(),
            SymbolsToWordsFilter(),
            UrlsFilter(),
            WhiteSpaceFilter(),
            WordCountFilter(),
            WordsWithoutAlphabetsFilter(),
        )
    },
    "CommonEnglishWordsFilter-all": CommonEnglishWordsFilter(stop_at_false=False),
    **{f"RepeatingTopNGramsFilter-{n}": RepeatingTopNGramsFilter(n) for n in (1, 2, 3, 4, 7)},
    **{f"RepeatingDuplicateNGramsFilter-{n}": RepeatingDuplicateNGramsFilter(n) for n in (1, 2, 5, 6, 7, 8, 9, 10)},
}
"""Rules that kernels work out."""

PLAIN: dict[str, DocumentFilter] = {
    "HTMLBoilerplateFilter": HTMLBoilerplateFilter(),
    "PythonCommentToCodeFilter": PythonCommentToCodeFilter(),
    "SubstringFilter": SubstringFilter("a", "any"),
    "UrlsFilter-own": UrlsFilter(url_regex=r"www\.(\S)+"),
    "XMLHeaderFilter": XMLHeaderFilter(),
    **{
        f"GeneralCommentToCodeFilter-{language}": GeneralCommentToCodeFilter(language)
        for language in sorted({pattern: name for name, pattern in LANGUAGES.items()}.values())
    },
}
"""Rules that Python works out."""
