# SPDX-License-Identifier: Apache-2.0
"""`thresher simulate`, as users start it, on a profile that a real run left."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Thresher, small_folder, thresher_in


@pytest.fixture(scope="module")
def run_of_the_recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `output` of a run; made once, because nothing changes it."""
    place = small_folder(tmp_path_factory.mktemp("profiled"))
    assert thresher_in(place, "run", "recipe.yaml", "--workers", "1", "--quiet").returncode == 0
    return place / "output"


@pytest.fixture
def profiled(folder: Path, run_of_the_recipe: Path) -> Path:
    """A folder with a recipe, and `output` with a run of it."""
    shutil.copytree(run_of_the_recipe, folder / "output")
    return folder


def test_a_rehearsal_says_time_bottleneck_use_and_cost(profiled: Path, thresher: Thresher) -> None:
    ended = thresher(
        *("simulate", "recipe.yaml", "--profile", "output", "--nodes", "10", "--node", "8cpu,32GB"),
        *("--data", "10GB", "--file-size", "64MB", "--price-per-hour", "2", "--failures-per-hour", "1"),
    )
    assert ended.returncode == 0, ended.stderr
    for word in ("wall time", "throughput", "bottleneck", "per TB", "cpu", "memory", "driver", "10 with 8 CPUs"):
        assert word in ended.stdout


def test_json_is_one_object_with_everything(profiled: Path, thresher: Thresher) -> None:
    ended = thresher("simulate", "recipe.yaml", "--profile", "output", "--node", "4cpu", "--data", "1GB", "--json")
    facts = json.loads(ended.stdout)
    assert facts["status"] == "finished"
    assert facts["data_bytes"] == 10**9
    assert {use["name"] for use in facts["resources"]} == {"cpu", "memory", "driver"}
    assert facts["cost"] is None
    assert facts["wall_s"] > 0


PHASED = """name: phased
stages:
  - JsonlReader: {file_paths: input}
  - Split: {outlet: half, share: 0.5}
  - GlobalShuffle: {blocksize: 10kB}
  - JsonlWriter: {path: phased}
outlets:
  half:
    - JsonlWriter: {path: half}
"""


def test_each_phase_is_rehearsed_and_outlets_are_named(folder: Path, thresher: Thresher) -> None:
    (folder / "phased.yaml").write_text(PHASED)
    assert thresher("run", "phased.yaml", "--workers", "1", "--quiet").returncode == 0
    command = ("simulate", "phased.yaml", "--profile", "phased", "--node", "4cpu")
    ended = thresher(*command)
    assert ended.returncode == 0, ended.stderr
    assert [line.split()[:2] for line in ended.stdout.splitlines() if line.startswith("  phase ")] == [
        ["phase", "1"],
        ["phase", "2"],
    ]
    assert "not included: half. Each outlet runs afterwards" in ended.stdout
    facts = json.loads(thresher(*command, "--json", "--data", "100MB").stdout)
    assert facts["data_bytes"] == facts["phases"][0]["data_bytes"] == 100 * 10**6
    assert facts["phases"][1]["units"] > 1


def test_phases_are_rehearsed_on_given_costs(folder: Path, thresher: Thresher) -> None:
    (folder / "phased.yaml").write_text(PHASED.replace("10kB", "32MB"))
    costs = ("--cost", "Split=0.5", "--cost", "GlobalShuffle-read=1", "--data", "64GB", "--node", "10cpu", "--json")
    ended = thresher("simulate", "phased.yaml", *costs)
    assert ended.returncode == 0, ended.stderr
    walls = [phase["wall_s"] for phase in json.loads(ended.stdout)["phases"]]
    assert walls == pytest.approx([3200, 6400], rel=0.05)


def test_the_same_seed_predicts_the_same(profiled: Path, thresher: Thresher) -> None:
    command = ("simulate", "recipe.yaml", "--profile", "output", "--node", "4cpu", "--data", "100MB", "--seed", "3")
    assert thresher(*command).stdout == thresher(*command).stdout


def test_pictures_are_drawn(profiled: Path, thresher: Thresher) -> None:
    ended = thresher("simulate", "recipe.yaml", "--profile", "output", "--svg", "use.svg", "--html", "use.html")
    assert ended.returncode == 0, ended.stderr
    assert (profiled / "use.svg").read_text().startswith("<svg")
    assert "<svg" in (profiled / "use.html").read_text()


def test_costs_can_be_given_without_any_run(folder: Path, thresher: Thresher) -> None:
    ended = thresher(
        *("simulate", "recipe.yaml", "--cost", "WordCountFilter=0.5", "--data", "64GB", "--node", "10cpu", "--json")
    )
    assert ended.returncode == 0, ended.stderr
    facts = json.loads(ended.stdout)
    assert facts["wall_s"] == pytest.approx(64_000 * 0.5 / 10, rel=0.05)


def test_what_a_recipe_leaves_open_is_as_in_the_run_that_was_measured(folder: Path, thresher: Thresher) -> None:
    text = "\n".join(
        [
            "name: open",
            "params: {source: ???, target: ???, least: ???}",
            "stages:",
            '  - JsonlReader: {file_paths: "${source}"}',
            '  - WordCountFilter: {min_words: "${least}"}',
            '  - JsonlWriter: {path: "${target}"}',
        ]
    )
    (folder / "open.yaml").write_text(text)
    (folder / "in").mkdir()
    (folder / "in" / "a.jsonl").write_text('{"text": "one two three"}\n' * 50)
    ran = thresher("run", "open.yaml", "source=in", "target=out", "least=2", "--workers", "1", "--quiet")
    assert ran.returncode == 0, ran.stderr
    assert thresher("simulate", "open.yaml", "--profile", "out").returncode == 0
    refused = thresher("simulate", "open.yaml", "--cost", "WordCountFilter=1", "--data", "1GB")
    assert refused.returncode == 2
    assert "source" in refused.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), ("without --profile",)),
        (("--profile", "nowhere"), ("nowhere", "no run found")),
        (("--profile", "recipe.yaml"), ("recipe.yaml", "no run found")),
        (("--profile", "output", "--node", "lots"), ("--node", "lots", "64cpu,512GB")),
        (("--profile", "output", "--nodes", "0"), ("--nodes", "'0'")),
        (("--profile", "output", "--cost", "WordCount=1"), ("no stage 'WordCount'", "WordCountFilter")),
        (("--profile", "output", "--cost", "much"), ("--cost", "STAGE=SECONDS_PER_MB")),
        (("--profile", "output", "--data", "some"), ("--data", "'some'")),
        (("--profile", "output", "--failures-per-hour", "-1"), ("--failures-per-hour",)),
    ],
)
def test_a_wrong_question_is_refused_with_what_would_be_right(
    profiled: Path, thresher: Thresher, flags: tuple[str, ...], words: tuple[str, ...]
) -> None:
    ended = thresher("simulate", "recipe.yaml", *flags)
    assert ended.returncode == 2
    for word in words:
        assert word in ended.stderr


def test_a_profile_of_another_pipeline_is_refused(profiled: Path, thresher: Thresher) -> None:
    other = (profiled / "recipe.yaml").read_text().replace("WordCountFilter", "MeanWordLengthFilter")
    other = other.replace("{min_words: 3}", "{}").replace('{min_words: "${min_words}"}', "{}")
    (profiled / "other.yaml").write_text(other)
    ended = thresher("simulate", "other.yaml", "--profile", "output")
    assert ended.returncode == 2
    assert "another pipeline" in ended.stderr
    assert "MeanWordLengthFilter" in ended.stderr


def test_a_run_without_a_log_is_refused(profiled: Path, thresher: Thresher) -> None:
    for path in sorted((profiled / "output" / "_thresher" / "events").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    ended = thresher("simulate", "recipe.yaml", "--profile", "output")
    assert ended.returncode == 2
    assert "no event log" in ended.stderr
