# SPDX-License-Identifier: Apache-2.0
"""Repair and normalization of Unicode."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any, Literal

from thresher.errors import MissingPackageError, UsageError, refusals
from thresher.stages.text.columns.byte_tests import for_each, not_ascii
from thresher.stages.text.document_modifier import DocumentModifier

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts.text_counts import Texts


NormalForm = Literal["NFC", "NFD", "NFKC", "NFKD"]
FORMS: tuple[NormalForm, ...] = ("NFC", "NFD", "NFKC", "NFKD")


class UnicodeNormalizer(DocumentModifier):
    """Convert each text to a Unicode normalization form."""

    def __init__(self, form: NormalForm = "NFC") -> None:
        """`form`: `NFC` composes letters and marks, `NFD` decomposes them; `NFKC` and `NFKD` also replace compatibility
        characters (`ﬁ`, `²`, full-width letters) with plain ones."""
        if form not in FORMS:
            raise UsageError(f"UnicodeNormalizer.form: {form!r} is not a normal form; there is {', '.join(FORMS)}")
        self.form = form

    def modify_document(self, text: str) -> str:
        """Return the text in its normal form."""
        return unicodedata.normalize(self.form, text)

    def may_change(self, texts: Texts) -> npt.NDArray[np.bool_]:
        """Return a mask of the texts with non-ASCII characters; ASCII is in every normal form."""
        return not_ascii(texts)


_CONTROLS = bytes(code for code in (*range(32), 127) if code not in b"\t\n")
_CONTROL = re.compile(f"[{re.escape(_CONTROLS.decode())}]")
"""ASCII characters that a repair may remove or replace: controls, terminal escapes, carriage returns and form feeds."""


class UnicodeReformatter(DocumentModifier):
    """Repair text with ftfy: wrong decoding, HTML entities, terminal escapes, control characters.

    The parameters are those of ftfy's `TextFixerConfig`. By default only damaged text is repaired; normal form,
    quotation marks, ligatures, widths and line breaks stay.
    """

    def __init__(  # noqa: PLR0913 - all options of ftfy, by keyword
        self,
        config: Any = None,
        unescape_html: Literal["auto"] | bool = "auto",
        remove_terminal_escapes: bool = True,
        fix_encoding: bool = True,
        restore_byte_a0: bool = True,
        replace_lossy_sequences: bool = True,
        decode_inconsistent_utf8: bool = True,
        fix_c1_controls: bool = True,
        fix_latin_ligatures: bool = False,
        fix_character_width: bool = False,
        uncurl_quotes: bool = False,
        fix_line_breaks: bool = False,
        fix_surrogates: bool = True,
        remove_control_chars: bool = True,
        normalization: NormalForm | None = None,
        max_decode_length: int = 1_000_000,
        explain: bool = True,
    ) -> None:
        """`config`: a `TextFixerConfig`, or a dict of its fields, which replaces all other parameters.

        `explain` is accepted and has no effect.
        """
        if normalization is not None and normalization not in FORMS:
            raise UsageError(
                f"UnicodeReformatter.normalization: {normalization!r} is not a normal form; "
                f"there is {', '.join(FORMS)}, and None for none"
            )
        if unescape_html not in ("auto", True, False):
            raise UsageError(f"UnicodeReformatter.unescape_html: {unescape_html!r} is not 'auto', True or False")
        if isinstance(max_decode_length, bool) or not isinstance(max_decode_length, int) or max_decode_length < 1:
            raise UsageError(f"UnicodeReformatter.max_decode_length: {max_decode_length!r} is not 1 or more")
        del explain
        self.options: dict[str, Any] = {
            "unescape_html": unescape_html,
            "remove_terminal_escapes": remove_terminal_escapes,
            "fix_encoding": fix_encoding,
            "restore_byte_a0": restore_byte_a0,
            "replace_lossy_sequences": replace_lossy_sequences,
            "decode_inconsistent_utf8": decode_inconsistent_utf8,
            "fix_c1_controls": fix_c1_controls,
            "fix_latin_ligatures": fix_latin_ligatures,
            "fix_character_width": fix_character_width,
            "uncurl_quotes": uncurl_quotes,
            "fix_line_breaks": fix_line_breaks,
            "fix_surrogates": fix_surrogates,
            "remove_control_chars": remove_control_chars,
            "normalization": normalization,
            "max_decode_length": max_decode_length,
        }
        if config is not None:
            self.options = _options_of(config)
        self._fix: Any = None

    def check_before_run(self) -> list[str]:
        """Report a missing ftfy, or options that it does not know."""
        return refusals(self.load_model)

    def load_model(self) -> None:
        """Import ftfy; raise an error that explains how to install it if it is missing."""
        if self._fix is None:
            self._fix = _fixer(self.options)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fix": None}

    def modify_document(self, text: str) -> str:
        """Return the repaired text."""
        self.load_model()
        try:
            repaired: str = self._fix(text)
        except UnicodeError:  # text that ftfy cannot handle stays unchanged
            return text
        return repaired

    def may_change(self, texts: Texts) -> npt.NDArray[np.bool_]:
        """Return a mask of the texts that are not plain ASCII without entities and control characters."""
        return for_each(texts, _may_change_text)


def _may_change_text(piece: bytes) -> bool:
    return not piece.isascii() or b"&" in piece or len(piece.translate(None, _CONTROLS)) < len(piece)


def _may_change_line(line: str) -> bool:
    return not line.isascii() or "&" in line or _CONTROL.search(line) is not None


def _options_of(config: Any) -> dict[str, Any]:
    fields = config if isinstance(config, dict) else getattr(config, "_asdict", dict)()
    if not fields:
        raise UsageError(f"UnicodeReformatter.config: {config!r} is neither a TextFixerConfig nor a dict of its fields")
    return {name: value for name, value in fields.items() if name != "explain"}


def _fixer(options: dict[str, Any]) -> Any:
    try:
        import ftfy
    except ImportError as error:
        raise MissingPackageError(
            f"UnicodeReformatter needs ftfy, which is not installed ({error}): pip install 'thresher[ftfy]'"
        ) from error
    try:
        config = ftfy.TextFixerConfig(**options, explain=False)
    except TypeError as error:
        legal = ", ".join(ftfy.TextFixerConfig._fields)
        raise UsageError(f"UnicodeReformatter.config: {error}; this ftfy knows {legal}") from error
    return _LineFixer(ftfy.fix_text, config)


class _LineFixer:
    """Apply ftfy line by line, and skip lines of plain ASCII, which it never changes."""

    def __init__(self, fix_text: Any, config: Any) -> None:
        self._fix_text, self._config = fix_text, config
        self._in_html = config._replace(unescape_html=False) if config.unescape_html == "auto" else config

    def __call__(self, text: str) -> str:
        config = self._config
        *ended, last = text.split("\n")
        lines = [*(f"{line}\n" for line in ended), last]  # ftfy must see the line feed, to normalize \r\n
        for index, line in enumerate(lines):
            if "<" in line and config is not self._in_html:
                # From this line on the text is HTML; ftfy itself finds where in the line it starts.
                lines[index], config = self._fix_text(line, config) if _may_change_line(line) else line, self._in_html
            elif _may_change_line(line):
                lines[index] = self._fix_text(line, config)
        return "".join(lines)
