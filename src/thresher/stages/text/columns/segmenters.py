# SPDX-License-Identifier: Apache-2.0
"""Word segmentation for languages that are written without spaces. Each segmenter is a separate package; the extra
`thresher[segmenters]` installs them."""

from __future__ import annotations

import functools
import importlib.util
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from thresher.errors import MissingPackageError, UsageError
from thresher.models.surrogates import without_surrogates

Segmenter = Callable[[str], list[str]]

_TWO_LETTERS = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en "
    "eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv "
    "ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne "
    "ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss "
    "st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)
"""The ISO 639-1 codes, and two former ones (`bh`, `sh`)."""
_SAME_AS = {"zho": "zh", "chi": "zh", "cmn": "zh", "jpn": "ja", "tha": "th", "lao": "lo", "khm": "km"} | dict.fromkeys(
    ("mya", "bur"), "my"
)
"""Three-letter codes of the languages that have a segmenter."""


class Package(NamedTuple):
    """A package that finds the words of a language."""

    module: str
    """Name of the imported module."""
    load: Callable[[], Segmenter]
    """Creates the function that returns the words of a text; slow, so it is called once per worker."""


def words_of(text: str, lang: str) -> list[str]:
    """Return the words of a text. White space separates words in every language. A segmenter also returns punctuation
    as words, and reads a lone surrogate as U+FFFD."""
    if not is_segmented(lang):
        return text.split()
    return [word for found in _segmenter(_base(lang))(without_surrogates(text)) for word in found.split()]


def is_segmented(lang: str) -> bool:
    """Return True if a segmenter finds the words of this language; in all others white space separates them."""
    return _base(lang) in SEGMENTERS


def checked_language(rule: str, lang: Any) -> str:
    """Validate a language code, such as `en` or `zh-Hant`; refuse it if its segmenter is not installed."""
    if not isinstance(lang, str) or not _is_code(lang):
        raise UsageError(
            f"{rule}.lang: {lang!r} is not a language code; give an ISO 639 code, such as 'en', 'zh', 'ja' or 'th'"
        )
    package = SEGMENTERS.get(_base(lang))
    if package is not None and importlib.util.find_spec(package.module) is None:
        raise MissingPackageError(
            f"{rule}.lang: {lang!r} needs the package {package.module!r}. Install: pip install 'thresher[segmenters]'"
        )
    return lang


def load_segmenter(lang: str) -> None:
    """Load the segmenter of a language ahead of the first document."""
    if is_segmented(lang):
        _segmenter(_base(lang))


def _is_code(lang: str) -> bool:
    """Return True for a two-letter ISO 639-1 code, or any three-letter code; a script or country may follow."""
    base = _first_part(lang)
    return base in _TWO_LETTERS.split() if len(base) == 2 else len(base) == 3 and base.isascii() and base.isalpha()


def _base(lang: str) -> str:
    base = _first_part(lang)
    return _SAME_AS.get(base, base)


def _first_part(lang: str) -> str:
    return lang.lower().replace("_", "-").partition("-")[0]


@functools.cache
def _segmenter(base: str) -> Segmenter:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the packages use constructs that newer Python versions warn about
        return SEGMENTERS[base].load()


def _chinese() -> Segmenter:
    import jieba

    jieba.setLogLevel(60)
    tokenizer = jieba.Tokenizer()
    # This replaces `initialize`, which would write a cache file to a world-writable folder.
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    return lambda text: list(tokenizer.cut(text))


def _japanese() -> Segmenter:
    import fugashi

    tagger = fugashi.Tagger("-Owakati")
    # MeCab stops at a NUL and limits the length of a line, so it is called per line.
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
"""Segmenters by ISO 639-1 code."""
