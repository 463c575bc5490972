# SPDX-License-Identifier: Apache-2.0
"""The dashboard in a real browser, on real runs: live, ended, resumed, with hostile documents. Its numbers are those of
the report."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from thresher.cli.main import main
from thresher.dashboard.documents import Documents
from thresher.dashboard.run_view import RunView
from thresher.dashboard.server import DashboardServer
from thresher.ledger.score_table import load_scores

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1200,900",
)
HOSTILE = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script> \u202egnp.exe \x1b[31m"
STAGES = """\
import os
import time
from pathlib import Path

from thresher import DocumentBatch, ProcessingStage


class Gate(ProcessingStage[DocumentBatch, DocumentBatch]):
    \"\"\"Fails once on each batch, always on some records, and waits for a file before the last units.\"\"\"

    def __init__(self, folder=""):
        self.folder = folder

    def process(self, task):
        texts = task.to_pyarrow().column("text").to_pylist()
        if any("fails" in text for text in texts):
            raise ValueError("it says: fails")
        if any("wait" in text for text in texts):
            while not Path(self.folder, "open").exists():
                time.sleep(0.01)
        if any("once" in text for text in texts):
            try:
                os.mkdir(Path(self.folder, "failed-once"))
            except FileExistsError:
                return task
            raise RuntimeError("the first time it fails")
        return task
"""
RECIPE = """\
name: watched
stages:
  - JsonlReader: {{file_paths: {folder}/input, files_per_partition: 1}}
  - WordCountFilter: {{min_words: 5}}
  - {{_target_: gates.Gate, folder: {folder}}}
  - UrlsFilter
  - JsonlWriter: {{path: {folder}/output}}
"""


def write_input(folder: Path) -> None:
    """Write six files of documents: short ones, some that fail, one that fails once, one that waits, hostile ones."""
    (folder / "input").mkdir(parents=True)
    (folder / "gates.py").write_text(STAGES, encoding="utf-8")
    (folder / "recipe.yaml").write_text(RECIPE.format(folder=folder), encoding="utf-8")
    for number in range(6):
        texts = [f"{HOSTILE} word word word word word", "<script>window.hacked=1</script>"]
        texts += ["word " * n for n in range(1, 21)]
        texts += ["http://example.org/" + "a" * 200 + " a b c d e f"]
        texts += ["this one fails every time a b c"] if number in (1, 2) else []
        texts += ["once more a b c d e f"] if number == 0 else []
        texts += ["wait for it a b c d"] if number == 5 else []
        lines = [json.dumps({"id": n, "text": text}) for n, text in enumerate(texts)]
        (folder / "input" / f"{number}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def command(folder: Path, *flags: str) -> list[str]:
    """Return the command that runs the recipe."""
    own = ["run", str(folder / "recipe.yaml"), "--trust", "gates", "--workers", "2", "--max-errors", "50%"]
    kept = ["--keep-scores", "--dropped-to", str(folder / "dropped")]
    return [sys.executable, "-m", "thresher", *own, *kept, *flags]


def until(condition: Callable[[], Any], what: str) -> Any:
    """Return the first true value of a condition."""
    for _ in range(2400):
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"never happened: {what}")


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with drops, errors, a retry, and a driver that was killed in the middle."""
    folder = tmp_path_factory.mktemp("watched")
    write_input(folder)
    inbox = folder / "output" / "_thresher" / "ledger"
    with subprocess.Popen(command(folder, "--quiet"), cwd=folder, start_new_session=True) as first:
        until(lambda: inbox.exists() and sum(f.stat().st_size for f in inbox.rglob("*.json*")) > 200, "a commit")
        os.killpg(first.pid, signal.SIGKILL)
    (folder / "open").touch()
    subprocess.run(command(folder, "--quiet"), cwd=folder, check=True, timeout=200)
    return folder / "output" / "_thresher"


@contextmanager
def served(run_dir: Path) -> Iterator[str]:
    """Serve a run folder; yield the address."""
    with DashboardServer(RunView(str(run_dir))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server.url
        server.shutdown()
        thread.join()


# -- numbers ----------------------------------------------------------------------------------------------------------


def test_report_dashboard_page_and_audit_agree_on_a_resumed_run(
    resumed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = json.loads((resumed / "report.json").read_text(encoding="utf-8"))
    counts = report["counts"]
    assert counts["read"] == 6 * 23 + 4
    assert counts["quarantined"] == 2
    assert counts["read"] == counts["written"] + counts["dropped"] + counts["quarantined"]
    assert report["units_resumed"] >= 1

    state = RunView(str(resumed)).state()
    assert state["counts"] == counts
    assert state["status"] == "finished"
    assert len(state["run"]["attempts"]) == 2
    for stage, shown in zip(report["stages"], state["stages"], strict=True):
        for key in ("name", "in_docs", "out_docs", "in_bytes", "out_bytes", "dropped", "quarantined", "retries"):
            assert shown[key] == stage[key], (stage["name"], key)
        reasons = {f"{stage['name']}/{rule}": n for rule, n in shown["drop_reasons"].items()}
        assert reasons == {r: n for r, n in report["drop_reasons"].items() if r.startswith(f"{stage['name']}/")}
    assert sum(stage["retries"] for stage in state["stages"]) >= 1

    page = (resumed / "report.html").read_text(encoding="utf-8")
    for number in (counts["read"], counts["written"], counts["dropped"]):
        assert f"<b>{number:,}</b>" in page

    assert main(["audit", str(resumed), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "proven"


def test_the_last_snapshot_of_the_driver_says_the_same_as_the_report(resumed: Path) -> None:
    report = json.loads((resumed / "report.json").read_text(encoding="utf-8"))
    now = json.loads((resumed / "events" / "002" / "now.json").read_text(encoding="utf-8"))
    assert now["status"] == "finished"
    assert now["counts"] == report["counts"]
    for stage, shown in zip(report["stages"], now["stages"], strict=True):
        assert [shown[key] for key in ("in_docs", "out_docs", "dropped")] == [
            stage[key] for key in ("in_docs", "out_docs", "dropped")
        ]


def test_what_the_scores_keep_is_what_the_run_wrote(resumed: Path) -> None:
    report = json.loads((resumed / "report.json").read_text(encoding="utf-8"))
    view = RunView(str(resumed))
    outcome = load_scores(view.store, view.json("plan.json")).outcome()
    # Those that fail get their score before they fail.
    assert outcome.kept + outcome.unknown == report["counts"]["written"] + report["counts"]["quarantined"]
    found = Documents(view).what_if({"WordCountFilter.min_words": 10, "Nobody.x": 1})
    assert found["outcome"]["kept"] < found["before"]["kept"]
    assert found["command"].endswith("WordCountFilter.min_words=10 --output ANOTHER_FOLDER")


def test_the_command_of_the_sliders_writes_as_many_documents_as_they_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "input").mkdir()
    lines = [json.dumps({"text": "word " * n}) for n in range(1, 101)]
    (tmp_path / "input" / "a.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"name: kept\nstages:\n  - JsonlReader: {{file_paths: {tmp_path}/input}}\n"
        f"  - WordCountFilter: {{min_words: 5}}\n  - JsonlWriter: {{path: {tmp_path}/output}}\n",
        encoding="utf-8",
    )
    assert main(["run", str(recipe), "--executor", "serial", "--keep-scores", "--quiet"]) == 0
    view = RunView(str(tmp_path / "output" / "_thresher"))
    found = Documents(view).what_if({"WordCountFilter.min_words": 42.0})
    words = found["command"].replace("ANOTHER_FOLDER", str(tmp_path / "other")).split()
    capsys.readouterr()
    assert main([*words[1:], "--executor", "serial", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["written"] == found["outcome"]["kept"] == 59


def test_samples_have_the_reason_and_the_score_that_dropped_them(resumed: Path) -> None:
    found = Documents(RunView(str(resumed))).samples()
    for sample in found["dropped"]["WordCountFilter/WordCountFilter"]:
        assert sample["score"] < 5
    assert [hit for _, hit in found["dropped"]["UrlsFilter/UrlsFilter"][0]["parts"]] == [True, False]
    assert found["kept"]
    assert found["kept"][0]["scores"]["WordCountFilter/WordCountFilter"] >= 5


# -- in the browser ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless Chromium."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs Selenium (pip install selenium)")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs Chromium and its driver (apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    browser.set_page_load_timeout(60)
    yield browser
    browser.quit()


def text_of(browser: Any, selector: str) -> str:
    """Return the text of an element, hidden or not."""
    found: str = browser.execute_script("return document.querySelector(arguments[0])?.textContent ?? ''", selector)
    return found


def errors_of(browser: Any) -> list[str]:
    """Return what the browser complains about.

    Connections that it opens ahead may be lost before it uses them on a busy machine: no request was made on them, and
    the page asks again.
    """
    found = [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    return [message for message in found if "net::ERR_SOCKET_NOT_CONNECTED" not in message]


def select(browser: Any, name: str) -> None:
    """Choose a tab."""
    browser.find_element("id", f"tab-{name}").click()


def test_an_ended_run_is_shown_with_the_numbers_of_its_report(browser: Any, resumed: Path) -> None:
    report = json.loads((resumed / "report.json").read_text(encoding="utf-8"))
    with served(resumed) as url:
        browser.get(url)
        until(lambda: "UrlsFilter" in text_of(browser, "#stages"), "the stages are drawn")
        assert text_of(browser, "#status") == "finished"
        assert f"read{report['counts']['read']:,}" in text_of(browser, "#tiles")
        assert f"written{report['counts']['written']:,}" in text_of(browser, "#tiles")
        rows = browser.execute_script(
            "return [...document.querySelectorAll('#stages tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
        )
        assert [[row[0], row[2], row[3]] for row in rows] == [
            [stage["name"], f"{stage['in_docs']:,}", f"{stage['out_docs']:,}"] for stage in report["stages"]
        ]
        until(lambda: browser.find_elements("css selector", "#charts figure"), "the charts are drawn")
        assert errors_of(browser) == []


def test_hostile_documents_are_text_and_nothing_else(browser: Any, resumed: Path) -> None:
    with served(resumed) as url:
        browser.get(url)
        select(browser, "documents")
        until(lambda: browser.find_elements("css selector", "#samples article"), "documents are shown")
        seen = ""
        choose = (
            "const c = document.getElementById('rule'); c.value = arguments[0]; c.dispatchEvent(new Event('change'))"
        )
        for name in browser.execute_script("return [...document.getElementById('rule').options].map(o => o.value)"):
            browser.execute_script(choose, name)
            seen += text_of(browser, "#samples")
        select(browser, "errors")
        until(lambda: browser.find_elements("css selector", "#errors details"), "errors are shown")
        assert "the first time" not in text_of(browser, "#errors")
        assert "ValueError" in text_of(browser, "#errors")
        assert seen.count("<script>window.hacked=1</script>") >= 2, "one that was kept, and one that was dropped"
        assert "\\u202e" in seen
        assert "\u202e" not in seen
        assert "\x1b" not in seen
        assert browser.execute_script("return window.hacked === undefined && !document.querySelector('main img')")
        assert errors_of(browser) == []


def test_whatever_is_drawn_is_text_with_odd_characters_spelled_out(browser: Any, resumed: Path) -> None:
    draw = """
        const [text, done] = arguments;
        import("/draw.js").then((draw) => {
          const made = draw.el("p", { title: text }, text, [draw.tile(text, text, text)]);
          document.getElementById("messages").replaceChildren(made);
          done([made.textContent, made.querySelectorAll("script, img").length]);
        });
    """
    with served(resumed) as url:
        browser.get(url)
        text, elements = browser.execute_async_script(draw, HOSTILE)
        assert text.count("<script>window.hacked=1</script> \\u202egnp.exe \\u001b[31m") == 4
        assert elements == 0
        assert browser.execute_script("return window.hacked === undefined")


def test_a_slider_shows_how_many_documents_would_stay(browser: Any, resumed: Path) -> None:
    with served(resumed) as url:
        browser.get(f"{url}#thresholds")
        slider = until(
            lambda: browser.find_elements("css selector", "input[type=range][id='slider-WordCountFilter.min_words']"),
            "the sliders are there",
        )[0]
        before = text_of(browser, "#outcome")
        assert not browser.find_element("id", "command-part").is_displayed()
        slider.send_keys("\ue014" * 4)  # arrow right
        until(lambda: text_of(browser, "#outcome") != before, "the outcome changed")
        until(lambda: "WordCountFilter.min_words=9" in text_of(browser, "#command"), "the command names the threshold")
        found = Documents(RunView(str(resumed))).what_if({"WordCountFilter.min_words": 9.0})
        assert f"stay{found['outcome']['kept']:,}" in text_of(browser, "#outcome")
        assert errors_of(browser) == []


def test_tabs_work_with_the_keyboard_and_have_names(browser: Any, resumed: Path) -> None:
    with served(resumed) as url:
        browser.get(url)
        until(lambda: text_of(browser, "#status") == "finished", "the page is drawn")
        browser.find_element("id", "tab-run").send_keys("\ue014")  # arrow right
        until(lambda: browser.find_element("id", "view-documents").is_displayed(), "the next view is shown")
        assert browser.switch_to.active_element.get_attribute("id") == "tab-documents"
        browser.switch_to.active_element.send_keys("\ue010")  # End
        until(lambda: "fingerprint" in text_of(browser, "#about"), "the last view is shown")
        nameless = browser.execute_script(
            "return [...document.querySelectorAll('svg[role=img]')].filter(s => !s.getAttribute('aria-label')).length"
        )
        assert nameless == 0
        assert browser.find_element("id", "progress").get_attribute("aria-valuenow") == "100"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable_in_light_and_dark_and_on_a_phone(browser: Any, resumed: Path, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        with served(resumed) as url:
            for view in ("run", "documents", "errors", "thresholds", "about"):
                browser.get(f"{url}#{view}")
                until(lambda: text_of(browser, "#status") == "finished", "the page is drawn")
                wide = browser.execute_script("return document.documentElement.scrollWidth")
                assert wide <= 390, f"{view} needs {wide} pixels"
            back, text = browser.execute_script(
                "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
            )
        assert (luminance(back) > luminance(text)) == (scheme == "light")
        assert contrast(back, text) > 7
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def luminance(color: str) -> float:
    """Return the relative luminance of `rgb(r, g, b)`."""
    parts = [int(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, as WCAG defines it."""
    dark, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dark + 0.05)


def test_the_page_of_a_report_needs_no_script_and_shows_hostile_text(browser: Any, resumed: Path) -> None:
    browser.get(f"file://{resumed}/report.html")
    assert "UrlsFilter" in text_of(browser, "body")
    assert browser.execute_script("return document.querySelectorAll('script,link,img,iframe').length") == 0
    assert errors_of(browser) == []


def test_a_live_run_is_shown_while_it_runs(browser: Any, tmp_path: Path) -> None:
    write_input(tmp_path)
    # The messages of the run go to a file: nobody reads a pipe meanwhile.
    with (tmp_path / "messages").open("w") as messages:
        run = subprocess.Popen(command(tmp_path, "--dashboard"), cwd=tmp_path, stdout=messages, stderr=messages)
    try:
        lines = until(
            lambda: [x for x in (tmp_path / "messages").read_text().splitlines() if "dashboard: " in x], "an address"
        )
        url = lines[0].rpartition("dashboard: ")[2]
        browser.get(url)
        until(lambda: text_of(browser, "#status") == "running", "the run is shown as running")
        until(lambda: "5 of 6 units" in text_of(browser, "#eta"), "all units but the one that waits are committed")
        (tmp_path / "open").touch()
        assert run.wait(100) == 0
        until(lambda: "no answer" in text_of(browser, "#problem"), "the dashboard ends with its run")
    finally:
        (tmp_path / "open").touch()
        run.wait(100)
    with served(tmp_path / "output" / "_thresher") as url:
        browser.get(url)
        until(lambda: text_of(browser, "#status") == "finished", "the same run, ended")


def test_a_killed_run_says_so(tmp_path: Path) -> None:
    write_input(tmp_path)
    run_dir = tmp_path / "output" / "_thresher"
    with subprocess.Popen(command(tmp_path, "--quiet"), cwd=tmp_path, start_new_session=True) as run:
        until((run_dir / "run.json").exists, "the run has begun")
        view = RunView(str(run_dir))
        until(lambda: view.state()["status"] == "running", "it is shown as running")
        os.killpg(run.pid, signal.SIGKILL)
    until(lambda: view.state()["status"] == "killed", "it is shown as killed")
