/* page.js - draws the page of its data, as text of HTML
 *
 * The data, as tools/report/write.c writes it:
 *   totals: problems, graphs, shapes, tied, unmeasured, and the geometric means
 *     rule and unfused: [value, standard error of its logarithm, problems]
 *   rows: count, ok, refused, failed, wrong, older, newer, unknown, foreign,
 *     invalid; first, last: seconds since 1970
 *   stores, other, command, commit, version, variants, trusted (radius),
 *     margin (of a tie), all, model (digest)
 *   devices: model, backend, arch, units, cache, driver, runtime, library,
 *     problems, gbps and the file where it was measured, digest
 *   problems: graph, shape (numbers), bytes and gather that have to be moved,
 *     rule and unfused (times over the winner's), source, seconds (of tuning),
 *     chosen (names) and regret by WAYS, distance, left_out (source), count
 *     (of variants), arms (readArm), rejected: [status, variant, reason],
 *     rejects
 *   cells: [graph, shape, source] that were not measured
 *   graphs: name, the signature, histogram, source_histogram, problems, near:
 *     [[graph, distance], ...];  shapes: text, device, and
 *     the program of an edge program or MLP on edges;  names: of variants
 *   against: faster, slower, same, ambiguous, winners, shared, compared, here,
 *     there, rows, mean, error, devices, pairs (againstSection) */
"use strict";

let WIDTH = 720; /* pixels that a chart may take */

/* ---- parts --------------------------------------------------------------- */

function noise(share, samples) {
  const parts = [];
  if (known(share))
    parts.push("\u00b1" + (100 * share).toFixed(share < 0.0995 ? 1 : 0) +
               "\u00a0%");
  if (known(samples))
    parts.push(samples + "\u00d7");
  return parts.length ? h` <small>${parts.join(" ")}</small>` : "";
}

/* A text without its middle: labels that begin alike differ at the end. */
function middleCut(text, most) {
  const half = Math.floor((most - 1) / 2);
  return text.length <= most ? text :
      text.slice(0, half) + "\u2026" + text.slice(-half);
}

function times(x) {
  return known(x) ? (x < 9.995 ? x.toFixed(2) : x.toFixed(1)) : DASH;
}

function range(mean) {
  return known(mean.error) ?
      times(mean.value * Math.exp(-1.96 * mean.error)) + "\u2013" +
      times(mean.value * Math.exp(1.96 * mean.error)) : "";
}

function tile(figure, what, kind) {
  return h`<div class="tile ${kind || ""}"><b>${figure}</b><span>${
      what}</span></div>`;
}

/* A table whose head and first column stay in sight; heads: texts, or [text,
 * class of its column].  Cells are markup or text, rows [cells] or {kind,
 * cells}. */
function table(kind, heads, rows) {
  const kinds = heads.map(head => Array.isArray(head) ? head[1] : "");
  return h`<div class="frame"><div class="wide" tabindex="0"><table class="${
      kind}"><thead><tr>${heads.map((head, i) => h`<th class="${kinds[i]}">${
      Array.isArray(head) ? head[0] : head}</th>`)}</tr></thead><tbody>${
      rows.map(row => {
        const cells = row.cells || row;
        return h`<tr class="${row.kind || ""}">${cells.map((cell, i) => i ?
            h`<td class="${kinds[i]}">${cell}</td>` :
            h`<th scope="row" class="${kinds[i]}">${cell}</th>`)}</tr>
`;
      })}</tbody></table></div></div>`;
}

function facts(rows) {
  return h`<table class="facts">${rows.map(([name, value]) =>
      h`<tr><th scope="row">${name}</th><td>${value}</td></tr>`)}</table>`;
}

function figure(picture, caption) {
  return h`<figure>${picture}<figcaption>${caption}</figcaption></figure>`;
}

function plot(c) {
  return chart(Object.assign(c, {width: Math.min(c.width, WIDTH)}));
}

function problemLink(p) {
  return h`<a href="#p${p.number}">${p.graph.name}, ${p.shape.text}</a>`;
}

function section(id, title, body) {
  return h`<section id="${id}"><h2>${title}</h2>${body}</section>
`;
}

/* ---- the head ------------------------------------------------------------ */

function tiles(data) {
  const t = data.totals, made = [];
  const [rule, unfused] = [t.rule, t.unfused].map(
      ([value, error, count]) => ({value, error, count}));
  const shares = meanOf(data.problems.map(p => p.share));
  made.push(tile(countText(t.problems), "measured problems"));
  made.push(tile(countText(t.graphs), "graphs"));
  if (rule.count)
    made.push(tile(times(rule.value) + "\u00d7", "as fast as the rule's " +
        `choice: geometric mean of ${rule.count} problems, ${range(rule)}`));
  /* a store that keeps the best variants has unfused ones only where these are
   * among the best */
  if (2 * unfused.count > t.problems)
    made.push(tile(times(unfused.value) + "\u00d7", "as fast as unfused " +
        "passes, or the plain loop where nothing is fused: geometric mean " +
        `of ${unfused.count} problems, ${range(unfused)}`));
  if (shares.count)
    made.push(tile(shareText(shares.value), "of the time is the compulsory " +
        `floor: geometric mean of ${shares.count} problems, ` +
        `${shareText(shares.value * Math.exp(-1.96 * shares.error || 0))} to ` +
        shareText(shares.value * Math.exp(1.96 * shares.error || 0))));
  made.push(tile(shareText(t.tied / Math.max(t.problems, 1)), "of the " +
      `winners, ${t.tied}, cannot be told apart from another variant`));
  return h`<div class="tiles">${made}</div>`;
}

function deviceText(v) {
  const floors = known(v.gbps) ?
      h`; copies at ${v.gbps.toFixed(v.gbps < 100 ? 1 : 0)} GB/s (${
      v.measured})` :
      h`; its copy bandwidth is not known, so that there are no floors: <code>
      --copy-gbps</code> gives it`;
  return h`${v.model}, ${v.backend} ${v.arch}, ${v.units} units, last-level
      cache ${bytesText(v.cache)}; driver ${v.driver || "none"}, runtime ${
      v.runtime}, measured with dfgnn ${v.library}; ${
      countText(v.problems)} problems${floors}`;
}

function rowsText(r) {
  const stale = [["older", "of older revisions of their variants"],
                 ["newer", "of newer revisions"],
                 ["unknown", "of variants this library does not have"],
                 ["foreign", "of backends this library does not have"]];
  return h`${countText(r.count)}: ${r.ok} ok, ${r.refused} refused, ${
      r.failed} failed, ${r.wrong} wrong${r.invalid ?
      `; ${r.invalid} more are invalid and were passed over` : ""}${
      r.last ? `; measured from ${dayText(r.first)} to ${dayText(r.last)}` :
      ""}${stale.filter(([key]) => r[key]).map(([key, text]) =>
      `; ${r[key]} ${text}`)}`;
}

function head(data) {
  const code = text => h`<code>${text}</code> `;
  const rows = [["From", data.stores.length ? data.stores.map(code) :
                 "no store"]];
  if (data.other)
    rows.push(["Compared with", h`<code>${data.other}</code>, ${
        data.against ? data.against.rows : 0} rows`]);
  rows.push(["Rows", rowsText(data.rows)]);
  data.devices.forEach(v => rows.push(["Device", deviceText(v)]));
  rows.push(["Library", h`dfgnn ${data.version}${data.commit ?
      h`, commit <code>${data.commit}</code>` : ""}, ${
      data.variants} variants`]);
  if (data.command)
    rows.push(["Made by", h`<code>${data.command}</code>`]);
  const digests = data.devices.filter(v => v.digest).map(v => [v.arch,
      h`<code>${v.digest}</code> of the data that choices depend on`]);
  digests.push(["Portfolios", code(data.portfolios)]);
  const left = data.totals.problems - data.problems.length;
  return h`${data.totals.problems ? tiles(data) : ""}${left ?
      h`<p class="empty">The page shows the ${
      countText(data.problems.length)} problems that take longest or are
      furthest from the bytes that they have to move; ${countText(left)} more
      count in the figures above alone.</p>` : ""}${
      facts(rows)}<details class="fold"><summary>Digests</summary><div>${
      facts(digests)}</div></details>`;
}

/* ---- the map ------------------------------------------------------------- */

/* What a cell of the map may show: its figure, how dark it is from 0 to 1. */
const SHOWS = {
  rule: {text: "gain over the rule", figure: p => times(p.rule),
         value: p => p.rule, dark: x => Math.log2(x) / 3,
         noise: p => p.gainNoise},
  unfused: {text: "gain over unfused passes", figure: p => times(p.unfused),
            value: p => p.unfused, dark: x => Math.log2(x) / 4,
            noise: p => p.gainNoise},
  floor: {text: "share of the floor", figure: p => shareText(p.share),
          value: p => p.share, dark: x => x, noise: p => p.best.noise},
  time: {text: "time", figure: p => timeText(p.best.ms),
         value: p => p.best.ms, dark: () => 0.2, noise: p => p.best.noise},
};

const SOURCES = {
  x: {text: "measured", of: ["exact", "pinned", "forced"]},
  n: {text: "near: a measured graph like it, or this one for a problem like it",
      of: ["near"]},
  m: {text: "the model's prediction", of: ["model"]},
  r: {text: "the rule", of: ["rule", "paper"]},
};

function sourceKind(source) {
  return Object.keys(SOURCES).find(k => SOURCES[k].of.includes(source)) || "r";
}

const MAP_ROWS = 200, MAP_COLUMNS = 80;

/* The first by number of problems; they keep their order by name. */
function mostUsed(list, most, count) {
  const used = list.slice().sort((a, b) => count(b) - count(a)).slice(0, most);
  return list.filter(one => used.includes(one));
}

function mapCell(p, show) {
  const s = SHOWS[show], value = s.value(p);
  const dark = known(value) ? Math.min(Math.max(s.dark(value), 0), 1) : 0;
  const about = [timeText(p.best.ms) + (known(p.best.noise) ? ", \u00b1" +
      shareText(p.best.noise) : "") + ", " + p.best.samples +
      (p.best.samples === 1 ? " sample" : " samples") +
      (p.best.loud ? ": " + p.best.loud + ", to be measured again" : "")];
  if (known(p.rule))
    about.push(times(p.rule) + "\u00d7 as fast as the rule's choice");
  if (known(p.unfused))
    about.push(times(p.unfused) + "\u00d7 as fast as unfused passes");
  if (known(p.share))
    about.push(shareText(p.share) + " of it is the floor");
  return h`<td class="${sourceKind(p.source)} g${Math.round(6 * dark)}"><a
      href="#p${p.number}" title="${about.join("\n")}">${known(value) ?
      s.figure(p) : "\u00b7"}<small>${known(value) && known(s.noise(p)) ?
      "\u00b1" + (100 * s.noise(p)).toFixed(1) + "\u00a0% " : ""}${
      p.best.samples}\u00d7${p.best.loud ? " noisy" : ""}</small></a></td>`;
}

function mapTable(data, show) {
  const at = new Map(), foretold = new Map(), use = new Map();
  const key = (g, s) => g.number + "," + s.number;
  const counts = {x: 0, n: 0, m: 0, r: 0};
  for (const p of data.problems) {
    at.set(key(p.graph, p.shape), p);
    use.set(p.shape, (use.get(p.shape) || 0) + 1);
    counts[sourceKind(p.source)]++;
  }
  for (const [g, s, source] of data.cells) {
    foretold.set(g + "," + s, source);
    counts[sourceKind(source)]++;
  }
  const byText = (a, b) => compare(a.device, b.device) ||
      compare(a.text, b.text);
  const measured = data.graphs.filter(g => g.problems)
      .sort((a, b) => compare(a.name, b.name));
  const graphs = mostUsed(measured, MAP_ROWS, g => g.problems);
  const shapes = mostUsed(data.shapes.slice().sort(byText), MAP_COLUMNS,
                          s => use.get(s) || 0);
  const cell = (g, s) => {
    const p = at.get(key(g, s)), source = foretold.get(key(g, s));
    if (p)
      return mapCell(p, show);
    const kind = source && sourceKind(source);
    return source ? h`<td class="${kind}">${{x: "exact", n: "near", m: "model",
        r: "rule"}[kind]}</td>` : h`<td></td>`;
  };
  const left = measured.length - graphs.length + data.shapes.length -
      shapes.length;
  return h`<div class="frame"><div class="wide" tabindex="0"><table class="map">
      <thead><tr><th>graph</th>${shapes.map(s => h`<th class="up" title="${s.text}"><span>${
      middleCut(s.text, 38)}${data.devices.length > 1 ? " " + s.on.arch : ""}</span></th>`)
      }</tr></thead><tbody>${graphs.map(g => h`<tr><th scope="row"><a href="#g${
      g.number}" title="${g.name}">${middleCut(g.name, WIDTH > 600 ? 30 : 16)}</a></th>${
      shapes.map(s => cell(g, s))}</tr>
`)}</tbody></table></div></div>${left ? h`<p>The map has the ${
      graphs.length} graphs and ${shapes.length} problems of most
      measurements; ${left} more rows and columns are left out.</p>` : ""}
      <ul class="legend">${Object.keys(SOURCES).map(k => h`<li><i class="${
      k}"></i>${SOURCES[k].text}: ${counts[k]} cells</li>`)}</ul>`;
}

/* The problems by their gain, in steps of a quarter of a doubling; those below
 * the first and beyond the last step have bars of their own. */
function gainsChart(data) {
  const STEPS = 20, counts = new Array(STEPS + 2).fill(0);
  const gains = data.problems.map(p => p.rule).filter(known);
  if (!gains.length)
    return "";
  for (const gain of gains)
    counts[Math.min(Math.max(Math.floor(4 * Math.log2(gain) + 1e-9) + 1, 0),
                    STEPS + 1)]++;
  /* a gap of a step stands between the outer bars and the others */
  const from = k => k === 0 ? -1 : k > STEPS ? STEPS + 2 : k;
  const ticks = [[-0.5, "<1"], [STEPS + 2.5, "\u226532"]];
  for (let k = 0; k < 6; k++)
    ticks.push([4 * k + 1, String(1 << k)]);
  return figure(plot({
    width: 640, height: 210, title: "Problems by what tuning gained",
    x: {low: -1.2, high: STEPS + 3.2, label: "times as fast as the rule's choice",
        ticks},
    y: {low: 0, high: 1.05 * Math.max(...counts), label: "problems"},
    marks: [{kind: "bars", colour: 0, bars: counts.map((n, k) =>
        [from(k) + 0.05, 0, from(k) + 0.95, n, n + " problems"]).filter(b => b[3])}],
  }), h`What the tuned choice gains over the rule's, where both are measured:
      ${gains.length} of ${data.problems.length} problems. The outer bars hold
      all that is below 1, and all from 32 on.`);
}

function mapSection(data) {
  return section("map", "Graphs and problems", h`<p>A cell shows what the tuned
      choice gains on a graph (a row) for a problem (a column), its 95 %
      interval and the number of samples; a dot stands for a figure that was
      not measured. Darker is more; the colour tells the source of the choice.
      Cells without a figure were not measured: they name the source of the
      choice that a program would get. The floor is the time of reading each
      input and writing each output once, at the copy bandwidth.</p><p>
      <label>A cell shows the <select id="show">${
      Object.keys(SHOWS).map(k => h`<option value="${k}">${
      SHOWS[k].text}</option>`)}</select></label></p><div id="cells">${
      mapTable(data, "rule")}</div>${gainsChart(data)}`);
}
