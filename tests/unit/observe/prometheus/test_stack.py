# SPDX-License-Identifier: Apache-2.0
"""What `thresher monitor up` writes and starts. Prometheus is a real one; no Grafana can be had here, so a program that
records how it was called stands in its place."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.prometheus_server import Prometheus, free_port, needs_prometheus
from thresher.errors import UsageError
from thresher.observe.prometheus.grafana import DATASOURCE, dashboard, queries
from thresher.observe.prometheus.stack import Program, Stack, started


def fake_program(folder: Path, name: str) -> None:
    """A program that writes its arguments and settings to `<name>.json`, and waits."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys, time\n"
        "given = {k: v for k, v in os.environ.items() if k.startswith('GF_')}\n"
        f"open({str(folder / f'{name}.json')!r}, 'w').write(json.dumps([sys.argv[1:], given]))\n"
        "time.sleep(600)\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@needs_prometheus
def test_promtool_accepts_the_configuration(tmp_path: Path) -> None:
    Stack(tmp_path, ("127.0.0.1:9464", "127.0.0.1:9465")).write()
    command = ["promtool", "check", "config", "prometheus.yml"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_provisioning_of_grafana_leads_to_the_dashboard_and_to_prometheus(tmp_path: Path) -> None:
    Stack(tmp_path, prometheus_port=9191).write()
    sources = yaml.safe_load((tmp_path / "grafana/provisioning/datasources/thresher.yml").read_text())
    assert sources["datasources"][0]["uid"] == DATASOURCE
    assert sources["datasources"][0]["url"] == "http://127.0.0.1:9191"
    (provider,) = yaml.safe_load((tmp_path / "grafana/provisioning/dashboards/thresher.yml").read_text())["providers"]
    (path,) = Path(provider["options"]["path"]).glob("*.json")
    assert json.loads(path.read_text()) == dashboard()


def test_the_dashboard_has_no_panel_twice_at_one_place_and_one_target_for_each_query() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert [t["expr"] for panel in panels for t in panel.get("targets", [])] == queries()
    assert {t["datasource"]["uid"] for panel in panels for t in panel.get("targets", [])} == {DATASOURCE}


def test_a_port_in_use_is_refused_with_the_flag(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        program = Program("grafana", ("true",), taken.getsockname()[1])
        with pytest.raises(UsageError, match="choose another port with --grafana-port"), started([program], tmp_path):
            pass


@needs_prometheus
def test_monitor_up_starts_both_programs_and_ctrl_c_ends_them(tmp_path: Path) -> None:
    fake_program(tmp_path / "bin", "grafana-server")
    ports = free_port(), free_port()
    command = [sys.executable, "-m", "thresher", "monitor", "up", str(tmp_path / "m")]
    command += ["--prometheus-port", str(ports[0]), "--grafana-port", str(ports[1])]
    env = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    server = Prometheus(ports[0])
    server.wait_until_ready()
    server._wait((tmp_path / "bin" / "grafana-server.json").exists, 60)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"prometheus: http://127.0.0.1:{ports[0]}" in err
    assert f"grafana: http://127.0.0.1:{ports[1]}/d/thresher" in err
    assert str(tmp_path / "m" / "thresher-alerts.yml") in out
    _, settings = json.loads((tmp_path / "bin" / "grafana-server.json").read_text())
    assert settings["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert settings["GF_SERVER_HTTP_PORT"] == str(ports[1])
    assert settings["GF_PATHS_PROVISIONING"] == str(tmp_path / "m" / "grafana" / "provisioning")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", ports[0]), timeout=5)


def test_a_program_that_fails_ends_monitor_up_with_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    path = tmp_path / "bin" / "prometheus"
    path.write_text("#!/bin/sh\necho no room for me\nexit 3\n")
    path.chmod(0o755)
    command = [sys.executable, "-m", "thresher", "monitor", "up", str(tmp_path / "m")]
    command += ["--prometheus-port", str(free_port())]
    env = {**os.environ, "PATH": f"{tmp_path / 'bin'}:/bin"}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "prometheus ended with exit code 3" in ended.stderr
    assert "no room for me" in ended.stderr


def test_without_prometheus_the_files_are_written_and_the_way_to_it_is_shown(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "thresher", "monitor", "up", str(tmp_path / "m")]
    env = {**os.environ, "PATH": str(tmp_path)}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "apt-get install prometheus" in ended.stderr
    assert "grafana is not installed" in ended.stderr
    assert (tmp_path / "m" / "prometheus.yml").exists()
