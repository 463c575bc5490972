# SPDX-License-Identifier: Apache-2.0
"""Prometheus and Grafana for the runs of this machine: configuration and processes. Nothing is downloaded."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thresher.errors import RunFailedError, UsageError
from thresher.observe.prometheus.alerts import alert_rules
from thresher.observe.prometheus.grafana import DATASOURCE, dashboard

DEFAULT_TARGET = "127.0.0.1:9464"
"""Address at which a run is expected to serve its metrics."""
LOOPBACK = "127.0.0.1"
END_S = 10.0
"""Time that a program gets to end in good order."""
LOOK_S = 0.2
_HOME_OF_GRAFANA = "/usr/share/grafana"
HOW_TO_GET = {
    "prometheus": "Debian and Ubuntu: apt-get install prometheus; others: https://prometheus.io/download/",
    "grafana": "https://grafana.com/docs/grafana/latest/setup-grafana/installation/",
}
"""Sources of the programs."""


@dataclass(frozen=True)
class Stack:
    """Addresses of the runs that are scraped and of the programs."""

    folder: Path
    """Folder for configuration, data and logs."""
    targets: tuple[str, ...] = (DEFAULT_TARGET,)
    """Addresses of runs, as `host:port`."""
    prometheus_port: int = 9090
    """Port of Prometheus on loopback."""
    grafana_port: int = 3000
    """Port of Grafana on loopback."""
    interval_s: float = 5.0
    """Time between two scrapes."""

    def files(self) -> dict[str, str]:
        """Return the files to write: path in the folder and content."""
        return {
            "prometheus.yml": _yaml(self._prometheus()),
            "thresher-alerts.yml": _yaml(alert_rules()),
            "grafana/provisioning/datasources/thresher.yml": _yaml(self._datasource()),
            "grafana/provisioning/dashboards/thresher.yml": _yaml(self._dashboards()),
            "grafana/dashboards/thresher.json": json.dumps(dashboard(), indent=2) + "\n",
        }

    def write(self) -> None:
        """Write the files; those of an earlier call are replaced."""
        try:
            for name, content in self.files().items():
                path = self.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{self.folder} cannot be written: {error.strerror or error}") from None

    def _prometheus(self) -> dict[str, Any]:
        interval = f"{round(self.interval_s * 1000)}ms"
        scrape = {"job_name": "thresher", "static_configs": [{"targets": list(self.targets)}]}
        return {
            "global": {"scrape_interval": interval, "evaluation_interval": interval},
            "rule_files": ["thresher-alerts.yml"],
            "scrape_configs": [scrape],
        }

    def _datasource(self) -> dict[str, Any]:
        source = {
            "name": "Prometheus of Thresher",
            "uid": DATASOURCE,
            "type": "prometheus",
            "access": "proxy",
            "url": f"http://{LOOPBACK}:{self.prometheus_port}",
            "jsonData": {"timeInterval": f"{self.interval_s:g}s"},
        }
        return {"apiVersion": 1, "datasources": [source]}

    def _dashboards(self) -> dict[str, Any]:
        folder = str((self.folder / "grafana" / "dashboards").absolute())
        provider = {"name": "thresher", "type": "file", "options": {"path": folder}}
        return {"apiVersion": 1, "providers": [provider]}

    # -- the programs -------------------------------------------------------------------------------------------------

    def programs(self) -> list[Program]:
        """Return the programs that are installed, as they are started."""
        found = []
        prometheus = shutil.which("prometheus")
        if prometheus is not None:
            command = [
                prometheus,
                f"--config.file={self.folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self.folder / 'prometheus-data'}",
                f"--web.listen-address={LOOPBACK}:{self.prometheus_port}",
            ]
            found.append(Program("prometheus", tuple(command), self.prometheus_port))
        server = shutil.which("grafana-server")
        grafana = [server] if server is not None else [path, "server"] if (path := shutil.which("grafana")) else None
        if grafana is not None:
            home = ["--homepath", _HOME_OF_GRAFANA] if os.path.isdir(_HOME_OF_GRAFANA) else []
            found.append(Program("grafana", (*grafana, *home), self.grafana_port, self._grafana_settings()))
        return found

    def _grafana_settings(self) -> dict[str, str]:
        """Return the environment of Grafana: on loopback everybody may look, nobody may change."""
        here = self.folder.absolute() / "grafana"
        return {
            "GF_PATHS_PROVISIONING": str(here / "provisioning"),
            "GF_PATHS_DATA": str(self.folder.absolute() / "grafana-data"),
            "GF_PATHS_LOGS": str(self.folder.absolute() / "grafana-data" / "log"),
            "GF_SERVER_HTTP_ADDR": LOOPBACK,
            "GF_SERVER_HTTP_PORT": str(self.grafana_port),
            "GF_AUTH_ANONYMOUS_ENABLED": "true",
            "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
            "GF_ANALYTICS_REPORTING_ENABLED": "false",
            "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        }


@dataclass(frozen=True)
class Program:
    """A program of the stack."""

    name: str
    """`prometheus` or `grafana`."""
    command: tuple[str, ...]
    """Command that starts it."""
    port: int
    """Its port on loopback."""
    environment: Mapping[str, str] | None = None
    """Settings, besides the environment of this process."""

    @property
    def url(self) -> str:
        """Return where to look at it."""
        return f"http://{LOOPBACK}:{self.port}" + ("/d/thresher" if self.name == "grafana" else "")


@contextlib.contextmanager
def started(programs: Sequence[Program], folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start programs, with their output in log files in the folder; end them with the block."""
    for program in programs:
        _refuse_used_port(program)
    running: list[subprocess.Popen[bytes]] = []
    try:
        for program in programs:
            with (folder / f"{program.name}.log").open("wb") as log:
                # A session of its own: Ctrl-C is for this process, which ends the programs in order.
                running.append(
                    subprocess.Popen(
                        program.command,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        env={**os.environ, **(program.environment or {})},
                        start_new_session=True,
                    )
                )
        yield running
    finally:
        _end(running)


def watch(programs: Sequence[Program], running: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
    """Wait until this process is interrupted; raise if one of the programs ends before."""
    while True:
        for program, process in zip(programs, running, strict=True):
            if process.poll() is not None:
                log = folder / f"{program.name}.log"
                last = log.read_text("utf-8", "replace").strip().splitlines()[-3:]
                raise RunFailedError(
                    f"{program.name} ended with exit code {process.returncode}; {log}: {' | '.join(last)}"
                )
        time.sleep(LOOK_S)


def _end(running: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in running:
        process.terminate()
    end = time.monotonic() + END_S
    for process in running:
        try:
            process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _refuse_used_port(program: Program) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, program.port))
        except OSError as error:
            raise UsageError(
                f"{program.name} cannot listen on {LOOPBACK}:{program.port}: {error.strerror or error}; "
                f"choose another port with --{program.name}-port"
            ) from None


def _yaml(content: Any) -> str:
    import yaml

    text: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000)
    return f"# Written by `thresher monitor up`; the next one replaces it.\n{text}"
