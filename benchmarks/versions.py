# SPDX-License-Identifier: Apache-2.0
"""This version against another commit, by turns: copy, heuristics, tiny tasks, first file, accelerator and Ray.

    versions.py COMMIT                       everything, 5 rounds, on a quiet machine
    versions.py COMMIT --quick --repeats 9   little data, for a busy machine, where CPU seconds say more than seconds
    versions.py COMMIT --only copy rules     some of the cases

The other version runs from a `git worktree` with the same environment and the same data. Each round runs both, and the
ratios are taken round by round: above 1 this version is slower, or its accelerator idles more. CPU seconds are those of
the command and all its processes; for Ray, whose servers outlive a command, those of the whole machine. A case is worse
if this version was worse in every round, and undecided if some rounds were worse and others better.
"""

from __future__ import annotations

import argparse
import compileall
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from corpus import corpus_folder
from first_file import committed, small_input
from harness import ROOT, Command, Measurement, compile_sources, interleave, scratch, thresher_run, warm_cache
from ray_executor import several
from tables import Spread, print_table, ratios, write_results

THIS, OTHER = "this version", "other version"
HERE = Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One thing that both versions do, and the figure to compare; smaller is better."""

    title: str  # first column of the table
    command: Command  # without the version
    figure: Callable[[Measurement], float]  # what is compared


def main() -> None:
    chosen = _options()
    compile_sources()
    with _worktree(chosen.commit) as other:
        compileall.compile_dir(other / "src", quiet=1)
        cases = {name: case for name, case in _cases(chosen.quick).items() if not chosen.only or name in chosen.only}
        results: dict[str, dict[str, list[float]]] = {}
        rows = []
        for name, case in cases.items():
            print(f"  {case.title}", file=sys.stderr)
            both = [_of_version(case.command, THIS, ROOT), _of_version(case.command, OTHER, other)]
            interleave(both, 1)  # compiles kernels, where a version has none yet
            measured = interleave(both, chosen.repeats)
            found = {label: [case.figure(one) for one in runs] for label, runs in measured.items()}
            cpu = {label: [_cpu_s(case, one) for one in runs] for label, runs in measured.items()}
            results[name] = {**found, **{f"{label}, CPU s": spent for label, spent in cpu.items()}}
            over, cpu_over = ratios(found[THIS], found[OTHER]), ratios(cpu[THIS], cpu[OTHER])
            print(f"  {case.title}: {over.show(3)} of the other version, CPU {cpu_over.show(3)}", flush=True)
            spreads = [Spread.of(found[THIS]), Spread.of(found[OTHER]), over, cpu_over]
            rows.append([case.title, *(spread.show(3) for spread in spreads), _verdict(over), _verdict(cpu_over)])
    header = ["", THIS, chosen.commit, "this over other", "CPU seconds, this over other", "verdict", "on CPU"]
    print_table(f"Against {chosen.commit}, {chosen.repeats} rounds, median (min..max)", header, rows)
    write_results("versions", {"commit": chosen.commit, "results": results})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the version to compare with, as git names it")
    parser.add_argument("--only", nargs="+", help="only these cases: copy, rules, few, tiny, first, accelerator, ray-…")
    parser.add_argument("--repeats", type=int, default=5, help="rounds (default 5)")
    parser.add_argument("--quick", action="store_true", help="less data; `few`, `first` and accelerators take as long")
    return parser.parse_args()


@contextmanager
def _worktree(commit: str) -> Iterator[Path]:
    folder = scratch("other-version")
    subprocess.run(["git", "worktree", "add", "--detach", "--quiet", folder, commit], cwd=ROOT, check=True)
    try:
        yield folder
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", folder], cwd=ROOT, check=True)


def _of_version(command: Command, label: str, checkout: Path) -> Command:
    return dataclasses.replace(command, label=label, env={**command.env, "PYTHONPATH": str(checkout / "src")})


def _cpu_s(case: Case, one: Measurement) -> float:
    return one.machine_cpu_s if case.command.hides_cpu else one.cpu_s


def _verdict(over: Spread) -> str:
    """Say whether all rounds agree; `over`: figures of this version as ratios, smaller is better."""
    return "worse" if over.low > 1 else "better" if over.high < 1 else "undecided"


def _cases(quick: bool) -> dict[str, Case]:
    corpus = corpus_folder(quick)
    many = several(corpus)
    few = small_input(quick=quick)
    tasks = 2_000 if quick else 20_000
    warm_cache(corpus)
    first = scratch("versions-first")
    tiny = scratch("versions-tiny")
    cases = {
        "copy": Case("copy, s", thresher_run("", "copy", corpus, scratch("versions-copy")), _wall),
        "rules": Case("22 rules, s", thresher_run("", "english_22", corpus, scratch("versions-rules")), _wall),
        "few": Case(
            "22 rules, 1,000 documents, s", thresher_run("", "english_22", few, scratch("versions-few")), _wall
        ),
        "tiny": Case(
            f"{tasks:,} tiny tasks, s", _script("tiny_tasks_run.py", str(tasks), tiny, output=tiny), _printed("run_s")
        ),
        "first": Case(
            "first file, s",
            dataclasses.replace(thresher_run("", "copy", few, first), first_result=committed(first)),
            lambda one: one.first_result_s or one.wall_s,
        ),
    }
    for work, given in (("copy", many), ("filter", many), ("tiny", tasks)):
        folder = scratch(f"versions-ray-{work}")
        command = _script("ray_executor_run.py", work, "ray", folder, str(given), output=folder)
        cases[f"ray-{work}"] = Case(f"Ray: {work}, s", command, _printed("seconds"))
    for name, executor in (("accelerator", "local"), ("ray-accelerator", "ray")):
        folder = scratch(f"versions-{name}")
        command = _script(
            "ray_executor_run.py", "accelerator", executor, folder, "150" if quick else "600", output=folder
        )
        cases[name] = Case(f"accelerator idle on {executor}, share", command, lambda one: 1 - _printed("busy")(one))
    return cases


def _script(name: str, *arguments: str | Path, output: Path | None = None) -> Command:
    return Command("", [sys.executable, HERE / name, *arguments], output, hides_cpu=name.startswith("ray"))


def _wall(one: Measurement) -> float:
    return one.wall_s


def _printed(key: str) -> Callable[[Measurement], float]:
    return lambda one: float(json.loads(one.stdout.splitlines()[-1])[key])


if __name__ == "__main__":
    main()
