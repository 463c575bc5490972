// SPDX-License-Identifier: Apache-2.0
// The dashboard: asks for the state of the run every second while it runs, and draws what changed.

import { chart, clock, el, flow, gantt, percent, put, ruleName, short, size, svg, tile, whole } from "/draw.js";
import { showThresholds } from "/thresholds.js";

const LIVE_MS = 1000, SLOW_MS = 3000, ENDED_MS = 15000;
const byId = (id) => document.getElementById(id);
let state = null, view = "run", timer = 0, drawnAt = 0;

async function ask(address) {
  const answer = await fetch(address, { cache: "no-store", credentials: "same-origin" });
  if (!answer.ok) throw new Error(`${answer.status}: ${(await answer.text()).slice(0, 200)}`);
  return answer.json();
}

async function tick() {
  clearTimeout(timer);
  let wait = ENDED_MS;
  try {
    if (!document.hidden) {
      state = await ask("/api/state");
      showHead(state);
      if (view === "run" && state.stages) await showRun(state);
      if (view === "about" && state.run) showAbout(state);
      byId("problem").hidden = !state.error;
      if (state.error) put("problem", state.error);
    }
    wait = ["running", "waiting", "silent"].includes(state?.status) ? LIVE_MS : ENDED_MS;
  } catch (error) {
    put("problem", `no answer from the dashboard (${error.message}); it may have ended`);
    byId("problem").hidden = false;
    wait = SLOW_MS;
  }
  timer = setTimeout(tick, wait);
}

// -- head ---------------------------------------------------------------------------------------------------------------

const STATES = { waiting: "waiting for the run to begin", killed: "killed: nothing says that it ended", silent: "no sign of life" };

function showHead(state) {
  const name = state.run?.name ?? "Thresher";
  document.title = `${name} · ${state.status}`;
  put("name", name);
  const status = byId("status");
  if (status.dataset.status !== state.status) {
    status.dataset.status = state.status;
    status.className = `status ${state.status}`;
    put("status", STATES[state.status] ?? state.status);
  }
  if (!state.run) return;
  put("where", `${state.run.folder} · run ${state.run.id}`);
  const bar = byId("progress"), share = state.progress_ratio;
  bar.firstElementChild.style.width = `${100 * (share ?? 0)}%`;
  if (share === null || share === undefined) bar.removeAttribute("aria-valuenow");
  else bar.setAttribute("aria-valuenow", Math.round(100 * share));
  const phase = state.phases > 1 ? ` · phase ${state.phase} of ${state.phases}` : "";
  const units = `${whole(state.units_done)} of ${state.listing_complete ? "" : "at least "}${whole(state.units_listed)} units committed`;
  const eta = state.status === "running" && state.eta_s !== null && state.eta_s !== undefined ? ` · about ${clock(state.eta_s)} left` : "";
  const earlier = state.units_resumed ? `, ${whole(state.units_resumed)} by earlier attempts` : "";
  put("eta", `${share === null || share === undefined ? "listing the input" : percent(share)} · ${units}${earlier}${phase} · ${clock(state.elapsed_s)}${eta}`);
}

// -- the run ------------------------------------------------------------------------------------------------------------

async function showRun(state) {
  const counts = state.counts ?? {}, stages = state.stages, came = (counts.read ?? 0) + (counts.created ?? 0);
  const live = state.status === "running", first = stages[0] ?? {};
  const ran = state.units_resumed ? 0 : state.elapsed_s; // a resumed run did a part of its work in another attempt
  const rate = live ? first.docs_per_s : ran && counts.read / ran, bytes = live ? first.bytes_per_s : ran && (first.in_bytes || first.out_bytes) / ran;
  const tiles = [tile("read", whole(counts.read), size(first.in_bytes || first.out_bytes))];
  for (const key of ["created", "written", "dropped", "quarantined", "merged", "sent"]) {
    if (counts[key] || ["written", "dropped", "quarantined"].includes(key)) tiles.push(tile(key, whole(counts[key]), percent(came ? (counts[key] ?? 0) / came : null)));
  }
  if (rate) tiles.push(tile("docs/s", short(rate), `${(bytes / 1e6).toFixed(2)} MB/s`));
  const limit = state.memory_limit_bytes ? `of ${size(state.memory_limit_bytes)}` : "";
  tiles.push(tile(live ? "memory" : "peak memory", size(live ? state.memory_bytes : state.memory_peak_bytes), limit));
  if (live) tiles.push(tile("workers busy", `${state.workers_busy} of ${state.workers_total}`, state.workers_starting ? `${state.workers_starting} starting` : ""));
  put("tiles", ...tiles);
  byId("advice").hidden = !state.advice;
  if (state.advice) put("advice", state.advice);
  showStages(state);
  put("messages", ...[...(state.messages ?? [])].reverse().map((message) => el("li", {}, el("small", {}, `${clock(message.t)} `), message.text)));
  if (!state.messages?.length) put("messages", el("li", { class: "dim" }, "none"));
  if (Date.now() - drawnAt > 2000 || !live) {
    drawnAt = Date.now();
    showTimeline(await ask("/api/timeline"), state);
    if (state.has?.devices) await showGantt(state);
    showCorpus(state.charts ?? {});
  }
}

function showStages(state) {
  const stages = state.stages, live = state.status === "running";
  const top = Math.max(0, ...stages.map((stage) => stage.in_docs || stage.out_docs));
  const busy = stages.reduce((sum, stage) => sum + (stage.busy_s ?? 0), 0);
  byId("stages").classList.toggle("ended", !live);
  put("stages-note", live ? "Rates and busy shares of the last seconds. An indented stage runs in the same call as the one above."
    : "Rates of each stage's own code on one worker, and its share of all time in stages.");
  const leads = new Set((state.plan?.groups ?? []).map((group) => group[0]));
  byId("stages").tBodies[0].replaceChildren(...stages.map((stage, place) => {
    const reasons = Object.entries({ ...stage.drop_reasons }).sort((a, b) => b[1] - a[1]);
    const failed = Object.entries(stage.quarantine_reasons ?? {});
    const text = [...reasons.map(([rule, n]) => rule === stage.name ? whole(n) : `${rule} ${whole(n)}`), ...failed.map(([error, n]) => `${error} ${whole(n)}`)].join(", ");
    const lead = leads.size ? leads.has(stage.name) : place === 0;
    // Of a run that has ended, the speed of the stage's own code on one worker, and its share of all time in stages.
    const docs = live ? stage.docs_per_s : stage.busy_s >= 0.001 ? (stage.in_docs || stage.out_docs) / stage.busy_s : null;
    const nbytes = live ? stage.bytes_per_s : stage.busy_s >= 0.001 ? (stage.in_bytes || stage.out_bytes) / stage.busy_s : null;
    const own = stage.dedicated, workers = own ? `${own.busy} of ${own.ready}${own.starting ? ` (+${own.starting})` : ""}` : `${stage.workers_busy ?? 0} of ${stage.workers_total ?? 0}`;
    return el("tr", { class: `${lead ? "lead" : ""} ${state.bottleneck === stage.name ? "slow" : ""}` },
      el("td", { class: lead ? "" : "fused", title: lead ? stage.name : `${stage.name}: runs in the same call as the stage above` }, stage.name),
      el("td", { class: "flow" }, flow(stage, top)),
      el("td", {}, whole(stage.in_docs)), el("td", {}, whole(stage.out_docs)),
      el("td", {}, docs === null ? "–" : short(docs)), el("td", {}, nbytes === null ? "–" : (nbytes / 1e6).toFixed(1)),
      el("td", { title: size(stage.queue_bytes) }, lead && live ? whole(stage.queue_tasks) : ""),
      el("td", {}, lead && live ? workers : ""), el("td", {}, percent(live ? stage.busy_ratio : busy ? stage.busy_s / busy : null)),
      el("td", { class: "why", title: text.slice(0, 2000) }, text.slice(0, 300)));
  }));
}

function showTimeline(found, state) {
  if (found.t.length < 2) return put("charts", el("p", { class: "dim" }, "not enough samples yet"));
  const memory = [{ name: "used", kind: "c1", values: found.memory.map((n) => n / 1e9) }, { name: "between stages", kind: "c2", values: found.inflight.map((n) => n / 1e9) }];
  const limit = (state.memory_limit_bytes ?? 0) / 1e9;
  if (limit && Math.max(...memory[0].values) > 0.3 * limit) memory.push({ name: "limit", kind: "limit", values: found.t.map(() => limit) });
  put("charts",
    chart("Documents read", "a second", found.t, [{ name: "documents", kind: "c1", values: found.docs }], found.borders),
    chart("Data read", "MB a second", found.t, [{ name: "MB", kind: "c2", values: found.bytes.map((n) => n / 1e6) }], found.borders),
    chart("Memory", limit && memory.length < 3 ? `GB, the limit is ${limit.toFixed(1)}` : "GB", found.t, memory, found.borders),
    chart("Workers", "", found.t, [{ name: "set up", kind: "c2", values: found.workers }, { name: "busy", kind: "c1", values: found.busy }], found.borders));
}

let ganttTimer = 0;

async function showGantt(state) {
  clearTimeout(ganttTimer);
  const found = await ask("/api/gantt");
  byId("gantt-part").hidden = !found.lanes.length;
  const groups = (state.plan?.groups ?? []).map((group) => group.join(" + "));
  if (!found.complete) ganttTimer = setTimeout(() => view === "run" && showGantt(state), 200); // a long log is read in parts
  if (found.lanes.length) put("gantt", gantt(found, groups), el("p", { class: "dim" }, found.more ? `and ${found.more} more workers` : "The stronger the colour, the larger the share of the time in which the worker held a task."));
}

function showCorpus(charts) {
  const kinds = { kept: "kept", dropped: "dropped", "": "kept" };
  const figures = Object.entries(charts).flatMap(([stage, named]) => Object.entries(named).map(([name, bars]) => {
    const most = Math.max(1, ...bars.map((bar) => bar.n));
    const rows = bars.slice(0, 24).map((bar) => {
      let x = 0;
      const parts = Object.entries(bar.parts ?? { kept: bar.n }).map(([part, n]) => {
        const rect = svg("rect", { class: kinds[part] ?? "other", x, width: 150 * n / most, height: 12 }, svg("title", {}, `${part} ${whole(n)}`));
        x += 150 * n / most;
        return rect;
      });
      return el("tr", {}, el("td", {}, bar.bar), el("td", { class: "flow" }, svg("svg", { viewBox: "0 0 150 12", width: 150, height: 12 }, parts)), el("td", {}, whole(bar.n)));
    });
    return el("figure", {}, el("figcaption", {}, `${stage.replace(/-read$/, "")}: ${name}`), el("div", { class: "wide" }, el("table", {}, rows)));
  }));
  put("corpus", ...(figures.length ? [el("h2", {}, "Over the whole corpus"), el("div", { class: "charts" }, figures)] : []));
}

// -- documents and errors -----------------------------------------------------------------------------------------------

async function showDocuments() {
  const found = await ask("/api/samples"), choice = byId("rule"), before = choice.value;
  put("samples-note", found.problem ?? found.note ?? "");
  const kinds = [["kept", found.kept ?? []], ...Object.entries(found.dropped ?? {})].filter(([, documents]) => documents.length);
  choice.replaceChildren(...kinds.map(([name, documents]) => el("option", { value: name }, name === "kept" ? `kept (${documents.length} samples)` : `dropped by ${ruleName(name)} (${documents.length} samples)`)));
  if (kinds.some(([name]) => name === before)) choice.value = before;
  const draw = () => put("samples", ...(kinds.find(([name]) => name === choice.value)?.[1] ?? []).map(documentCard));
  choice.onchange = draw;
  draw();
  if (!kinds.length) put("samples", el("p", { class: "dim" }, "no documents to show yet"));
}

function documentCard(found) {
  const facts = [found.id, found.score === null ? null : `score ${found.score}`, found.threshold && `threshold ${found.threshold}`, `${whole(found.characters)} characters`];
  const scores = Object.entries(found.scores ?? {}).map(([column, score]) => el("tr", {}, el("td", {}, ruleName(column)), el("td", {}, score === null ? "–" : String(+Number(score).toPrecision(4)))));
  return el("article", { class: "card document" }, el("div", { class: "facts" }, facts.filter(Boolean).map((fact) => el("span", {}, fact))),
    scores.length ? el("details", {}, el("summary", {}, `scores of ${scores.length} rules`), el("table", {}, scores)) : null,
    el("pre", { tabindex: 0, dir: "auto" }, found.parts.map(([text, hit]) => hit ? el("mark", {}, text) : text)));
}

async function showErrors() {
  const counts = (state?.stages ?? []).flatMap((stage) => Object.entries(stage.quarantine_reasons ?? {}).map(([error, n]) => [`${stage.name}/${error}`, n]));
  const retries = (state?.stages ?? []).reduce((sum, stage) => sum + (stage.retries ?? 0), 0);
  put("error-counts", el("div", { class: "tiles" }, tile("quarantined", whole(state?.quarantined)), tile("failures of tasks", whole(state?.errors)), tile("retries", whole(retries)), counts.map(([name, n]) => tile(name, whole(n)))));
  const found = await ask("/api/errors");
  const entries = (found.entries ?? []).map((entry) => el("details", {},
    el("summary", {}, el("b", {}, `${entry.stage}/${entry.error} `), `${entry.message} `, el("small", {}, entry.id)),
    el("p", { class: "dim" }, `${entry.source} · ${entry.attempts} attempts`),
    entry.traceback ? el("pre", { tabindex: 0 }, entry.traceback) : null, el("pre", { tabindex: 0, dir: "auto" }, entry.record)));
  if (found.problem) entries.unshift(el("p", { class: "note bad" }, found.problem));
  if (found.more) entries.push(el("p", { class: "dim" }, "There are more: thresher quarantine lists all of them."));
  put("errors", ...(entries.length ? entries : [el("p", { class: "dim" }, "nothing is quarantined")]));
}

function showAbout(state) {
  const { run } = state, versions = Object.entries(run.versions ?? {}).map(([name, version]) => `${name} ${version}`).join(", ");
  const rows = [["run folder", run.folder], ["output", run.output], ["fingerprint", run.fingerprint], ["versions", versions],
    ["reproduce", `thresher run ${run.folder}/recipe.yaml`], ["check", `thresher audit ${run.folder}`], ["report", `${run.folder}/report.html`]];
  put("about", ...rows.filter(([, value]) => value).map(([name, value]) => el("tr", {}, el("td", {}, name), el("td", { class: "text" }, value))));
  put("attempts", el("tr", {}, ["attempt", "start", "end", "host", "executor", "status"].map((name) => el("th", { scope: "col" }, name))),
    ...run.attempts.map((one) => el("tr", {}, [one.number, one.start, one.end ?? "", one.host, one.executor, one.status ?? state.status].map((value) => el("td", {}, value)))));
}

// -- tabs ---------------------------------------------------------------------------------------------------------------

const tabs = [...byId("tabs").children];

async function choose(tab, focus = false) {
  for (const other of tabs) {
    other.setAttribute("aria-selected", String(other === tab));
    other.tabIndex = other === tab ? 0 : -1;
    byId(other.getAttribute("aria-controls")).hidden = other !== tab;
  }
  if (focus) tab.focus();
  view = tab.id.replace("tab-", "");
  history.replaceState(null, "", `#${view}`);
  try {
    if (!state) await tick();
    if (view === "documents") await showDocuments();
    else if (view === "errors") await showErrors();
    else if (view === "thresholds") await showThresholds(ask, state?.has ?? {});
    else {
      drawnAt = 0;
      await tick();
    }
  } catch (error) {
    put("problem", error.message);
    byId("problem").hidden = false;
  }
}

byId("tabs").addEventListener("click", (event) => event.target.closest("[role=tab]") && choose(event.target.closest("[role=tab]")));
byId("tabs").addEventListener("keydown", (event) => {
  const place = tabs.indexOf(document.activeElement), step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const next = step ? (place + step + tabs.length) % tabs.length : { Home: 0, End: tabs.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  choose(tabs[next], true);
});
document.addEventListener("visibilitychange", () => document.hidden || tick());
choose(tabs.find((tab) => `#${tab.id.replace("tab-", "")}` === location.hash) ?? tabs[0]);
