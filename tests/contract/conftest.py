# SPDX-License-Identifier: Apache-2.0
"""Ends what the contract suite has started."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.ray_rows import end_ray


@pytest.fixture(scope="module", autouse=True)
def ray_ends_with_its_module() -> Iterator[None]:
    yield
    end_ray()
