# SPDX-License-Identifier: Apache-2.0
"""Personal data found by kernels: e-mail and IP addresses exactly, all other kinds as far as to say where they could
be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from thresher.kernels.counts import Texts
from thresher.kernels.edits import ROW, WITH, Edits, Find, find_edits
from thresher.kernels.ip_spans import find as find_ips
from thresher.kernels.mail_spans import find as find_mails
from thresher.kernels.pii_bytes import KINDS

_FINDERS: dict[str, Find] = {"email": find_mails, "ip": find_ips}


def pii_edits(texts: Texts, kinds: Sequence[str], new: Sequence[bytes]) -> Edits:
    """What to replace by which of `new`, which has one for each of the kinds.

    A text in which a kind could be that no kernel finds, or in which there are several kinds, which might overlap, is
    left in doubt: the number has the bits of all kinds to look for.
    """
    others = [kind for kind in kinds if kind not in _FINDERS]
    doubtful = _could_be(texts, others) if others else np.zeros(len(texts.starts), dtype=np.uint8)
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


def _could_be(texts: Texts, kinds: Sequence[str]) -> npt.NDArray[np.uint8]:
    from thresher.kernels.pii import kinds_in

    return kinds_in(texts, kinds)
