/* chart.js - text that is escaped, numbers as people read them, and charts as
 * SVG
 *
 * Nothing here knows of documents. */
"use strict";

/* ---- markup -------------------------------------------------------------- */

class Markup {
  constructor(text) { this.text = text; }
  toString() { return this.text; }
}

function escaped(x) {
  if (x instanceof Markup)
    return x.text;
  if (Array.isArray(x))
    return x.map(escaped).join("");
  if (x === null || x === undefined || x === false)
    return "";
  return String(x).replace(/[&<>"']/g, c => "&#" + c.charCodeAt(0) + ";");
}

/* h`<b>${x}</b>` is markup in which x, unless it is markup, is text; where a
 * line of it is broken and the next one indented, there is a blank. */
function h(texts, ...values) {
  return new Markup(texts.map(text => text.replace(/\n\s+/g, " ")).reduce(
      (made, text, i) => made + escaped(values[i - 1]) + text));
}

/* ---- numbers ------------------------------------------------------------- */

const DASH = "\u2013";

function known(x) { return typeof x === "number" && isFinite(x); }

function scaled(x, units) {
  if (!known(x))
    return DASH;
  const [size, name] = units.find(u => Math.abs(x) >= u[0]) ||
      units[units.length - 1];
  const y = x / size, digits = Math.abs(y) < 9.995 ? 2 :
      Math.abs(y) < 99.95 ? 1 : 0;
  return y.toFixed(digits) + "\u00a0" + name;
}

function timeText(ms) {
  return scaled(ms, [[1e3, "s"], [1, "ms"], [1e-3, "\u00b5s"], [1e-6, "ns"]]);
}

function secondsText(s) {
  return scaled(s, [[3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"]]);
}

function bytesText(b) {
  return b === 0 ? "0" :
      scaled(b, [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]);
}

function figureText(x) {
  if (!known(x))
    return DASH;
  return Math.abs(x) >= 999.5 && Math.abs(x) < 1e6 ? x.toFixed(0) :
      String(+x.toPrecision(3));
}

function shareText(x) {
  return known(x) ? (100 * x).toFixed(x < 0.0995 ? 1 : 0) + "\u00a0%" : DASH;
}

function countText(n) { return String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f"); }

function dayText(seconds) {
  return seconds > 0 ? new Date(1000 * seconds).toISOString().slice(0, 10) :
      DASH;
}

/* ---- axes ---------------------------------------------------------------- */

/* An axis over the values: the range of those that are finite, and above zero
 * on a logarithmic axis, and a little more. */
function axisOver(values, log) {
  const used = values.filter(x => known(x) && (!log || x > 0));
  let low = Infinity, high = -Infinity;
  for (const x of used) {
    low = Math.min(low, x);
    high = Math.max(high, x);
  }
  if (!(low <= high))
    low = high = 1;
  if (log) {
    const edge = Math.max(Math.pow(high / low, 0.04), 1.02);
    return {log, low: low / edge, high: high * edge};
  }
  const edge = Math.max(0.04 * (high - low),
                        1e-3 * Math.max(Math.abs(high), 1e-9));
  return {log, low: low >= 0 && low < edge ? 0 : low - edge, high: high + edge};
}

/* The place of a value between the axis' ends at pixels from and to; values
 * beyond an end are at it. */
function placeOn(axis, value) {
  const share = axis.log ?
      Math.log(value / axis.low) / Math.log(axis.high / axis.low) :
      (value - axis.low) / (axis.high - axis.low);
  return axis.from +
      Math.min(Math.max(share || 0, 0), 1) * (axis.to - axis.from);
}

const MOST_TICKS = 32;

function linearTicks(axis) {
  const range = axis.high - axis.low;
  if (!(range > 0) || !isFinite(range))
    return [];
  const power = Math.pow(10, Math.floor(Math.log10(range / 5)));
  const step = power * ([1, 2, 2.5, 5, 10].find(s => range / (s * power) <= 7)
                        || 10);
  const ticks = [];
  for (let k = Math.ceil(axis.low / step - 1e-9), n = 0; n < MOST_TICKS &&
       k * step <= axis.high + 1e-9 * range; k++, n++)
    ticks.push(k * step + 0);
  return ticks;
}

function logTicks(axis) {
  const low = Math.log10(axis.low), high = Math.log10(axis.high);
  const decades = high - low;
  if (!(decades > 0) || !isFinite(decades))
    return [];
  const digits = decades < 0.7 ?
      [1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9] :
      decades < 1.5 ? [1, 2, 3, 5, 7] : decades < 4 ? [1, 2, 5] : [1];
  const step = Math.max(1, Math.ceil(decades / MOST_TICKS)), ticks = [];
  for (let e = Math.floor(low); e <= high && ticks.length < MOST_TICKS;
       e += step)
    for (const digit of digits) {
      const x = +(digit + "e" + e);
      if (x >= axis.low * (1 - 1e-9) && x <= axis.high * (1 + 1e-9))
        ticks.push(x);
    }
  return ticks.slice(0, MOST_TICKS);
}

function ticksOf(axis) { return axis.log ? logTicks(axis) : linearTicks(axis); }

function tickText(x) { return String(+x.toPrecision(5)); }

/* ---- charts -------------------------------------------------------------- */

function px(x) { return x.toFixed(1); }

function label(x, y, anchor, text, turn) {
  return h`<text x="${px(x)}" y="${px(y)}" text-anchor="${anchor}"${
      turn ? h` transform="rotate(${turn} ${px(x)} ${px(y)})"` : ""}>${
      text}</text>`;
}

/* What is drawn in a chart's plane; c is the chart. */
const MARKS = {
  /* points [[x, y], ...]; one that is not known interrupts the line */
  line(c, mark) {
    let path = "", drawing = false;
    for (const [x, y] of mark.points) {
      const point = isPoint(c, x, y);
      if (point)
        path += (drawing ? "L" : "M") + px(placeOn(c.x, x)) + " " +
            px(placeOn(c.y, y));
      drawing = point;
    }
    return h`<path class="l c${mark.colour}" d="${path}"/>`;
  },
  dots(c, mark) {
    const path = mark.points.filter(([x, y]) => isPoint(c, x, y)).map(
        ([x, y]) => "M" + px(placeOn(c.x, x)) + " " + px(placeOn(c.y, y)) +
        "h0").join("");
    return h`<path class="d c${mark.colour}${mark.faint ? " faint" : ""}"
        stroke-width="${px(2 * (mark.radius || 2))}" d="${path}"/>`;
  },
  /* bars [[x0, y0, x1, y1, title], ...] */
  bars(c, mark) {
    return mark.bars.map(([x0, y0, x1, y1, title]) => {
      const left = placeOn(c.x, x0), top = placeOn(c.y, y1);
      return h`<rect class="f${mark.colour}" x="${px(left)}" y="${px(top)}"
          width="${px(Math.max(placeOn(c.x, x1) - left, 0.5))}"
          height="${px(placeOn(c.y, y0) - top)}">${
          title ? h`<title>${title}</title>` : ""}</rect>`;
    });
  },
  /* spans [[low, middle, high, y], ...]: intervals with their middles */
  spans(c, mark) {
    const at = x => px(placeOn(c.x, x));
    const bars = mark.spans.map(([low, , high, y]) => "M" + at(low) + " " +
        px(placeOn(c.y, y)) + "H" + at(high)).join("");
    const dots = mark.spans.map(([, middle, , y]) => "M" + at(middle) + " " +
        px(placeOn(c.y, y)) + "h0").join("");
    return h`<path class="i c${mark.colour}" d="${bars}"/><path class="d c${
        mark.colour}" stroke-width="6" d="${dots}"/>`;
  },
  level(c, mark) {
    return h`<path class="v" d="M${px(c.x.from)} ${
        px(placeOn(c.y, mark.at))}H${px(c.x.to)}"/>`;
  },
  upright(c, mark) {
    const x = placeOn(c.x, mark.at);
    return h`<path class="v" d="M${px(x)} ${px(c.y.from)}V${px(c.y.to)}"/>${
        mark.text ? label(x + 3, c.y.to + 9 + (mark.drop || 0), "start", mark.text)
        : ""}`;
  },
};

function isPoint(c, x, y) {
  return known(x) && known(y) && !(c.x.log && x <= 0) && !(c.y.log && y <= 0);
}

function frame(c) {
  const rows = (c.y.ticks || ticksOf(c.y).map(y => [y, tickText(y)])).map(
      ([y, text]) => h`<path class="g" d="M${px(c.x.from)} ${
      px(placeOn(c.y, y))}H${px(c.x.to)}"/>${
      label(c.x.from - 6, placeOn(c.y, y) + 4, "end", text)}`);
  const columns = (c.x.ticks || ticksOf(c.x).map(x => [x, tickText(x)])).map(
      ([x, text]) => {
        const at = placeOn(c.x, x);
        return c.x.turn ? label(at, c.y.from + 14, "end", text, -30) :
            h`<path class="g" d="M${px(at)} ${px(c.y.from)}V${px(c.y.to)}"/>${
            label(at, c.y.from + 17, "middle", text)}`;
      });
  const middle = (c.x.from + c.x.to) / 2;
  return h`${rows}${columns}<path class="a" d="M${px(c.x.from)} ${
      px(c.y.to)}V${px(c.y.from)}H${px(c.x.to)}"/>${
      c.x.label ? label(middle, c.height - 6, "middle", c.x.label) : ""}${
      c.y.label ? label(14, (c.y.from + c.y.to) / 2, "middle", c.y.label, -90)
      : ""}`;
}

/* A chart: {title, width, height, x, y, marks, legend}.
 *
 * x, y: {low, high, log, label, ticks, turn} as of axisOver; ticks [[value,
 *     text], ...] stand in place of round values.
 * marks: {kind, colour, ...} of MARKS, kind being the function's name.
 * legend: [[colour, text], ...].
 * left, right, top, bottom: margins. */
function chart(c) {
  c = Object.assign({left: 58, right: 16, top: 10, bottom: 42}, c);
  c.x = Object.assign({}, c.x, {from: c.left, to: c.width - c.right});
  c.y = Object.assign({}, c.y, {from: c.height - c.bottom, to: c.top});
  const legend = (c.legend || []).map(([colour, text], n) => {
    const x = c.right > 60 ? c.x.to + 12 : c.x.from + 12;
    const y = c.y.to + 12 + 18 * n;
    return h`<path class="l c${colour}" d="M${px(x)} ${px(y - 4)}h18"/>${
        label(x + 24, y, "start", text)}`;
  });
  return h`<svg class="chart" width="${c.width}" viewBox="0 0 ${c.width} ${
      c.height}" role="img"><title>${c.title}</title>${frame(c)}${
      c.marks.map(mark => MARKS[mark.kind](c, mark))}${legend}</svg>
`;
}
