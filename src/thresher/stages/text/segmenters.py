# SPDX-License-Identifier: Apache-2.0
"""Words of languages that are written without spaces between them. Each segmenter is a package of its own; the extra
`thresher[segmenters]` brings them."""

from __future__ import annotations

import functools
import importlib.util
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from thresher.errors import MissingPackageError, UsageError
from thresher.models.surrogates import without_surrogates

Segmenter = Callable[[str], list[str]]


class Package(NamedTuple):
    """What finds the words of a language."""

    module: str
    """What is imported."""
    load: Callable[[], Segmenter]
    """Makes the function that gives the words of a text; slow, so once per worker."""


def words_of(text: str, lang: str) -> list[str]:
    """The words of a text. White space is between words and no part of one, in every language. A segmenter makes words
    of punctuation too, and sees U+FFFD for a lone surrogate."""
    if not is_segmented(lang):
        return text.split()
    return [word for found in _segmenter(_base(lang))(without_surrogates(text)) for word in found.split()]


def is_segmented(lang: str) -> bool:
    """Whether words of this language are found by a segmenter; those of all others are between white space."""
    return _base(lang) in SEGMENTERS


def checked_language(rule: str, lang: Any) -> str:
    """A language's code, such as `en` or `zh-Hant`; refused where its segmenter is not installed."""
    if not isinstance(lang, str) or not lang:
        raise UsageError(f"{rule}.lang: {lang!r} is no code of a language; give one such as 'en', 'zh' or 'th'")
    package = SEGMENTERS.get(_base(lang))
    if package is not None and importlib.util.find_spec(package.module) is None:
        raise MissingPackageError(
            f"{rule}.lang: {lang!r} needs the package {package.module!r}. Install: pip install 'thresher[segmenters]'"
        )
    return lang


def load_segmenter(lang: str) -> None:
    """Make a language's segmenter ready, so that the first document does not wait for it."""
    if is_segmented(lang):
        _segmenter(_base(lang))


def _base(lang: str) -> str:
    return lang.lower().replace("_", "-").partition("-")[0]


@functools.cache
def _segmenter(base: str) -> Segmenter:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the packages' own code is older than some warnings of Python
        return SEGMENTERS[base].load()


def _chinese() -> Segmenter:
    import jieba

    jieba.setLogLevel(60)
    tokenizer = jieba.Tokenizer()
    # What `initialize` does, but for its cache: that is a file in a folder which everybody can write to.
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    return lambda text: list(tokenizer.cut(text))


def _japanese() -> Segmenter:
    import fugashi

    tagger = fugashi.Tagger("-Owakati")
    # MeCab ends a text at a NUL and has a longest line, so it gets lines.
    return lambda text: [
        word.surface for line in text.replace("\0", "\n").splitlines() if line.strip() for word in tagger(line)
    ]


def _icu(lang: str) -> Segmenter:
    from icu4py.breakers import WordBreaker

    return lambda text: list(WordBreaker(text, lang))


SEGMENTERS: dict[str, Package] = {
    "zh": Package("jieba", _chinese),
    "ja": Package("fugashi", _japanese),
    **{lang: Package("icu4py", functools.partial(_icu, lang)) for lang in ("th", "lo", "km", "my")},
}
"""Segmenters by the code of the language, ISO 639-1."""
