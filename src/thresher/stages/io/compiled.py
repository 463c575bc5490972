# SPDX-License-Identifier: Apache-2.0
"""Compiled loops for readers: used where a stage of the pipeline has loaded them already.

For reading alone they are not worth the wait: libraries do the same, somewhat slower.
"""

from __future__ import annotations

import sys
from typing import Any

_MODULE = "thresher.kernels.json_text"


def kernels() -> Any | None:
    """The module `thresher.kernels.json_text`, if it is loaded to its end: another thread may be at it."""
    found = sys.modules.get(_MODULE)
    return found if getattr(found, "READY", False) else None
