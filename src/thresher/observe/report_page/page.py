# SPDX-License-Identifier: Apache-2.0
"""Put the page of a report together: plain HTML with its style and pictures inside, and no script."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from thresher.core.arguments.sizes import counted, show_size
from thresher.observe.bottleneck import Advice, advise
from thresher.observe.event_log import Moment
from thresher.observe.figures import duration, megabytes, percent, short, whole
from thresher.observe.report_page.svg import Curve, Histogram, bar, chart, histogram, shown

MOST_ROWS = 200
"""Rows of a table; the rest is in report.json."""
MOST_BARS = 24
"""Bars of a chart of a stage over the whole corpus."""
MOST_CHARTS = 40
"""Charts of stages over the whole corpus."""
MOST_RECIPE = 60_000
"""Characters of a recipe that are shown."""

STYLE = """
:root{color-scheme:light dark;--bg:#fbfbf9;--fg:#1d2330;--dim:#667085;--line:#e2e4e9;--card:#fff;--kept:#2f7d6d;
--dropped:#d98f2b;--quarantined:#c0453b;--c1:#2f6fb3;--c2:#8a5bb5;--good:#2f7d6d;--bad:#c0453b}
@media(prefers-color-scheme:dark){:root{--bg:#14171d;--fg:#e6e8ec;--dim:#98a1b0;--line:#2b303a;--card:#1b1f27;
--kept:#4db39d;--dropped:#e0a34a;--quarantined:#e0746a;--c1:#6aa5e3;--c2:#b78fe0;--good:#4db39d;--bad:#e0746a}}
*{box-sizing:border-box}body{margin:0 auto;max-width:1060px;padding:24px 20px 60px;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1{font-size:24px;margin:0}h2{font-size:17px;margin:34px 0 10px}small,.dim{color:var(--dim)}
.status{font-weight:600}.finished,.nothing-to-do{color:var(--good)}.failed,.stopped{color:var(--bad)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:10px;margin:18px 0}
.tile{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 12px}
.tile b{display:block;font-size:20px;font-variant-numeric:tabular-nums}
.advice{border-left:4px solid var(--c1);background:var(--card);padding:10px 14px;border-radius:0 8px 8px 0}
.warning{border-left-color:var(--dropped)}.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:4px 6px;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child,.left{text-align:left}td.text{white-space:normal;overflow-wrap:anywhere;text-align:left}
th{color:var(--dim);font-weight:500}td.why{font-size:13px;color:var(--dim);text-align:left;white-space:normal;padding-left:22px}
svg{display:block;width:100%;height:auto}svg text{fill:var(--dim);font-size:11px}svg.bar{width:130px;height:12px;
background:var(--line);border-radius:3px}figure{margin:0 0 16px;background:var(--card);border:1px solid var(--line);
border-radius:8px;padding:10px 12px}figcaption{margin-bottom:6px}.grid{stroke:var(--line)}
path.c1,path.c2,path.limit{fill:none;stroke-width:1.6}path.c1{stroke:var(--c1)}path.c2{stroke:var(--c2)}
path.limit{stroke:var(--bad);stroke-dasharray:5 4}.key{font-size:12px;color:var(--dim);margin-left:10px}
.key::before{content:"";display:inline-block;width:12px;height:3px;margin:0 5px 3px 0;vertical-align:middle}
.key.c1::before{background:var(--c1)}.key.c2::before{background:var(--c2)}.key.limit::before{background:var(--bad)}
.kept{fill:var(--kept)}.dropped{fill:var(--dropped)}.quarantined{fill:var(--quarantined)}.other{fill:var(--c2)}
.bound{stroke:var(--fg);stroke-dasharray:3 2}.smalls{display:grid;grid-template-columns:repeat(auto-fill,minmax(290px,
1fr));gap:12px}.pairs{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(440px,100%),1fr));
gap:12px}.pairs figure{margin:0}.small{margin:0}.small small{display:block}
pre{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px;
overflow-x:auto;font-size:13px}code{font-family:ui-monospace,"DejaVu Sans Mono",monospace}summary{cursor:pointer}
@media print{body{max-width:none}details{display:block}}
"""


@dataclass(frozen=True)
class PageFacts:
    """Facts that a page shows besides the report."""

    run: Mapping[str, Any] = field(default_factory=dict)
    """Content of `run.json`."""
    plan: Mapping[str, Any] = field(default_factory=dict)
    """Content of `plan.json`."""
    recipe: str = ""
    """Content of `recipe.yaml`; empty for a pipeline that was built in Python."""
    timelines: Sequence[Sequence[Moment]] = ()
    """The timeline of each attempt, oldest first."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Input file of slow units."""
    histograms: Sequence[Histogram] = ()
    """Scores of rules, if they were kept and read."""
    histogram_note: str = ""
    """Why there are none, or what they are of."""
    system: str = ""
    """The machine."""


def report_page(report: Mapping[str, Any], facts: PageFacts) -> str:
    """Return the page of a report."""
    moments = joined(facts.timelines)
    advice = advise(report, facts.plan, most_workers(moments))
    parts = [
        _head(report, facts),
        _tiles(report),
        _advice(report, advice),
        _funnel(report),
        _timeline(report, moments),
        _scores(facts),
        _charts(report),
        _errors(report),
        _slowest(report, facts),
        _environment(report, facts),
    ]
    title = f"{shown(report['name'], 80)} · report"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width,initial-scale=1"><meta http-equiv="Content-Security-Policy" '
        'content="default-src \'none\';style-src \'unsafe-inline\'"><meta name="referrer" content="no-referrer">'
        f"<title>{title}</title><style>{STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def joined(timelines: Sequence[Sequence[Moment]]) -> list[Moment]:
    """Return the timelines of all attempts as one, each behind the other."""
    found: list[Moment] = []
    begin = 0.0
    for moments in timelines:
        found += [_at(moment, moment.t + begin) for moment in moments] if begin else moments
        begin = found[-1].t if found else 0.0
    return found


def _at(moment: Moment, t: float) -> Moment:
    return Moment(**{**{name: getattr(moment, name) for name in moment.__struct_fields__}, "t": t})


def most_workers(moments: Sequence[Moment]) -> list[int]:
    """Return the most workers that could run each stage at a time."""
    counts: list[int] = []
    for moment in moments:
        counts += [0] * (len(moment.stages) - len(counts))
        for number, stage in enumerate(moment.stages):
            counts[number] = max(counts[number], stage.workers_total)
    return counts


def rates(moments: Sequence[Moment], field: str) -> list[float]:
    """Return the change per second of a counter, at each moment; a counter that starts over gives 0."""
    found = [0.0]
    for before, now in itertools.pairwise(moments):
        seconds = now.t - before.t
        found.append(max(0.0, (getattr(now, field) - getattr(before, field)) / seconds) if seconds > 0 else 0.0)
    return found


# -- sections ---------------------------------------------------------------------------------------------------------


def _head(report: Mapping[str, Any], facts: PageFacts) -> str:
    attempts = facts.run.get("attempts") or [{}]
    when = (
        f"{shown(str(attempts[0].get('start', '')).replace('T', ' ')[:19])} UTC · " if attempts[0].get("start") else ""
    )
    many = f" · attempt {len(attempts)}" if len(attempts) > 1 else ""
    error = f'<p class="advice warning">{shown(report["error"], 2000)}</p>' if report["error"] else ""
    status = shown(report["status"])
    return (
        f'<header><h1>{shown(report["name"], 80)}</h1><p><span class="status {status}">{status}</span> in '
        f'{duration(report["wall_s"])} <span class="dim">· {when}run {shown(report["run_id"])} · '
        f"{shown(report['executor'])}{many}</span></p>{error}</header>"
    )


def _tiles(report: Mapping[str, Any]) -> str:
    counts, wall_s = report["counts"], report["wall_s"]
    came = counts["read"] + counts["created"]
    nbytes = report["stages"][0]["in_bytes"] or report["stages"][0]["out_bytes"] if report["stages"] else 0
    tiles = [("read", whole(counts["read"]), show_size(nbytes))]
    tiles += [("created", whole(counts["created"]), "by stages")] if counts["created"] else []
    for name in ("written", "dropped", "quarantined", "merged", "sent"):
        if counts.get(name) or name in ("written", "dropped", "quarantined"):
            tiles.append((name, whole(counts.get(name, 0)), percent(counts.get(name, 0) / came if came else None)))
    if wall_s > 0 and not report["units_resumed"]:
        tiles.append(("docs/s", short(counts["read"] / wall_s), f"{megabytes(nbytes / wall_s)} MB/s"))
    limit = report["memory_limit_bytes"]
    if report["peak_memory_bytes"]:
        tiles.append(("peak memory", show_size(report["peak_memory_bytes"]), f"of {show_size(limit)}" if limit else ""))
    units = f"{report['units_resumed']:,} by earlier attempts" if report["units_resumed"] else "all in this attempt"
    tiles.append(("units", whole(report["units_total"]), units))
    inside = "".join(
        f'<div class="tile"><small>{name}</small><b>{shown(value)}</b><small>{shown(more)}</small></div>'
        for name, value, more in tiles
    )
    return f'<div class="tiles">{inside}</div>'


def _advice(report: Mapping[str, Any], advice: Advice) -> str:
    lines = [f'<p class="advice">{shown(advice.text)}</p>']
    adds_up = (
        "The counts add up: every record is accounted for."
        if report["counts_add_up"]
        else ("The counts do not add up: please report this.")
    )
    lines += [f'<p class="advice warning">{shown(text)}</p>' for text in report.get("warnings", [])[:MOST_ROWS]]
    return f'<h2>In short</h2>{"".join(lines)}<p class="dim">{adds_up}</p>'


def _funnel(report: Mapping[str, Any]) -> str:
    stages = report["stages"]
    busy_s = sum(stage["busy_s"] for stage in stages) or 1.0
    top = max((stage["in_docs"] or stage["out_docs"] for stage in stages), default=0) or 1
    reasons: dict[str, list[str]] = {}
    for key, kind in (("drop_reasons", ""), ("quarantine_reasons", "quarantined: ")):
        for reason, n in report[key].items():
            stage, _, rule = reason.partition("/")
            if kind or rule != stage:
                reasons.setdefault(stage, []).append(f"{kind}{rule} {whole(n)}")
    rows = []
    for stage in stages[:MOST_ROWS]:
        came = stage["in_docs"] or stage["out_docs"]
        lost = stage["dropped"] + stage["quarantined"]
        parts = [
            ("kept", max(0, came - lost) / top),
            ("dropped", stage["dropped"] / top),
            ("quarantined", stage["quarantined"] / top),
        ]
        nbytes = stage["in_bytes"] or stage["out_bytes"]
        speed = megabytes(nbytes / stage["busy_s"]) if stage["busy_s"] >= 0.001 else "-"
        label = f"{came:,} in, {stage['dropped']:,} dropped, {stage['quarantined']:,} quarantined"
        rows.append(
            f"<tr><td>{shown(stage['name'], 60)}</td><td>{bar(parts, label)}</td><td>{whole(stage['in_docs'])}</td>"
            f"<td>{whole(stage['out_docs'])}</td><td>{whole(stage['dropped'])}</td><td>{whole(stage['quarantined'])}</td>"
            f"<td>{megabytes(stage['in_bytes'])}</td><td>{megabytes(stage['out_bytes'])}</td>"
            f"<td>{percent(stage['busy_s'] / busy_s)}</td><td>{speed}</td></tr>"
        )
        if stage["name"] in reasons:
            rows.append(f'<tr><td class="why" colspan="10">{shown(", ".join(reasons[stage["name"]]), 600)}</td></tr>')
    heads = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("stage", "", "in", "out", "dropped", "quarantined", "MB in", "MB out", "time", "MB/s")
    )
    more = f'<p class="dim">and {len(stages) - MOST_ROWS} more stages</p>' if len(stages) > MOST_ROWS else ""
    return (
        f'<h2>Stages</h2><div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
        f'</div>{more}<p class="dim">Time is the share of all time spent in stages; MB/s is the speed of the '
        "stage's own code on one worker.</p>"
    )


def _timeline(report: Mapping[str, Any], moments: Sequence[Moment]) -> str:
    if len(moments) < 3:
        return ""
    times = [moment.t for moment in moments]
    docs = Curve("documents", rates(moments, "docs"), "c1")
    nbytes = Curve("MB", [rate / 1e6 for rate in rates(moments, "nbytes")], "c2")
    memory = [Curve("used", [moment.memory / 1e9 for moment in moments], "c1")]
    memory.append(Curve("between stages", [moment.inflight / 1e9 for moment in moments], "c2"))
    limit = report["memory_limit_bytes"] / 1e9
    near = max(memory[0].values) > 0.3 * limit
    memory += [Curve("limit", [limit] * len(times), "limit")] if limit and near else []
    workers = [Curve("set up", [float(moment.workers) for moment in moments], "c2")]
    workers.append(Curve("busy", [float(moment.busy) for moment in moments], "c1"))
    note = f'<p class="dim">The memory limit is {show_size(limit * 1e9)}.</p>' if limit and not near else ""
    return (
        f'<h2>Over time</h2><div class="pairs">{chart("Documents read", times, [docs], "a second")}'
        f"{chart('Data read', times, [nbytes], 'MB a second')}{chart('Memory', times, memory, 'GB')}"
        f"{chart('Workers', times, workers)}</div>{note}"
    )


def _scores(facts: PageFacts) -> str:
    if not facts.histograms and not facts.histogram_note:
        return ""
    drawn = "".join(histogram(found) for found in facts.histograms)
    return f'<h2>Scores</h2><p class="dim">{shown(facts.histogram_note)}</p><div class="smalls">{drawn}</div>'


def _charts(report: Mapping[str, Any]) -> str:
    found = []
    for stage in report["stages"]:
        for name, bars in stage.get("charts", {}).items():
            most = max((one["n"] for one in bars), default=0) or 1
            rows = "".join(
                f"<tr><td>{shown(one['bar'], 60)}</td><td>{_corpus_bar(one, most)}</td><td>{whole(int(one['n']))}</td>"
                f'<td class="left dim">{shown(_parts_text(one))}</td></tr>'
                for one in bars[:MOST_BARS]
            )
            rest = f'<p class="dim">and {len(bars) - MOST_BARS:,} more</p>' if len(bars) > MOST_BARS else ""
            who = stage["name"].removesuffix("-read")
            found.append(
                f'<figure><figcaption>{shown(who, 60)}: {shown(name, 120)}</figcaption><div class="wide"><table>{rows}'
                f"</table></div>{rest}</figure>"
            )
    if len(found) > MOST_CHARTS:
        found[MOST_CHARTS:] = [f'<p class="dim">and {len(found) - MOST_CHARTS:,} more charts</p>']
    return f"<h2>Over the whole corpus</h2><div class='pairs'>{''.join(found)}</div>" if found else ""


def _corpus_bar(one: Mapping[str, Any], most: int) -> str:
    kinds = {"kept": "kept", "dropped": "dropped", "copied": "other"}
    parts = one.get("parts") or {"kept": one["n"]}
    return bar([(kinds.get(part, "other"), n / most) for part, n in parts.items()], f"{one['bar']}: {one['n']}")


def _parts_text(one: Mapping[str, Any]) -> str:
    return ", ".join(f"{part} {n:,}" for part, n in (one.get("parts") or {}).items() if part)


def _errors(report: Mapping[str, Any]) -> str:
    if not report["quarantine_reasons"]:
        return ""
    examples = report.get("quarantine_examples", {})
    rows = "".join(
        f"<tr><td>{shown(reason, 120)}</td><td>{whole(n)}</td>"
        f'<td class="text">{shown(examples.get(reason, ""))}</td></tr>'
        for reason, n in list(report["quarantine_reasons"].items())[:MOST_ROWS]
    )
    return (
        '<h2>Quarantined</h2><div class="wide"><table><thead><tr><th>stage / error</th><th>records</th>'
        f'<th class="left">for example</th></tr></thead><tbody>{rows}</tbody></table></div>'
        f'<p class="dim"><code>thresher quarantine {shown(report["run_dir"])}</code> lists them with their '
        "tracebacks.</p>"
    )


def _slowest(report: Mapping[str, Any], facts: PageFacts) -> str:
    units = report.get("slowest_units") or []
    if not units:
        return ""
    rows = "".join(
        f'<tr><td class="text">{shown(facts.sources.get(unit["unit"], ""), 200)}</td><td>{shown(unit["unit"])}</td>'
        f"<td>{duration(unit['busy_s'])}</td><td>{whole(unit['read'])}</td><td>{whole(unit['written'])}</td></tr>"
        for unit in units
    )
    return (
        '<h2>Slowest inputs</h2><div class="wide"><table><thead><tr><th>file</th><th>unit</th><th>time in stages</th>'
        f"<th>read</th><th>written</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _environment(report: Mapping[str, Any], facts: PageFacts) -> str:
    attempts = facts.run.get("attempts") or []
    rows = [
        ("run folder", report["run_dir"]),
        ("fingerprint", facts.run.get("fingerprint", "")),
        ("machine", facts.system),
    ]
    rows.append(("versions", ", ".join(f"{name} {version}" for name, version in report["versions"].items())))
    for one in attempts[-20:]:
        ended = "" if one.get("exit_code") is None else f", {one.get('status')}, exit code {one['exit_code']}"
        began = str(one.get("start", "")).replace("T", " ")[:19]
        rows.append((f"attempt {one.get('number')}", f"{began} UTC on {one.get('host')}, {one.get('executor')}{ended}"))
    outputs = report["output_paths"]
    if outputs:
        rows.append(("output", f"{counted(len(outputs), 'file')}, the first is {outputs[0]}"))
    if report["dropped_to"]:
        rows.append(("dropped records", report["dropped_to"]))
    table = "".join(
        f'<tr><td>{shown(name)}</td><td class="text">{shown(value)}</td></tr>' for name, value in rows if value
    )
    recipe = ""
    if facts.recipe:
        cut = shown(facts.recipe[:MOST_RECIPE], MOST_RECIPE).replace("\\u000a", "\n")
        recipe = f"<details open><summary>Recipe, as it was resolved</summary><pre><code>{cut}</code></pre></details>"
    where = shown(report["run_dir"])
    last = report["stages"][-1]["name"] if report["stages"] else "JsonlWriter"
    again = (
        f"thresher run {where}/recipe.yaml {shown(last)}.path=ANOTHER_FOLDER"
        if facts.recipe
        else ("run the script that built this pipeline again")
    )
    return (
        f"<h2>Environment</h2><table>{table}</table><h2>How to reproduce</h2><pre><code>{again}\n"
        f"thresher audit {where}\nthresher replay {where}</code></pre>{recipe}"
    )
