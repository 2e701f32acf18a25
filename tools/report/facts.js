/* facts.js - what the page says of its data beyond the data itself */
"use strict";

/* Ways to choose without having measured, in the order of a problem's "chosen"
 * and "regret". */
const WAYS = ["near graphs, else the model or the rule", "the model",
              "best of the portfolio", "the rule", "the paper's rule"];
const LEFT_OUT = 0, MODEL = 1, RULE = 3;

/* The geometric mean of what is finite and above zero, and the standard error
 * of its logarithm. */
function meanOf(values) {
  const logs = values.filter(x => known(x) && x > 0).map(Math.log);
  const count = logs.length;
  if (!count)
    return {value: NaN, error: NaN, count};
  const mean = logs.reduce((a, b) => a + b, 0) / count;
  const squares = logs.reduce((a, b) => a + (b - mean) * (b - mean), 0);
  return {value: Math.exp(mean), count,
          error: count > 1 ? Math.sqrt(squares / count / (count - 1)) : NaN};
}

/* The value below which a share of the sorted values lies. */
function quantile(sorted, share) {
  const at = share * (sorted.length - 1), low = Math.floor(at);
  const high = Math.min(low + 1, sorted.length - 1);
  return sorted[low] + (at - low) * (sorted[high] - sorted[low]);
}

function compare(a, b) { return a < b ? -1 : a > b ? 1 : 0; }

function readArm(data, list) {
  const [name, ms, noise, log, error, tied, samples, workspace, predicted, time,
         loud] = list;
  return {name: data.names[name], ms, noise: samples > 1 ? noise : NaN, log, ratio: Math.exp(log), error,
          tied: tied === 1, samples, workspace, predicted, time,
          loud: ["", "wide", "disturbed", "one sample"][loud] || ""};
}

/* Turns numbers of names, graphs and shapes into what they stand for, and
 * orders the problems by shape and graph. */
function readData(data) {
  data.graphs.forEach((graph, number) => { graph.number = number; });
  data.shapes.forEach((shape, number) => {
    shape.number = number;
    shape.on = data.devices[shape.device] || {};
  });
  data.problems.forEach((p, number) => {
    p.number = number;
    p.graph = data.graphs[p.graph];
    p.shape = data.shapes[p.shape];
    p.arms = p.arms.map(arm => readArm(data, arm));
    p.rejected = p.rejected.map(list => list.map(n => data.names[n]));
    p.chosen = (p.chosen || []).map(n => data.names[n]);
    p.regret = p.regret || [];
    p.best = p.arms[0];
    const gbps = p.shape.on.gbps;
    p.floor = gbps && known(p.bytes) ? 1e-6 * p.bytes / gbps : NaN;
    p.gathered = gbps && known(p.gather) ? 1e-6 * p.gather / gbps : NaN;
    p.share = p.floor / p.best.ms;
    const rule = p.arms.find(arm => arm.name === p.chosen[RULE]);
    p.gainNoise = Math.expm1(1.96 * Math.hypot(p.best.error || 0,
                                               rule ? rule.error || 0 : 0));
  });
  data.sorted = data.problems.slice().sort((a, b) =>
      compare(a.shape.device, b.shape.device) ||
      compare(a.shape.text, b.shape.text) ||
      compare(a.graph.name, b.graph.name) || a.number - b.number);
  return data;
}

/* For each family and parameter the losses with each value: of each problem
 * the time of the best variant with it over the fastest of all. */
function lossesByParameter(problems) {
  const families = new Map();
  const at = (map, key, make) => {
    if (!map.has(key))
      map.set(key, make());
    return map.get(key);
  };
  for (const p of problems)
    p.arms.forEach((arm, rank) => {
      const [family, parameters] = arm.name.split("/");
      const mine = at(families, family, () => new Map());
      for (const parameter of parameters ? parameters.split(",") : []) {
        const [name, value] = parameter.split("=");
        const one = at(at(mine, name, () => new Map()), value,
                       () => ({best: new Map(), won: 0}));
        one.won += rank === 0;
        if (!(one.best.get(p.number) <= arm.ratio))
          one.best.set(p.number, arm.ratio);
      }
    });
  for (const parameters of families.values())
    for (const [name, values] of parameters)
      if (values.size < 2)
        parameters.delete(name);
  return [...families].filter(([, parameters]) => parameters.size)
      .sort((a, b) => compare(a[0], b[0]));
}

function winnersOf(problems) {
  const all = new Map();
  for (const p of problems)
    p.arms.forEach((arm, rank) => {
      const w = all.get(arm.name) ||
          {name: arm.name, wins: 0, ties: 0, losses: []};
      all.set(arm.name, w);
      w.wins += rank === 0;
      w.ties += arm.tied;
      w.losses.push(arm.ratio);
    });
  return [...all.values()].sort((a, b) => b.wins - a.wins || b.ties - a.ties ||
                                compare(a.name, b.name));
}

/* If no row was written for so many seconds, tuning paused. */
const PAUSE_S = 60;

/* The course of tuning: [seconds, geometric mean over the problems of the best
 * so far over the best of all].  Before anything is measured a problem runs by
 * the rule, or by the slowest variant if the rule's was not measured. */
function courseOf(problems) {
  const events = [];
  const now = problems.map(p => known(p.regret[RULE]) ?
      Math.log(p.regret[RULE]) : Math.max(...p.arms.map(arm => arm.log)));
  problems.forEach((p, i) => p.arms.forEach(arm => {
    if (arm.time >= 0)
      events.push([arm.time, i, arm.log]);
  }));
  events.sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]);
  let sum = now.reduce((a, b) => a + b, 0), active = 0, idle = 0;
  const points = [];
  events.forEach(([time, i, log], k) => {
    const gap = k ? time - events[k - 1][0] : 0;
    if (gap <= PAUSE_S)
      active += gap;
    else
      idle += gap;
    if (log < now[i]) {
      sum += log - now[i];
      now[i] = log;
    }
    if (k + 1 === events.length || events[k + 1][0] !== time)
      points.push([active, Math.exp(sum / problems.length)]);
  });
  return {points: thinned(points, 300), active, idle};
}

function thinned(list, most) {
  return list.length <= most ? list : Array.from({length: most}, (_, k) =>
      list[Math.floor(k * (list.length - 1) / (most - 1))]);
}

/* Geometric means of eighths of the points, by x. */
function trendOf(points) {
  const sorted = points.slice().sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const made = [];
  for (let k = 0; k < 8; k++) {
    const part = sorted.slice(Math.floor(k * sorted.length / 8),
                              Math.floor((k + 1) * sorted.length / 8));
    if (part.length)
      made.push([part.reduce((sum, p) => sum + p[0], 0) / part.length,
                 meanOf(part.map(p => p[1])).value]);
  }
  return made;
}

/* Predicted and measured times over the measured best's, and how many pairs of
 * a problem's variants, of those that differ by more than a tie, the model puts
 * in the measured order. */
function calibrationOf(problems, margin) {
  const points = [];
  let pairs = 0, right = 0;
  for (const p of problems) {
    const arms = p.arms.filter(arm => known(arm.predicted));
    const best = arms.find(arm => arm.log === 0);
    arms.forEach((arm, i) => {
      if (best && arm !== best)
        points.push([arm.predicted / best.predicted, arm.ratio]);
      for (let k = 0; k < i; k++) {
        const measured = arm.log - arms[k].log;
        const predicted = arm.predicted - arms[k].predicted;
        if (Math.abs(measured) < 2 * margin || predicted === 0)
          continue;
        pairs++;
        right += (measured > 0) === (predicted > 0);
      }
    });
  }
  return {points, pairs, right};
}
