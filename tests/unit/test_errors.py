# SPDX-License-Identifier: Apache-2.0
"""Parts of messages."""

from __future__ import annotations

import pytest

from thresher.core.task import EmptyTask
from thresher.errors import with_article


@pytest.mark.parametrize(
    ("kind", "text"),
    [(int, "an int"), (str, "a str"), (EmptyTask, "an EmptyTask"), ("user", "a user"), ("union", "a union")],
)
def test_articles_fit_what_follows(kind: type | str, text: str) -> None:
    assert with_article(kind) == text
