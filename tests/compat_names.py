# SPDX-License-Identifier: Apache-2.0
"""The names of NeMo Curator for the tests of one file, and not for those behind it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from thresher.compat.nemo.finder import ENABLED, REPLACES, install


@pytest.fixture(scope="module")
def nemo_names() -> Iterator[None]:
    """Let `import nemo_curator` find Thresher, also in processes that the tests start."""
    finders, environment = list(sys.meta_path), {name: os.environ.get(name) for name in (ENABLED, REPLACES)}
    install(replace=True)
    yield
    sys.meta_path[:] = finders
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    for name in [name for name in sys.modules if name.partition(".")[0] == "nemo_curator"]:
        del sys.modules[name]
