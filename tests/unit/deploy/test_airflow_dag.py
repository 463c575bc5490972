# SPDX-License-Identifier: Apache-2.0
"""The DAG for Airflow, with a stand-in for Airflow: which exit codes are tried again, and which fail at once."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

DAG = Path(__file__).parents[3] / "deploy" / "airflow_dag.py"


class TryAgain(Exception):
    """Airflow tries the task again."""


class Fail(TryAgain):
    """Airflow gives the task up."""


def decorator(**_: Any) -> Callable[[Any], Any]:
    """Leaves the function as it is."""
    return lambda function: function


@pytest.fixture
def curate(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """Runs the task with a command that ends like this; gives what was run."""
    airflow, decorators, exceptions = (
        ModuleType(name) for name in ("airflow", "airflow.decorators", "airflow.exceptions")
    )
    decorators.dag = decorators.task = decorator  # type: ignore[attr-defined]
    exceptions.AirflowException, exceptions.AirflowFailException = TryAgain, Fail  # type: ignore[attr-defined]
    for module in (airflow, decorators, exceptions):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    ran: list[list[str]] = []
    code = 0

    def run(command: list[str], *, check: bool) -> SimpleNamespace:
        ran.append(command)
        return SimpleNamespace(returncode=code)

    monkeypatch.setattr(subprocess, "run", run)
    names = runpy.run_path(str(DAG))

    def call(ends_with: int) -> list[str]:
        nonlocal code
        code = ends_with
        names["curate"]("2026-01-31")
        return ran[-1]

    return call


def test_a_day_is_a_run_of_its_own(curate: Callable[[int], list[str]]) -> None:
    command = curate(0)
    assert command[:2] == ["thresher", "run"]
    assert "input_path=s3://BUCKET/raw/2026-01-31" in command


@pytest.mark.parametrize("code", [1, 130, 143, -15, -2])
def test_what_may_pass_is_tried_again(code: int, curate: Callable[[int], list[str]]) -> None:
    with pytest.raises(TryAgain) as caught:
        curate(code)
    assert type(caught.value) is TryAgain


@pytest.mark.parametrize("code", [2, 3, 4])
def test_what_never_will_pass_fails_at_once(code: int, curate: Callable[[int], list[str]]) -> None:
    with pytest.raises(Fail, match=f"ended with {code}"):
        curate(code)
