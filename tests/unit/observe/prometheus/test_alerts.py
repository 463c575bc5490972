# SPDX-License-Identifier: Apache-2.0
"""The alert rules, in the hands of promtool."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.prometheus_server import needs_prometheus
from thresher.observe.prometheus.alerts import alert_rules
from thresher.observe.prometheus.families import SPECS

RUNNING = 'thresher_run_state{job="thresher",instance="i",state="running"}'
MINUTES = 30


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    shown = "".join(f',{key}="{value}"' for key, value in labels.items())
    return {"series": f'{name}{{job="thresher",instance="i"{shown}}}', "values": values}


def running(value: int = 1) -> dict[str, str]:
    return {"series": RUNNING, "values": f"{value}x{MINUTES}"}


CASES: list[tuple[str, list[dict[str, str]], int, int]] = [
    # rule, series, minutes after which it is looked at, number of alerts
    ("ThresherStalled", [running(), series("thresher_documents_per_second", "0x30", stage="a")], 11, 1),
    ("ThresherStalled", [running(), series("thresher_documents_per_second", "0x30", stage="a")], 8, 0),
    ("ThresherStalled", [running(0), series("thresher_documents_per_second", "0x30", stage="a")], 11, 0),
    (
        "ThresherStalled",
        [
            running(),
            series("thresher_documents_per_second", "0x30", stage="a"),
            series("thresher_documents_per_second", "1x30", stage="b"),
        ],
        11,
        0,
    ),
    (
        "ThresherMemoryNearLimit",
        [running(), series("thresher_memory_bytes", "95x30"), series("thresher_memory_limit_bytes", "100x30")],
        3,
        1,
    ),
    (
        "ThresherMemoryNearLimit",
        [running(), series("thresher_memory_bytes", "80x30"), series("thresher_memory_limit_bytes", "100x30")],
        3,
        0,
    ),
    (
        "ThresherErrorShare",
        [
            running(),
            series("thresher_records_total", "10000x30", kind="read"),
            series("thresher_records_total", "300x30", kind="quarantined"),
        ],
        2,
        1,
    ),
    (
        "ThresherErrorShare",
        [
            running(),
            series("thresher_records_total", "100x30", kind="read"),
            series("thresher_records_total", "30x30", kind="quarantined"),
        ],
        2,
        0,
    ),
    (
        "ThresherAcceleratorIdle",
        [
            running(),
            series("thresher_busy_ratio", "0.2x30", stage="score"),
            series("thresher_busy_ratio", "0.2x30", stage="on a CPU"),
            series("thresher_accelerators", "2x30", stage="score"),
            series("thresher_accelerators", "0x30", stage="on a CPU"),
        ],
        11,
        1,
    ),
    (
        "ThresherAcceleratorIdle",
        [
            running(),
            series("thresher_busy_ratio", "0.9x30", stage="score"),
            series("thresher_accelerators", "2x30", stage="score"),
        ],
        11,
        0,
    ),
    ("ThresherDeviceIdle", [running(), series("thresher_gpu_busy_ratio", "0.1x30", device="local/0")], 11, 1),
    ("ThresherDeviceIdle", [running(), series("thresher_gpu_busy_ratio", "0.8x30", device="local/0")], 11, 0),
    ("ThresherWorkersLost", [running(), series("thresher_workers_lost_total", "0+1x30", stage="a")], 12, 1),
    ("ThresherWorkersLost", [running(), series("thresher_workers_lost_total", "1x30", stage="a")], 12, 0),
]


@needs_prometheus
def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(alert_rules()))
    ended = subprocess.run(
        ["promtool", "check", "rules", "rules.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{len(alert_rules()['groups'][0]['rules'])} rules found" in ended.stdout


@needs_prometheus
def test_rules_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(alert_rules()))
    rules = {rule["alert"]: rule for rule in alert_rules()["groups"][0]["rules"]}
    for number, (name, given, minute, alerts) in enumerate(CASES):
        test: dict[str, Any] = {
            "interval": "1m",
            "input_series": given,
            # The number of firing alerts, without their texts, which hold the values.
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)',
                    "eval_time": f"{minute}m",
                    "exp_samples": [{"labels": "{}", "value": alerts}],
                }
            ],
        }
        content = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]}
        (tmp_path / "test.yml").write_text(yaml.safe_dump(content))
        ended = subprocess.run(
            ["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, f"case {number}, {name}: {ended.stdout}{ended.stderr}"
    assert {name for name, _, _, alerts in CASES if alerts} == rules.keys(), "every rule has a case in which it fires"


def test_rules_ask_for_metrics_that_exist() -> None:
    names = {f"{spec.name}{'_total' if spec.kind == 'counter' else ''}" for spec in SPECS.values()}
    for rule in alert_rules()["groups"][0]["rules"]:
        asked = {word for word in _words(rule["expr"]) if word.startswith("thresher_")}
        assert asked, rule
        assert asked <= names, rule


def _words(expr: str) -> list[str]:
    return "".join(c if c.isalnum() or c == "_" else " " for c in expr).split()


@pytest.mark.parametrize("rule", alert_rules()["groups"][0]["rules"], ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["description"].endswith(".")
