// SPDX-License-Identifier: Apache-2.0
// What-if: a slider for each threshold, and how many documents would stay.

import { el, histogram, percent, put, ruleName, tile, whole } from "/draw.js";

const chosen = new Map(); // Stage.parameter -> value
let loaded = false, asked = 0, timer = 0;

export async function showThresholds(ask, has) {
  if (loaded) return;
  if (!has.scores) {
    put("scores-note", "This run keeps no scores. Run it with --keep-scores, and every threshold gets a slider here.");
    return;
  }
  put("scores-note", "reading the scores …");
  const found = await ask("/api/scores");
  if (found.problem) return put("scores-note", found.problem);
  loaded = true;
  put("scores-note", found.note);
  showOutcome({ outcome: found.outcome, before: found.outcome, command: "" });
  put("sliders", ...found.rules.map((rule) => card(rule, ask)));
  document.getElementById("reset").onclick = () => {
    chosen.clear();
    loaded = false;
    showThresholds(ask, has);
  };
  document.getElementById("copy").onclick = () => navigator.clipboard?.writeText(document.getElementById("command").textContent);
}

function card(rule, ask) {
  const stage = rule.column.slice(0, rule.column.lastIndexOf("/"));
  const bounds = rule.bounds.map((bound) => ({ ...bound }));
  let picture = histogram(rule, bounds);
  const drawAgain = () => {
    const next = histogram(rule, bounds);
    picture.replaceWith(next);
    picture = next;
  };
  const sliders = bounds.map((bound) => slider(rule, stage, bound, () => {
    drawAgain();
    clearTimeout(timer);
    timer = setTimeout(() => update(ask), 120);
  }));
  const note = rule.bounds.length ? null : el("small", {}, " no threshold that can be moved");
  return el("figure", {}, el("figcaption", {}, ruleName(rule.column), note), picture, sliders);
}

function slider(rule, stage, bound, changed) {
  if (!bound.parameter) return el("small", {}, `${bound.side} = ${bound.value}: set by more than one parameter`);
  const key = `${stage}.${bound.parameter}`, before = bound.value, id = `slider-${key}`;
  const isWhole = Number.isInteger(before) && rule.high - rule.low > 10;
  const low = Math.min(rule.low, before), high = Math.max(rule.high, before), step = isWhole ? 1 : Number(((high - low) / 200).toPrecision(1)) || 0.01;
  const range = el("input", { type: "range", id, min: isWhole ? Math.floor(low) : low, max: isWhole ? Math.ceil(high) : high, step: isWhole ? 1 : "any", value: before });
  const number = el("input", { type: "number", step, value: before, "aria-label": key });
  const take = (text) => {
    const value = Number(text);
    if (text === "" || !Number.isFinite(value)) return;
    bound.value = isWhole ? Math.round(value) : Number(value.toPrecision(4));
    if (bound.value === before) chosen.delete(key);
    else chosen.set(key, bound.value);
    changed();
  };
  range.addEventListener("input", () => {
    take(range.value);
    number.value = bound.value;
  });
  number.addEventListener("input", () => {
    take(number.value);
    range.value = bound.value;
  });
  return el("div", { class: "slider" }, el("label", { for: id }, `${bound.parameter} (${before} in this run)`), range, number);
}

async function update(ask) {
  const mine = ++asked, query = new URLSearchParams([...chosen].map(([key, value]) => [key, String(value)]));
  const found = await ask(`/api/what-if?${query}`);
  if (mine === asked && !found.problem) showOutcome(found);
}

function showOutcome({ outcome, before, command }) {
  const change = (now, then) => now === then ? `${percent(outcome.documents ? now / outcome.documents : null)} of all` : `${now > then ? "+" : "−"}${whole(Math.abs(now - then))}`;
  const tiles = [tile("documents that stay", whole(outcome.kept), change(outcome.kept, before.kept))];
  for (const [what, [all, kept]] of Object.entries(outcome.amounts)) {
    const then = before.amounts[what]?.[1] ?? kept;
    tiles.push(tile(`${what} that stay`, whole(kept), kept === then ? `${percent(all ? kept / all : null)} of all` : change(kept, then)));
  }
  if (outcome.unknown) tiles.push(tile("not known", whole(outcome.unknown), "without a score"));
  const most = Object.entries(outcome.dropped).sort((a, b) => b[1] - a[1])[0];
  if (most?.[1]) tiles.push(tile("dropped most", whole(most[1]), ruleName(most[0])));
  put("outcome", ...tiles);
  document.getElementById("command-part").hidden = !command;
  put("command", command);
}
