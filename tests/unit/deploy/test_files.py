# SPDX-License-Identifier: Apache-2.0
"""The files of `deploy/` and the commands of docs/cluster.md: what can be known about them without a cluster."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from thresher.cli import main as cli
from thresher.cli.arguments import EXECUTOR_NAMES, Parser
from thresher.core.registry import EXECUTORS, EXTRAS

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
PAGE = ROOT / "docs" / "cluster.md"
SCRIPTS = sorted(DEPLOY.glob("*.sh"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)


def text_of(path: Path) -> str:
    """Without comments, and with long commands on one line."""
    return COMMENT.sub("", path.read_text(encoding="utf-8")).replace("\\\n", " ")


def commands(program: str) -> list[str]:
    """Every call of a program: in the page's samples, the scripts, the manifests."""
    samples = "\n".join(CONSOLE.findall(PAGE.read_text(encoding="utf-8")))
    cluster, job = read("ray-cluster.yaml"), read("rayjob.yaml")
    lines = [
        *samples.splitlines(),
        *(line for script in SCRIPTS for line in text_of(script).splitlines()),
        *cluster["head_start_ray_commands"],
        *cluster["worker_start_ray_commands"],
        job["spec"]["entrypoint"],
    ]
    # `--executor ray` is no call of it, and neither is its name in a path.
    found = [re.search(rf"(?<!--executor)(?:^|[\s/']){program} ([a-z][^'|;&>]*)", line) for line in lines]
    return [f"{program} {match[1].strip()}" for match in found if match is not None]


def read(name: str) -> Any:
    """A manifest."""
    return yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))


# -- commands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [line for line in commands("thresher") if line.startswith("thresher run")])
def test_a_command_of_ours_is_one_that_the_command_line_takes(command: str) -> None:
    _, name, *arguments = shlex.split(command.replace('"$@"', "recipe.yaml").replace("$head_ip:$port", "host:1"))
    module = cli.__dict__.get(name) or __import__(f"thresher.cli.commands.{name}", fromlist=["add_arguments"])
    parser = Parser(prog=f"thresher {name}", description="")
    module.add_arguments(parser)
    parsed = parser.parse(arguments)
    assert parsed.executor in EXECUTORS
    assert parsed.recipe.endswith(".yaml")


def test_commands_are_found_in_the_page_the_script_and_the_job() -> None:
    assert len(commands("thresher")) >= 7
    assert len(commands("ray")) >= 8


@pytest.mark.parametrize("command", commands("ray"))
def test_a_command_of_ray_is_one_that_it_takes(command: str) -> None:
    scripts = pytest.importorskip("ray.scripts.scripts", reason="needs the extra `ray`")
    _, name, *arguments = shlex.split(command)
    found = scripts.cli.commands[name]
    legal = {flag for parameter in found.params for flag in parameter.opts}
    given = {argument.partition("=")[0] for argument in arguments if argument.startswith("--")}
    assert given <= legal, f"{sorted(given - legal)} is unknown to `ray {name}`"


def test_every_executor_is_told_by_help_and_by_the_page() -> None:
    assert re.findall(r"[a-z-]+", EXECUTOR_NAMES.replace("(default)", "").replace(" or ", " ")) == list(EXECUTORS)
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in page for name in EXECUTORS if name not in ("local", "serial"))


@pytest.mark.parametrize("name", [path.name for path in sorted(DEPLOY.iterdir()) if path.is_file()])
def test_the_page_tells_of_every_file(name: str) -> None:
    assert f"(../deploy/{name})" in PAGE.read_text(encoding="utf-8")


# -- scripts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_has_no_fault_of_syntax_and_may_be_run(script: Path) -> None:
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert script.stat().st_mode & 0o111


@pytest.mark.parametrize(
    ("codes", "ended", "calls"),
    [
        ([0], 0, 1),
        ([1, 1, 0], 0, 3),
        ([1, 1, 1, 1], 1, 3),
        ([2], 2, 1),
        ([1, 3], 3, 2),
        ([4], 4, 1),
        ([143], 143, 1),
    ],
)
def test_a_run_is_repeated_while_its_exit_code_says_that_this_helps(
    codes: list[int], ended: int, calls: int, tmp_path: Path
) -> None:
    (tmp_path / "codes").write_text("\n".join(map(str, codes)) + "\n")
    body = 'n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) > n; exit "$(sed -n "$((n + 1))p" codes)"'
    done = subprocess.run(
        [str(DEPLOY / "run-until-done.sh"), "bash", "-c", body],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "ATTEMPTS": "3", "WAIT_S": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ended, done.stderr
    assert int((tmp_path / "n").read_text()) == calls


# -- manifests --------------------------------------------------------------------------------------------------------


def test_the_cluster_of_ray_up_fits_its_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="checks the schema of `ray up`")
    ray = pytest.importorskip("ray", reason="needs the extra `ray`")
    schema = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(read("ray-cluster.yaml"), schema)


def test_the_head_of_ray_up_watches_over_the_cluster_and_its_workers_find_it() -> None:
    cluster = read("ray-cluster.yaml")
    assert {"type", "head_ip", "worker_ips"} == set(cluster["provider"])
    assert "--autoscaling-config=~/ray_bootstrap_config.yaml" in cluster["head_start_ray_commands"][-1]
    assert "--address=$RAY_HEAD_IP:6379" in cluster["worker_start_ray_commands"][-1]
    assert "--port=6379" in cluster["head_start_ray_commands"][-1]


def test_the_job_of_kuberay_has_what_kuberay_needs() -> None:
    job = read("rayjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert job["metadata"].get("name") or job["metadata"]["generateName"]
    spec = job["spec"]
    assert spec["shutdownAfterJobFinishes"] is True
    assert spec["backoffLimit"] > 0, "the same command goes on after a failure"
    cluster = spec["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in cluster["workerGroupSpecs"]:
        assert group["groupName"]
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in groups:
        assert "rayStartParams" in group
        pod = group["template"]["spec"]
        [container] = pod["containers"]
        assert container["image"] == groups[0]["template"]["spec"]["containers"][0]["image"]
        assert container["resources"]["limits"]["memory"]
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        assert "/dev/shm" in {mount["mountPath"] for mount in container["volumeMounts"]}


def test_the_image_copies_what_is_there_and_has_the_ray_of_the_manifest() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    copied = [name for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for name in line.split()[:-1]]
    assert copied
    assert all((ROOT / name).exists() for name in copied)
    found = re.search(r"^ARG RAY_VERSION=(\S+)$", text, re.MULTILINE)
    assert found is not None
    assert read("rayjob.yaml")["spec"]["rayClusterSpec"]["rayVersion"] == found[1]
    extras = re.search(r"^ARG EXTRAS=(\S+)$", text, re.MULTILINE)
    assert extras is not None
    assert {"ray", *extras[1].split(",")} <= set(PROJECT["optional-dependencies"])


def test_the_extras_of_executors_are_there_and_this_ray_is_one_of_them() -> None:
    packaging = pytest.importorskip("packaging.requirements", reason="reads requirements")
    assert set(EXTRAS.values()) <= set(PROJECT["optional-dependencies"])
    requirements = map(packaging.Requirement, PROJECT["optional-dependencies"]["ray"])
    [wanted] = [requirement for requirement in requirements if requirement.name == "ray"]
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert wanted.specifier.contains(re.search(r"RAY_VERSION=(\S+)", text)[1])  # type: ignore[index]
    pytest.importorskip("ray", reason="needs the extra `ray`")
    assert wanted.specifier.contains(importlib.metadata.version("ray"))
