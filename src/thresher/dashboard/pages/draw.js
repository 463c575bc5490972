// SPDX-License-Identifier: Apache-2.0
// Elements, numbers and pictures. Text is only ever set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined).map(visible));
  return element;
}

// Characters that hide or reorder what is around them are spelled out, whoever wrote the text.
const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

function visible(child) {
  return child instanceof Node ? child : String(child).replace(UNSAFE, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

export function put(id, ...children) {
  document.getElementById(id).replaceChildren(...children.map(visible));
}

export const whole = (n) => Math.round(n || 0).toLocaleString("en-US");

export function short(n) {
  for (const [size, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(n) >= size * 0.9995) return `${(n / size).toPrecision(3)}${letter}`;
  }
  return n && Math.abs(n) < 9.95 && !Number.isInteger(n) ? n.toFixed(1) : String(Math.round(n));
}

export function size(bytes) {
  for (const [unit, of] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (bytes >= of) return `${(bytes / of).toFixed(1)} ${unit}`;
  }
  return `${Math.round(bytes || 0)} B`;
}

export const percent = (share) => share === null || share === undefined || Number.isNaN(share) ? "–"
  : share > 0 && share < 0.0005 ? "<0.1%" : `${(100 * share).toFixed(share === 1 || share === 0 ? 0 : 1)}%`;

export function clock(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const s = Math.round(seconds), pad = (n) => String(n).padStart(2, "0");
  return s >= 3600 ? `${Math.floor(s / 3600)}:${pad(Math.floor(s / 60) % 60)}:${pad(s % 60)}` : `${Math.floor(s / 60)}:${pad(s % 60)}`;
}

// The name of a rule: a stage that is its only rule is named once.
export function ruleName(column) {
  const cut = column.lastIndexOf("/"), stage = column.slice(0, cut), rule = column.slice(cut + 1);
  return stage === rule || stage.startsWith(`${rule}-`) ? stage : column;
}

export function tile(name, value, more = "") {
  return el("div", { class: "tile" }, el("small", {}, name), el("b", {}, value), el("small", {}, more));
}

// -- charts -------------------------------------------------------------------------------------------------------------

const W = 520, H = 150, L = 48, R = 8, T = 10, B = 20;

export function chart(title, unit, times, curves, borders = []) {
  const top = Math.max(0, ...curves.flatMap((curve) => curve.values)) * 1.05 || 1;
  const end = times.at(-1) || 1;
  const x = (t) => L + (W - L - R) * t / end, y = (v) => H - B - (H - T - B) * Math.max(0, Math.min(v / top, 1));
  const parts = [0, 0.5, 1].flatMap((part) => [
    svg("line", { class: "grid", x1: L, x2: W - R, y1: y(top * part), y2: y(top * part) }),
    svg("text", { x: L - 5, y: y(top * part) + 4, "text-anchor": "end" }, short(top * part)),
    svg("text", { x: x(end * part), y: H - 4, "text-anchor": ["start", "middle", "end"][part * 2] }, clock(end * part)),
  ]);
  for (const t of borders) parts.push(svg("line", { class: "border", x1: x(t), x2: x(t), y1: T, y2: H - B }));
  for (const curve of curves) {
    const points = curve.values.map((v, place) => `${x(times[place]).toFixed(1)} ${y(v).toFixed(1)}`);
    parts.push(svg("path", { class: curve.kind, d: `M${points.join("L")}` }));
  }
  const last = curves.map((curve) => `${curve.name} ${short(curve.values.at(-1) || 0)}`).join(", ");
  return el("figure", {},
    el("figcaption", {}, title, unit ? el("small", {}, ` (${unit})`) : null, curves.map((curve) => el("span", { class: `key ${curve.kind}` }, curve.name))),
    svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${title}: at most ${short(top / 1.05)} ${unit}; now ${last}` }, parts));
}

// One stage as a piece of the stream: what comes in at the top, what goes on below, what is dropped to the right.
export function flow(stage, top) {
  const came = stage.in_docs || stage.out_docs || 0, lost = stage.dropped + stage.quarantined;
  const left = Math.max(0, came - lost), wide = (n) => top ? 146 * Math.min(1, n / top) : 0;
  const a = wide(came), b = wide(left), q = wide(stage.quarantined);
  const label = `${whole(came)} in, ${whole(stage.dropped)} dropped, ${whole(stage.quarantined)} quarantined`;
  const parts = [svg("path", { class: "kept", d: `M2 0H${(2 + a).toFixed(1)}L${(2 + b).toFixed(1)} 30H2Z` })];
  if (stage.dropped) parts.push(svg("path", { class: "dropped", d: `M${(2 + a).toFixed(1)} 0L${(2 + b).toFixed(1)} 30H${(2 + Math.max(b + 1.5, a - q)).toFixed(1)}Z` }));
  if (stage.quarantined) parts.push(svg("path", { class: "quarantined", d: `M${(2 + a).toFixed(1)} 0L${(2 + a - q).toFixed(1)} 30H${(2 + Math.max(a, a - q + 2)).toFixed(1)}Z` }));
  return svg("svg", { viewBox: "0 0 150 30", preserveAspectRatio: "none", role: "img", "aria-label": label }, parts);
}

export function histogram(rule, bounds) {
  const width = 320, span = (rule.high - rule.low) || 1, most = Math.max(1, ...rule.counts), room = width / rule.counts.length;
  const paths = { kept: "", dropped: "" };
  rule.counts.forEach((count, place) => {
    if (!count) return;
    let middle = rule.low + span * (place + 0.5) / rule.counts.length;
    if (place === rule.counts.length - 1 && bounds.some((b) => b.side === "low" && b.value === rule.high)) middle = rule.high;
    if (place === 0 && bounds.some((b) => b.side === "high" && b.value === rule.low)) middle = rule.low;
    const out = bounds.some((b) => b.side === "low" ? middle < b.value : middle > b.value), tall = Math.max(1, 64 * count / most);
    paths[out ? "dropped" : "kept"] += `M${(place * room).toFixed(1)} 66v${(-tall).toFixed(1)}h${(room - 1).toFixed(1)}v${tall.toFixed(1)}z`;
  });
  const lines = bounds.filter((b) => b.value >= rule.low && b.value <= rule.high).map((b) => {
    const at = width * (b.value - rule.low) / span;
    return svg("line", { class: "bound", x1: at, x2: at, y1: 0, y2: 70 });
  });
  const label = (n) => Math.abs(n) >= 1000 ? short(n) : String(+n.toPrecision(3));
  return svg("svg", { viewBox: `0 0 ${width} 84`, role: "img", "aria-label": `scores from ${label(rule.low)} to ${label(rule.high)}` },
    svg("path", { class: "kept", d: paths.kept }), svg("path", { class: "dropped", d: paths.dropped }), lines,
    svg("text", { x: 0, y: 81 }, label(rule.low)), svg("text", { x: width, y: 81, "text-anchor": "end" }, label(rule.high)));
}

export function gantt(found, stages) {
  const left = 190, width = 900, row = 22, end = Math.max(found.t, found.width_s), x = (t) => left + (width - left) * t / end;
  const lanes = found.lanes.map((lane, place) => {
    const y = place * row, parts = [svg("text", { x: 0, y: y + 15 }, lane.name)];
    parts.push(svg("rect", { class: "idle", x: x(lane.start), y: y + 4, width: Math.max(1, x(lane.end ?? found.t) - x(lane.start)), height: row - 8 }));
    for (const [bin, share] of lane.busy) {
      parts.push(svg("rect", { class: "busy", x: x(bin * found.width_s), y: y + 4, width: Math.max(0.5, (width - left) * found.width_s / end), height: row - 8, opacity: Math.max(0.08, share) }));
    }
    const busy = lane.busy.reduce((sum, [, share]) => sum + share * found.width_s, 0) / Math.max(0.001, (lane.end ?? found.t) - lane.start);
    parts.push(svg("title", {}, `${lane.name}: ${stages[lane.op] ?? ""} busy ${percent(Math.min(1, busy))}`));
    return svg("g", {}, parts);
  });
  const tall = found.lanes.length * row + 20;
  return svg("svg", { viewBox: `0 0 ${width} ${tall}`, role: "img", "aria-label": `busy time of ${found.lanes.length} workers with accelerators` },
    lanes, [0, 0.5, 1].map((part) => svg("text", { x: x(end * part), y: tall - 4, "text-anchor": ["start", "middle", "end"][part * 2] }, clock(end * part))));
}
