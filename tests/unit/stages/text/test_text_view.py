# SPDX-License-Identifier: Apache-2.0
"""Views are made once per text, and follow their records."""

from __future__ import annotations

from tests.unit.core.json_batches import batch_of
from thresher.stages.text.text_view import text_views


def test_views_are_made_once_and_picked_with_their_records() -> None:
    batch = batch_of([{"text": "a"}, {"text": 1}, {"text": "c"}])
    views = text_views(batch, "text")
    assert [view.text if view else None for view in views] == ["a", None, "c"]
    assert text_views(batch, "text") is views
    assert text_views(batch.take([2, 0]), "text") == [views[2], views[0]]


def test_a_replaced_column_gets_new_views_and_others_stay() -> None:
    batch = batch_of([{"text": "a", "title": "t"}])
    old_text, old_title = text_views(batch, "text")[0], text_views(batch, "title")[0]
    changed = batch.replace("text", ["b"])
    new = text_views(changed, "text")[0]
    assert new is not None
    assert new is not old_text
    assert new.text == "b"
    assert text_views(changed, "title")[0] is old_title


def test_lines_end_at_line_feeds_alone_and_blank_ones_do_not_count() -> None:
    view = text_views(batch_of([{"text": "a\x0bb\n\n \u2028\na\x0bb\nc\r\nc"}]), "text")[0]
    assert view is not None
    assert view.lines == (4, 3)
