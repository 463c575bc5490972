# SPDX-License-Identifier: Apache-2.0
"""The rules that are tried on every text, with and without parameters."""

from __future__ import annotations

from thresher.stages.text.count_rule import CountRule
from thresher.stages.text.document_filter import DocumentFilter
from thresher.stages.text.rules.alpha import AlphaFilter
from thresher.stages.text.rules.boiler_plate_string import BoilerPlateStringFilter
from thresher.stages.text.rules.bullets import BulletsFilter
from thresher.stages.text.rules.common_english_words import CommonEnglishWordsFilter
from thresher.stages.text.rules.ellipsis import EllipsisFilter
from thresher.stages.text.rules.general_comment_to_code import LANGUAGES, GeneralCommentToCodeFilter
from thresher.stages.text.rules.html_boilerplate import HTMLBoilerplateFilter
from thresher.stages.text.rules.long_word import LongWordFilter
from thresher.stages.text.rules.mean_word_length import MeanWordLengthFilter
from thresher.stages.text.rules.non_alpha_numeric import NonAlphaNumericFilter
from thresher.stages.text.rules.number_of_lines_of_code import NumberOfLinesOfCodeFilter
from thresher.stages.text.rules.numbers import NumbersFilter
from thresher.stages.text.rules.parentheses import ParenthesesFilter
from thresher.stages.text.rules.pornographic_urls import PornographicUrlsFilter
from thresher.stages.text.rules.punctuation import PunctuationFilter
from thresher.stages.text.rules.python_comment_to_code import PythonCommentToCodeFilter
from thresher.stages.text.rules.repeated_lines import RepeatedLinesFilter
from thresher.stages.text.rules.repeated_lines_by_char import RepeatedLinesByCharFilter
from thresher.stages.text.rules.repeated_paragraphs import RepeatedParagraphsFilter
from thresher.stages.text.rules.repeated_paragraphs_by_char import RepeatedParagraphsByCharFilter
from thresher.stages.text.rules.repeating_duplicate_ngrams import RepeatingDuplicateNGramsFilter
from thresher.stages.text.rules.repeating_top_ngrams import RepeatingTopNGramsFilter
from thresher.stages.text.rules.substring import SubstringFilter
from thresher.stages.text.rules.symbols_to_words import SymbolsToWordsFilter
from thresher.stages.text.rules.urls import UrlsFilter
from thresher.stages.text.rules.white_space import WhiteSpaceFilter
from thresher.stages.text.rules.word_count import WordCountFilter
from thresher.stages.text.rules.words_without_alphabets import WordsWithoutAlphabetsFilter
from thresher.stages.text.rules.xml_header import XMLHeaderFilter

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
