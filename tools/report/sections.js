/* sections.js - the sections of the page below the map */
"use strict";

/* ---- problems ------------------------------------------------------------ */

/* The length of the prefix that all names share, such as "cuda.attention.fwd.":
 * up to the last common dot before the parameters. */
function prefixLength(arms) {
  let same = arms[0].name.split("/")[0];
  for (const {name} of arms)
    while (!name.startsWith(same))
      same = same.slice(0, -1);
  return same.lastIndexOf(".") + 1;
}

/* The names of variants without what they all have in common. */
function differences(arms, prefix, most) {
  const parts = arms.map(arm => arm.name.slice(prefix).split(/[/,]/));
  const common = parts[0].slice(1).filter(
      part => parts.every(other => other.includes(part)));
  return parts.map(([first, ...rest]) => middleCut([first, ...rest.filter(
      part => !common.includes(part))].join(" "), most));
}

/* Times over the fastest's with their intervals, and both floors, a row for
 * each variant by its rank. */
function intervalsChart(p, arms, prefix) {
  const wide = WIDTH > 600, ROW = 15;
  const unit = p.best.ms / p.best.ratio;
  const spans = arms.map((arm, i) => [
    Math.exp(arm.log - 1.96 * arm.error), arm.ratio,
    Math.exp(arm.log + 1.96 * arm.error), i]);
  const floors = [["floor", p.floor / unit], ["gather", p.gathered / unit]]
      .filter(([, x]) => known(x) && x > 0.5 && x < 8);
  const values = spans.flatMap(span => span.slice(0, 3))
      .concat(floors.map(f => f[1]), [1]).map(x => Math.min(x, 8));
  const names = differences(arms, prefix, 34);
  const name = (arm, i) => (i + 1) + (wide ? " " + names[i] : "");
  return plot({
    width: 720, height: ROW * arms.length + 56, left: wide ? 270 : 30,
    title: "Times over the fastest's with 95 % intervals",
    x: Object.assign(axisOver(values, true), {label: "time over the best" +
        (arms.some(arm => arm.ratio > 8) ? ", 8 and more at the end" : "")}),
    y: {low: arms.length - 0.5, high: -0.5,
        ticks: arms.map((arm, i) => [i, name(arm, i)])},
    marks: [{kind: "level", at: -0.5}, {kind: "upright", at: 1},
            ...floors.map(([text, x], i) => ({kind: "upright", at: x, text,
                                               drop: 12 * i})),
            {kind: "spans", colour: 0, spans}],
  });
}

function armsTable(arms, prefix, p) {
  const has = member => arms.some(arm => known(arm[member]) &&
      !(arm[member] < 0));
  const heads = ["", [p.best.name.slice(0, prefix), "v"], "time", "\u00b1 %",
                 "over best", "\u00b1 %"];
  const some = [["predicted", "predicted", a => times(a.predicted)],
                ["samples", "samples", a => a.samples],
                ["workspace", "workspace", a => bytesText(a.workspace)]]
      .filter(([member]) => has(member));
  const percent = x => known(x) ? (100 * x).toFixed(1) : DASH;
  return table("rank", heads.concat(some.map(s => s[1])), arms.map((arm, i) => ({
    kind: arm.tied ? "t" : "",
    cells: [arm.tied && i ? (i + 1) + " =" : i + 1, arm.name.slice(prefix),
            timeText(arm.ms), percent(arm.noise),
            known(arm.ratio) ? arm.ratio.toFixed(arm.ratio < 9.995 ? 3 : 1) :
            DASH, percent(Math.expm1(1.96 * arm.error)),
            ...some.map(s => s[2](arm))],
  })));
}

function problemWords(p, left) {
  const made = [];
  const gain = p.best.ms * (p.rule - 1);
  const payback = ms => figureText(Math.ceil(ms / gain));
  if (known(p.floor))
    made.push(`Floor ${timeText(p.floor)} (${bytesText(p.bytes)}); gather ` +
              `${timeText(p.gathered)}, ${shareText(p.gathered / p.best.ms)}.`);
  else if (known(p.bytes))
    made.push(`${bytesText(p.bytes)} have to be moved.`);
  if (p.chosen[RULE] && !known(p.rule))
    made.push("The rule's choice was not measured.");
  if (p.chosen[MODEL] && !known(p.regret[MODEL]))
    made.push("The model's choice was not measured.");
  if (known(p.seconds) && gain > 0)
    made.push(`Tuning took about ${secondsText(p.seconds)} by its time ` +
              "stamps and is earned back after " +
              `${payback(1e3 * p.seconds)} calls.`);
  if (left > 0)
    made.push(`Slower variants left out: ${left}.`);
  return made.join(" ");
}

const SHOWN = 8; /* variants of a problem, unless all are wanted */

/* A program as it is written to a file, a statement a line. */
function statements(program) {
  return program.split("; ").join("\n");
}

/* The inside of a problem's details. */
function problemBody(data, p) {
  const tied = p.arms.filter(arm => arm.tied).length;
  const arms = data.all ? p.arms :
      p.arms.slice(0, Math.max(SHOWN, Math.min(tied, 3 * SHOWN)));
  const prefix = prefixLength(arms);
  const rejected = p.rejected.map(([status, variant, reason]) => h`<li><b>${
      status}</b> <span class="v">${variant}</span>: ${reason ||
      "no reason is stored"}</li>`);
  if (p.rejects > p.rejected.length)
    rejected.push(h`<li>and ${p.rejects - p.rejected.length} more</li>`);
  return h`<p>${problemWords(p, p.count - arms.length)}</p>${
      p.shape.program ? h`<pre>${statements(p.shape.program)}</pre>` : ""}${
      h`<div class="row">${armsTable(arms, prefix, p)}${
      intervalsChart(p, arms, prefix)}</div>`}${rejected.length ? h`<ul class="no">${rejected}</ul>` : ""}`;
}

function problemItem(p) {
  return h`<details data-problem="${p.number}" id="p${p.number}"><summary><b>${
      p.graph.name}</b> <span>${p.shape.text}</span><em>${
      known(p.share) ? shareText(p.share) + " floor" : ""}</em><em>${
      known(p.rule) ? h`${times(p.rule)}\u00d7 rule${noise(p.gainNoise)}` : ""
      }</em><em>${timeText(p.best.ms)}${
      noise(p.best.noise, p.best.samples)}</em></summary></details>
`;
}

/* Orders of the list: by what, the largest first. */
const ORDERS = {
  place: {text: "by problem and graph"},
  rule: {text: "by gain over the rule", of: p => p.rule},
  time: {text: "by time", of: p => p.best.ms},
  floor: {text: "furthest from the floor", of: p => -p.share},
  noise: {text: "by noise", of: p => p.best.noise},
};

const LISTED = 400;

function problemList(data, words, order) {
  const by = ORDERS[order].of;
  const text = p => [p.graph.name, p.shape.text, p.best.name].join(" ")
      .toLowerCase();
  const found = data.sorted.filter(p => words.every(
      word => text(p).includes(word)));
  if (by)
    found.sort((a, b) => (known(by(b)) ? by(b) : -Infinity) -
               (known(by(a)) ? by(a) : -Infinity) || 0);
  const left = found.length - LISTED;
  return h`${found.slice(0, LISTED).map(problemItem)}${left > 0 ?
      h`<p>${left} more: narrow the filter.</p>` : ""}`;
}

function problemsSection(data) {
  return section("problems", "Problems", h`<p>Each problem opens to its
      variants, the winner first; of variants that cannot be told apart (=, the
      tie set) it is the one that takes least workspace. The first interval is
      that of the median, 95 %; <i>over best</i> is the time over the
      fastest's, by ratios within runs, with its own interval, and is drawn in
      the picture; <i>predicted</i> is the time that the model expects over
      that of its own first choice. A time's \u00b1 is half its 95 % interval,
      and 15\u00d7 says that it is the median of 15 samples.</p>
      <div id="tools"><input id="filter" type="search"
      aria-label="filter problems" placeholder="filter: graph, operator,
      variant \u2026"><select id="order" aria-label="order of problems">${
      Object.keys(ORDERS).map(k => h`<option value="${k}">${
      ORDERS[k].text}</option>`)}</select><button id="open">open shown</button>
      </div><div id="list">${problemList(data, [], "place")}</div>`);
}

/* ---- parameters ---------------------------------------------------------- */

/* A box plot of losses from 1 to 2: the middle half, the median, nine in ten. */
function lossBox(sorted) {
  const axis = {low: 1, high: 2, log: true, from: 2, to: 198};
  const [q0, q1, q2, q3] = [0.25, 0.5, 0.75, 0.9].map(
      share => placeOn(axis, quantile(sorted, share)));
  return h`<svg class="box" width="200" height="12" viewBox="0 0 200 12"
      role="img"><title>middle ${figureText(quantile(sorted, 0.5))}</title>
      <path class="g" d="M2 6H198"/><path class="c0" d="M${px(q0)} 6H${
      px(q3)}"/><rect class="f0" x="${px(q0)}" y="2" width="${
      px(Math.max(q2 - q0, 1))}" height="8"/><path class="m" d="M${
      px(q1)} 1v10"/></svg>`;
}

function parametersSection(data) {
  const families = lossesByParameter(data.problems).map(([family, all], i) => {
    const rows = [];
    for (const [name, values] of all)
      for (const [value, {best, won}] of [...values].sort((a, b) =>
           a[0] - b[0] || compare(a[0], b[0]))) {
        const sorted = [...best.values()].sort((a, b) => a - b);
        const mean = meanOf(sorted);
        rows.push([name + "=" + value, sorted.length, won,
                   h`${mean.value.toFixed(3)}${
                   noise(Math.expm1(1.96 * mean.error))}`,
                   figureText(sorted[sorted.length - 1]), lossBox(sorted)]);
      }
    return h`<details ${i ? "" : "open"}><summary><b>${
        family}</b></summary><div>${table("rank", [["value", "v"], "problems",
        "wins", "mean", "worst", "loss, 1 to 2"], rows)}</div></details>`;
  });
  const winners = winnersOf(data.problems);
  const winning = winners.filter(w => w.wins);
  const tying = winners.filter(w => w.ties).length;
  return section("parameters", "Parameters", h`<p>The loss where a parameter is
      held at one value: for each problem the time of the best variant with
      that value over the fastest of all. A box holds the middle half of the
      problems, its line the middle one, the whisker nine in ten. Problems
      where no variant of the value was measured are left out, so a store that
      keeps only the best variants shows smaller losses than there are.</p>${
      families}<h3>Variants that win</h3><p>${winning.length} variants win a
      problem and ${tying} are in a tie set, of ${winners.length} that are
      measured here and ${data.variants} that the library has. The mean is of
      the time over the fastest's, where the variant is measured.</p>${
      table("rank sort", [["variant", "v"], "wins", "ties", "problems", "mean"],
      winning.map(w => {
        const mean = meanOf(w.losses);
        return [w.name, w.wins, w.ties, w.losses.length, h`${
            mean.value.toFixed(3)}${noise(Math.expm1(1.96 * mean.error))}`];
      }))}`);
}

/* ---- graphs -------------------------------------------------------------- */

const BINS = 24; /* of a histogram; the last one has all larger degrees, too */

function histogram(shares, what) {
  const ticks = [];
  shares.forEach((share, k) => {
    if (k === 0 || k % 3 === 1 || k === BINS - 1)
      ticks.push([k + 0.5, k === BINS - 1 ? "\u2265" + (1 << (k - 1)) :
                  k ? String(1 << (k - 1)) : "0"]);
  });
  return figure(plot({
    width: Math.max(180, 20 * shares.length + 76), height: 170, title: what,
    x: {low: 0, high: shares.length, ticks, label: "degree, from"},
    y: {low: 0, high: 105 * Math.max(...shares, 1e-9), label: "%"},
    marks: [{kind: "bars", colour: 0, bars: shares.map((share, k) =>
        [k + 0.06, 0, k + 0.94, 100 * share, shareText(share)])
        .filter(bar => bar[3] > 0)}],
  }), what);
}

function graphBody(data, g) {
  const near = g.near.map(([n, distance]) => h`<a href="#g${n}">${
      data.graphs[n].name}</a> ${distance.toFixed(2)}`);
  const problems = data.sorted.filter(p => p.graph === g);
  const list = made => made.map((one, i) => i ? h`, ${one}` : one);
  const size = [["destinations", countText(g.destinations)],
                ["sources", countText(g.sources)],
                ["edges", countText(g.edges)],
                ["mean degree", figureText(g.mean)],
                ["degree: middle, 90 %, 99 %, largest",
                 [g.p50, g.p90, g.p99, g.max].map(countText).join(", ")],
                ["variation of degrees", figureText(g.cv)],
                ["rows without edges", shareText(g.isolated)]];
  if (g.max_source > 0 || !g.edges)
    size.push(["degree of sources: middle, 99 %, largest",
               [g.p50_source, g.p99_source, g.max_source].map(countText)
                   .join(", ")]);
  const order = [["reuse (distinct columns over edges, 16 rows)",
                  figureText(g.reuse)],
                 ["locality (edges near the diagonal)", shareText(g.locality)],
                 ["graphs in the batch", countText(g.graphs)],
                 ["nodes of the largest", countText(g.largest)],
                 ["density", figureText(g.density)],
                 ["fingerprint", h`<code>${g.fingerprint}</code>`]];
  return h`<div class="row">${histogram(g.histogram,
      "destinations by degree")}${g.source_histogram ?
      histogram(g.source_histogram, "sources by degree") : ""}${facts(size)}${
      facts(order)}</div>${near.length ? h`<p>Nearest: ${list(near)} (${
      g.near[0][1] > data.trusted ? "all beyond the distance " :
      "trusted up to "}${data.trusted.toFixed(1)}).</p>` : ""}<p>Measured: ${
      problems.length ? list(problems.map(p => h`<a href="#p${p.number}">${
      p.shape.text}</a>`)) : "nothing"}.</p>`;
}

function graphsSection(data) {
  const sorted = data.graphs.slice().sort((a, b) => compare(a.name, b.name));
  return section("graphs", "Graphs", h`<p>Degrees are counted by powers of two:
      a bar from 4 has degrees 4 to 7. A store keeps the histogram of
      destinations; that of sources is shown of graphs that were named on the
      command line. Distances are those by which near graphs answer for one
      another, for one head of 64 features in f32.</p>${sorted.map(g =>
      h`<details data-graph="${g.number}" id="g${g.number}" ${
      g.source_histogram ? "open" : ""}><summary><b>${g.name}</b> <span>${
      countText(g.destinations)} nodes, ${countText(g.edges)} edges, mean degree
      ${figureText(g.mean)}</span> <em>${g.problems} problems</em></summary>${
      g.source_histogram ? h`<div>${graphBody(data, g)}</div>` : ""}</details>
`)}`);
}

/* ---- the time of tuning -------------------------------------------------- */

function costSection(data) {
  const course = courseOf(data.problems);
  const body = course.active > 0 ? figure(plot({
    width: 720, height: 260, title: "Best so far over the time of tuning",
    x: Object.assign(axisOver(course.points.map(p => p[0])),
                     {low: 0, label: "seconds of tuning"}),
    y: Object.assign(axisOver(course.points.map(p => p[1])),
                     {label: "time over the best"}),
    marks: [{kind: "line", colour: 0, points: course.points}],
  }), `The best measured so far over the best of all, geometric mean over the
      ${data.problems.length} problems, which run by the rule before:
      ${secondsText(course.active)} of tuning by time stamps of whole seconds;
      ${secondsText(course.idle)} in pauses of more than ${PAUSE_S} s are left
      out.`) : h`<p>The time stamps of the rows do not differ, so the time of
      tuning is not known.</p>`;
  return section("cost", "The cost of tuning", body);
}

/* ---- graphs without measurements ----------------------------------------- */

function waysTable(judged) {
  const rows = WAYS.map((name, way) => {
    const regrets = judged.map(p => p.regret[way]).filter(known);
    const blind = judged.filter(p => p.chosen[way] &&
                                !known(p.regret[way])).length;
    const mean = meanOf(regrets);
    return regrets.length || blind ? [name, regrets.length, blind,
        h`${figureText(mean.value)}${noise(Math.expm1(1.96 * mean.error))}`,
        shareText(regrets.filter(x => x <= 1.05).length / regrets.length),
        figureText(Math.max(...regrets))] : null;
  });
  return table("rank sort", ["chosen by", "judged", "not measured", "mean",
                             "within 5 %", "worst"], rows.filter(Boolean));
}

function distancesChart(data, judged) {
  const ways = [LEFT_OUT, MODEL, RULE];
  const regrets = ways.flatMap(way => judged.map(p => p.regret[way]))
      .filter(known);
  const far = Math.max(0.1, ...judged.map(p => p.distance));
  const marks = [{kind: "upright", at: data.trusted}], legend = [];
  ways.forEach((way, colour) => {
    const points = judged.filter(p => p.distance >= 0 && known(p.regret[way]))
        .map(p => [p.distance, p.regret[way]]);
    if (!points.length)
      return;
    marks.push({kind: "dots", colour, faint: true, radius: 1.7,
                points: thinned(points, 900)},
               {kind: "line", colour, points: trendOf(points)});
    legend.push([colour, WAYS[way]]);
  });
  if (!legend.length)
    return "";
  return figure(plot({
    width: 720, height: 320, right: WIDTH > 600 ? 210 : 16,
    title: "Regret by the distance to the nearest measured graph",
    x: {low: 0, high: Math.min(far, 4),
        label: "distance to the nearest other graph"},
    y: {low: 1, high: Math.min(Math.max(1.2, ...regrets), 8), log: true,
        label: "time over the best"},
    marks, legend,
  }), "A dot is a problem; lines are geometric means of eighths of the " +
      "problems, by distance. Near graphs answer up to the dashed line.");
}

function calibrationChart(data, judged) {
  const {points, pairs, right} = calibrationOf(judged, data.margin);
  if (!points.length)
    return h`<p>No model predicts these problems.</p>`;
  return figure(plot({
    width: 620, height: 320, title: "Measured time by the predicted one",
    x: {low: 0.7, high: 3, log: true,
        label: "predicted time over that of the best"},
    y: {low: 0.95, high: 3, log: true, label: "measured time over the best"},
    marks: [{kind: "line", colour: 7, points: [[1, 1], [3, 3]]},
            {kind: "dots", colour: 0, faint: true, radius: 1.7,
             points: thinned(points, 900)},
            {kind: "line", colour: 0, points: trendOf(points)}],
  }), h`A dot is a variant of a problem, what is beyond the axes at their ends;
      the line gives geometric means of eighths, the grey one is a perfect
      model. Of ${countText(pairs)} pairs that differ by more than ${
      shareText(2 * data.margin)} the model puts ${shareText(right / pairs)} in
      the measured order. It may know these graphs.`);
}

function unseenSection(data) {
  const judged = data.problems.filter(p => p.regret.length);
  const worst = judged.filter(p => known(p.regret[LEFT_OUT]))
      .sort((a, b) => b.regret[LEFT_OUT] - a.regret[LEFT_OUT]).slice(0, 10);
  return section("unseen", "Graphs without measurements", h`<p>The time of the
      choice over that of the best measured variant, on the ${judged.length}
      problems that were judged. Near graphs and the rule are judged with the
      graph's own rows hidden; the model may know the graph. A choice that was
      not measured on the graph cannot be judged: in a store that keeps only
      the best variants, such choices are the bad ones, and the more there are
      (<i>not measured</i>), the more the means flatter.</p>${waysTable(judged)}
      <div class="row">${distancesChart(data, judged)}${
      calibrationChart(data, judged)}</div><h3>The worst ten</h3><p>The problems
      where leaving the graph out would have cost most.</p>${
      table("rank sort", [["problem", "k"], "distance", "answered by",
      "left out", "model", "rule", ["chosen", "v"]], worst.map(p => [
        problemLink(p), p.distance < 0 ? DASH : figureText(p.distance),
        p.left_out, ...[LEFT_OUT, MODEL, RULE].map(
            way => figureText(p.regret[way])), p.chosen[LEFT_OUT]]))}`);
}

/* ---- against another store ----------------------------------------------- */

const VERDICTS = ["faster", "slower", "same", "ambiguous"];
const VERDICT_COLOURS = [2, 6, 7, 4];

function againstSection(data) {
  const a = data.against;
  const pairs = a.pairs.map(
      ([verdict, problem, graph, shape, here, there, ratio, low, high, kept,
        winner, other]) => ({
        verdict, problem: data.problems[problem], here, there, ratio, low, high,
        kept, winner: data.names[winner], other: data.names[other],
        text: data.graphs[graph].name + ", " + data.shapes[shape].text}));
  const listed = pairs.filter(x => VERDICTS[x.verdict] !== "same" ||
                              x.winner !== x.other);
  const list = (name, devices) => h`<li>${name}: ${devices.map((v, i) => h`${
      i ? "; " : ""}${v.model}, driver ${v.driver || "none"}, runtime ${
      v.runtime}, dfgnn ${v.library} (${v.problems} problems)`)}</li>`;
  const mean = {value: a.mean, error: a.error};
  const picture = pairs.length ? figure(plot({
    width: 640, height: 320, right: 130,
    title: "Times of the winners in both",
    x: Object.assign(axisOver(pairs.map(x => x.there), true),
                     {label: "ms in the other"}),
    y: Object.assign(axisOver(pairs.map(x => x.ratio).concat([0.9, 1.1]), true),
                     {label: "time here over there"}),
    marks: [{kind: "level", at: 1}, ...VERDICTS.map((_, v) => ({
      kind: "dots", colour: VERDICT_COLOURS[v], radius: 2.2,
      points: pairs.filter(x => x.verdict === v)
          .map(x => [x.there, x.ratio])}))],
    legend: VERDICTS.map((name, v) => [VERDICT_COLOURS[v], name]),
  }), `${pairs.length} of ${a.compared} problems, those that changed most.`) :
      "";
  return section("against", "Against another store", h`<p>Winners of the
      problems that both stores have, by their 95 % intervals: those that
      became faster or slower are apart by more than the margin of a tie (${
      (100 * data.margin).toFixed(1)} %), the same ones are within it, and of
      the ambiguous ones the intervals cannot tell. Ratios are of times here
      over there, below 1 is faster; runs of different days differ by their
      clocks, too. <i>The other's winner</i> compares the same variant in both:
      it tells a kernel that changed from a choice that changed.</p>
      <div class="tiles">${VERDICTS.map((name, v) => tile(a[name], name,
      "j" + v))}${tile(a.winners, "winners changed")}${known(a.mean) ?
      tile(figureText(a.mean), "time here over there, geometric mean of " +
      `${a.compared}, ${range(mean)}`) : ""}</div><ul>${
      list("here", data.devices)}${list("the other", a.devices)}<li>${
      a.shared} problems are in both; ${a.here} are here alone, ${a.there} there
      alone</li></ul>${picture}${listed.length ? table("rank sort",
      ["verdict", ["problem", "k"], "here", "there", "ratio", "interval",
       "the other's winner", ["winner there", "v"],
       ["winner here, if it changed", "v"]], listed.map(x => ({
        kind: "j" + x.verdict,
        cells: [VERDICTS[x.verdict], x.problem ? h`<a href="#p${
                x.problem.number}">${x.text}</a>` : x.text, timeText(x.here),
                timeText(x.there), x.ratio.toFixed(3),
                x.low.toFixed(3) + DASH + x.high.toFixed(3),
                figureText(x.kept), x.other,
                x.winner === x.other ? "" : x.winner]}))) : ""}<p>Not listed: ${
      a.compared - listed.length} problems that changed less, or that the same
      variant wins in the same time.</p>`);
}

/* ---- the page ------------------------------------------------------------ */

/* [id, title, text] of the sections that the data fills. */
function sections(data) {
  const some = data.problems.length > 0;
  return [["against", "Against another store", againstSection, data.against],
          ["map", "Map", mapSection, some],
          ["problems", "Problems", problemsSection, some],
          ["parameters", "Parameters", parametersSection, some],
          ["graphs", "Graphs", graphsSection, data.graphs.length],
          ["cost", "Cost", costSection, some],
          ["unseen", "Unseen", unseenSection, some]]
      .filter(([, , , shown]) => shown);
}

function renderPage(data) {
  return h`${head(data)}${sections(data).map(([, , draw]) => draw(data))}`;
}

function renderNav(data) {
  return h`<a href="#head">dfgnn</a>${sections(data).map(([id, title]) =>
      h`<a href="#${id}">${title}</a>`)}`;
}
