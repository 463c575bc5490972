# SPDX-License-Identifier: Apache-2.0
"""Errors of users' code are shown whatever their classes do."""

from __future__ import annotations

import pytest

from thresher.credentials import error_line
from thresher.stage_errors import ControlSignal, error_report, error_text, is_out_of_memory


class Mute(BaseException):
    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__


class Stopped(Exception):
    def __str__(self) -> str:
        raise ControlSignal


def test_an_error_whose_str_raises_is_named_all_the_same() -> None:
    assert error_line(Mute()) == "Mute: its text is not known, because its __str__ raised KeyboardInterrupt"
    assert "Mute" in error_report(Mute())


def test_text_that_no_file_could_hold_is_replaced() -> None:
    assert error_text(ValueError("\ud800")) == "?"
    assert error_report(ValueError("\ud800")).endswith("ValueError: ?")


def test_an_error_without_text_is_its_kind() -> None:
    assert error_line(GeneratorExit()) == "GeneratorExit"


def test_what_ends_a_call_from_outside_is_not_held_back_by_an_error() -> None:
    with pytest.raises(ControlSignal):
        error_text(Stopped())


def test_causes_that_lead_back_to_an_error_are_looked_at_once() -> None:
    first, second = RuntimeError("first"), RuntimeError("second")
    first.__cause__, second.__cause__ = second, first
    assert not is_out_of_memory(first)
    second.__cause__ = MemoryError()
    assert is_out_of_memory(first)
