# SPDX-License-Identifier: Apache-2.0
"""Redaction of personal data and secrets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from thresher.errors import UsageError, nearest, refusals
from thresher.stages.text.document_modifier import DocumentModifier
from thresher.stages.text.modifiers import name_model as names
from thresher.stages.text.modifiers.pii_finders import Span, cards, emails, ibans, phones, public_ips, secrets

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts.text_counts import Texts
    from thresher.kernels.edits.rewrite import Edits

FINDERS: dict[str, Callable[[str], Iterator[Span]]] = {
    "key": secrets,
    "email": emails,
    "iban": ibans,
    "card": cards,
    "ip": public_ips,
    "phone": phones,
}
"""Finders in order of precedence: of two overlapping matches the earlier kind wins."""
NAME = "name"
DEFAULT_REPLACEMENTS = {kind: f"<{kind.upper()}>" for kind in (*FINDERS, NAME)}


class PiiRedactor(DocumentModifier):
    """Replace e-mail addresses, public IP addresses, phone, card and account numbers, keys and tokens, and names.

    Names require a `name_model`. The report counts the replacements of each kind.
    """

    def __init__(
        self, kinds: list[str] | None = None, replacements: dict[str, str] | None = None, name_model: Any = None
    ) -> None:
        """`kinds`: what to replace, of `email ip phone card iban key name`; by default all that can be found.

        `replacements`: the replacement text by kind, instead of `<EMAIL>` and so on. `name_model`: an object with
        `find_names(text)`, or the name or folder of a GLiNER model; without it names are not searched for.
        """
        self.name_model = names.checked(name_model)
        self.kinds = _checked_kinds(kinds, name_model)
        self.replacements = DEFAULT_REPLACEMENTS | _checked_replacements(replacements)
        self._model: names.NameModel | None = None
        self._counts: dict[str, int] = {}

    def check_before_run(self) -> list[str]:
        """Report a missing package of the model."""
        return refusals(lambda: names.check_package(self.name_model))

    def load_model(self) -> None:
        """Load the model that finds names, if names are requested."""
        if NAME in self.kinds and self._model is None:
            self._model = names.load(self.name_model)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_model": None, "_counts": {}}

    def modify_document(self, text: str) -> str:
        """Return the text with all personal data replaced."""
        return self._redacted(text, self.kinds)

    def modify_flagged(self, text: str, flags: int) -> str:
        """Redact like `modify_document`, but search only for the kinds that the scan found."""
        from thresher.kernels.edits.pii_bytes import KINDS

        return self._redacted(text, [kind for kind in self.kinds if flags & KINDS[kind]])

    def _redacted(self, text: str, kinds: Sequence[str]) -> str:
        found = self._find(text, kinds)
        if not found:
            return text
        parts = []
        done = 0
        for start, end, kind in found:
            parts += [text[done:start], self.replacements[kind]]
            done = end
            self._counts[kind] = self._counts.get(kind, 0) + 1
        return "".join([*parts, text[done:]])

    def find(self, text: str) -> list[tuple[int, int, str]]:
        """Return start, end and kind of each match, in order, without overlaps."""
        return self._find(text, self.kinds)

    def _find(self, text: str, kinds: Sequence[str]) -> list[tuple[int, int, str]]:
        taken: list[tuple[int, int, str]] = []
        for kind in kinds:
            spans = self._names(text) if kind == NAME else FINDERS[kind](text)
            taken = _merged(taken, [(start, end, kind) for start, end in spans if start < end])
        return taken

    def _names(self, text: str) -> Iterator[Span]:
        self.load_model()
        assert self._model is not None, "names are asked for, so there is a model"
        for start, end in self._model.find_names(text):
            yield max(0, int(start)), min(len(text), int(end))

    def may_change(self, texts: Texts) -> npt.NDArray[np.uint8] | None:
        """Return the kinds that each text may contain, as found by a compiled scan; `None` if a model must read all
        texts."""
        if NAME in self.kinds:
            return None
        from thresher.kernels.edits.pii import kinds_in

        return kinds_in(texts, self.kinds)

    def edits(self, texts: Texts) -> Edits | None:
        """Return the e-mail and IP addresses that kernels found for certain; `None` if a model must read all texts."""
        new = _as_bytes([self.replacements[kind] for kind in self.kinds])
        if NAME in self.kinds or new is None:
            return None
        import numpy as np

        from thresher.kernels.edits.rewrite import WITH
        from thresher.stages.text.modifiers.pii_edits import pii_edits

        found = pii_edits(texts, self.kinds, new)
        for kind, count in zip(self.kinds, np.bincount(found.found[:, WITH], minlength=len(new)).tolist(), strict=True):
            if count:
                self._counts[kind] = self._counts.get(kind, 0) + count
        return found

    def preloads(self) -> list[str]:
        """Return the compiled search."""
        if NAME in self.kinds:
            return []
        scan = [] if set(self.kinds) <= {"email", "ip"} else ["thresher.kernels.edits.pii"]
        return ["thresher.kernels.edits.mail_spans", "thresher.kernels.edits.ip_spans", *scan]

    def take_counts(self) -> dict[str, int]:
        """Return the number of replacements of each kind, and reset it."""
        counts, self._counts = self._counts, {}
        return {f"replaced {kind}": counts[kind] for kind in self.kinds if kind in counts}


def _as_bytes(texts: list[str]) -> list[bytes] | None:
    """Encode the texts; `None` if one contains half a surrogate pair."""
    try:
        return [text.encode() for text in texts]
    except UnicodeEncodeError:
        return None


def _merged(taken: list[tuple[int, int, str]], new: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Merge two lists of matches in order; drop new ones that overlap."""
    if not new or not taken:
        return _without_overlaps(sorted(new)) if new else taken
    free = []
    index = 0
    for span in sorted(new):
        while index < len(taken) and taken[index][1] <= span[0]:
            index += 1
        if index == len(taken) or span[1] <= taken[index][0]:
            free.append(span)
    return sorted([*taken, *_without_overlaps(free)])


def _without_overlaps(spans: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    kept: list[tuple[int, int, str]] = []
    for span in spans:
        if not kept or kept[-1][1] <= span[0]:
            kept.append(span)
    return kept


def _checked_kinds(given: Any, name_model: Any) -> list[str]:
    """Return the requested kinds in order of precedence."""
    if given is None:
        return [*FINDERS, *([NAME] if name_model is not None else [])]
    legal = [*FINDERS, NAME]
    if isinstance(given, str) or not given:
        raise UsageError(f"PiiRedactor.kinds: {given!r} is not a list of kinds; there are {', '.join(legal)}")
    for kind in given:
        if kind not in legal:
            raise UsageError(
                f"PiiRedactor.kinds: {kind!r} is not a kind.{nearest(str(kind), legal)} There are {', '.join(legal)}"
            )
    if NAME in given and name_model is None:
        raise UsageError(
            "PiiRedactor.kinds: names are found by a model, and there is none; give name_model=…: an object with "
            "find_names(text), or a GLiNER model, or leave 'name' out"
        )
    return [kind for kind in legal if kind in given]


def _checked_replacements(given: Any) -> dict[str, str]:
    if given is None:
        return {}
    for kind, text in given.items():
        if kind not in DEFAULT_REPLACEMENTS or not isinstance(text, str):
            raise UsageError(
                f"PiiRedactor.replacements: {kind!r}: {text!r} is not a text for a kind; "
                f"there are {', '.join(DEFAULT_REPLACEMENTS)}"
            )
    return dict(given)
