# SPDX-License-Identifier: Apache-2.0
"""Access to compiled kernels for readers, if another stage of the pipeline has already loaded them.

Loading them for reading alone does not pay: libraries do the same, somewhat slower.
"""

from __future__ import annotations

import sys
from typing import Any

_MODULE = "thresher.kernels.json.text"


def kernels() -> Any | None:
    """Return the module `thresher.kernels.json.text` if it is completely loaded: another thread may be loading it."""
    found = sys.modules.get(_MODULE)
    return found if getattr(found, "READY", False) else None
