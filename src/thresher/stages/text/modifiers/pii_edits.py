# SPDX-License-Identifier: Apache-2.0
"""Detection of personal data by kernels: exact for e-mail and IP addresses, a pre-filter for all other kinds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from thresher.kernels.counts.text_counts import Texts
from thresher.kernels.edits.ip_spans import find as find_ips
from thresher.kernels.edits.mail_spans import find as find_mails
from thresher.kernels.edits.pii_bytes import KINDS
from thresher.kernels.edits.rewrite import ROW, WITH, Edits, Find, find_edits

_FINDERS: dict[str, Find] = {"email": find_mails, "ip": find_ips}


def pii_edits(texts: Texts, kinds: Sequence[str], new: Sequence[bytes]) -> Edits:
    """Return the replacements of personal data by `new`, which has one entry per kind.

    A text that may contain a kind without a kernel, or that contains several kinds, which may overlap, is marked
    doubtful; the mark is a bit set of the kinds to look for.
    """
    others = [kind for kind in kinds if kind not in _FINDERS]
    doubtful = _possible_kinds(texts, others) if others else np.zeros(len(texts.starts), dtype=np.uint8)
    present = np.zeros(len(texts.starts), dtype=np.uint8)
    parts = [np.zeros((0, 4), dtype=np.int64)]
    for number, kind in enumerate(kinds):
        if kind in _FINDERS:
            part = find_edits(_FINDERS[kind], texts, ())
            doubtful |= part.doubtful * np.uint8(KINDS[kind])
            present[part.found[:, ROW]] |= np.uint8(KINDS[kind])
            part.found[:, WITH] = number
            parts.append(part.found)
    in_doubt = (doubtful != 0) | (present & (present - np.uint8(1)) != 0)
    found = np.concatenate(parts)
    found = found[~in_doubt[found[:, ROW]]]
    found = found[np.argsort(found[:, ROW], kind="stable")]
    return Edits(found, new, np.where(in_doubt, doubtful | present, 0).astype(np.uint8))


def _possible_kinds(texts: Texts, kinds: Sequence[str]) -> npt.NDArray[np.uint8]:
    from thresher.kernels.edits.pii import kinds_in

    return kinds_in(texts, kinds)
