# SPDX-License-Identifier: Apache-2.0
"""How numbers are shown."""

from __future__ import annotations

from thresher.core.arguments.sizes import counted


def test_a_number_has_its_noun_in_the_right_form() -> None:
    assert [counted(n, "record") for n in (0, 1, 1254)] == ["0 records", "1 record", "1,254 records"]
    assert [counted(n, "entry", "entries") for n in (1, 2)] == ["1 entry", "2 entries"]
