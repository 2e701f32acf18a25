/* start.js - puts the page into the document, and answers the reader's hand */
"use strict";

(function () {
  const at = id => document.getElementById(id);
  const data = readData(JSON.parse(at("data").textContent));
  const fill = (place, markup) => { place.innerHTML = String(markup); };

  WIDTH = Math.max(320, Math.min(720, at("page").clientWidth));
  fill(at("nav"), renderNav(data));
  fill(at("page"), renderPage(data));

  /* Problems and graphs are drawn when they are opened. */
  function open(details) {
    const {problem, graph} = details.dataset;
    if (details.children.length > 1 || !(problem || graph))
      return;
    const body = document.createElement("div");
    fill(body, problem ? problemBody(data, data.problems[problem]) :
         graphBody(data, data.graphs[graph]));
    details.append(body);
    watch(body);
  }
  document.addEventListener("toggle", event => {
    if (event.target.open)
      open(event.target);
  }, true);

  /* A link into details opens them. */
  function reveal() {
    const id = location.hash.slice(1);
    let target = id && at(id);
    if (!target && /^p\d+$/.test(id) && at("filter")) {
      const p = data.problems[id.slice(1)];
      if (p) {
        at("filter").value = p.graph.name + " " + p.shape.text;
        list();
        target = at(id);
      }
    }
    const details = target && target.closest("details");
    if (details) {
      details.open = true;
      open(details);
      details.scrollIntoView();
    }
  }
  addEventListener("hashchange", reveal);

  /* The list of problems, and the map's cells. */
  function list() {
    const words = at("filter").value.toLowerCase().split(/[\s,]+/);
    fill(at("list"), problemList(data, words, at("order").value));
  }
  if (at("filter")) {
    at("filter").addEventListener("input", list);
    at("order").addEventListener("change", list);
    at("open").addEventListener("click", () => {
      const some = [...at("list").querySelectorAll("details")].slice(0, 200);
      const to = !some.every(item => item.open);
      some.forEach(item => { item.open = to; });
    });
    at("show").addEventListener("change", () => {
      fill(at("cells"), mapTable(data, at("show").value));
      watch(at("cells"));
    });
  }

  /* Shadows where a table scrolls. */
  function shade(wide) {
    const most = wide.scrollWidth - wide.clientWidth;
    const frame = wide.parentNode.classList;
    frame.toggle("left", wide.scrollLeft > 2);
    frame.toggle("right", wide.scrollLeft < most - 2);
    frame.toggle("down", wide.scrollTop > 2);
  }
  function watch(place) {
    for (const wide of place.querySelectorAll(".wide")) {
      wide.addEventListener("scroll", () => shade(wide));
      shade(wide);
    }
    place.querySelectorAll("table.sort thead th").forEach(sortable);
  }
  addEventListener("resize", () =>
      document.querySelectorAll(".wide").forEach(shade));

  /* A click on a heading sorts by its column, a second one turns. */
  const units = {ns: 1e-9, "\u00b5s": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600,
                 kB: 1e3, MB: 1e6, GB: 1e9};
  function value(text) {
    const m = /^\s*(-?[\d.]+(?:e[+-]?\d+)?)\s*(\S*)/.exec(text);
    return m ? +m[1] * (units[m[2]] || 1) : NaN;
  }
  function order(a, b) {
    const x = value(a), y = value(b);
    if (isNaN(x) || isNaN(y))
      return isNaN(x) && isNaN(y) ? compare(a, b) : isNaN(x) ? 1 : -1;
    return x - y;
  }
  function sortable(cell) {
    function sort() {
      const up = cell.getAttribute("aria-sort") !== "ascending";
      const body = cell.closest("table").tBodies[0];
      const rows = [...body.rows], column = cell.cellIndex;
      for (const other of cell.parentNode.cells)
        other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      rows.sort((a, b) => (up ? 1 : -1) * order(a.cells[column].textContent,
                                                b.cells[column].textContent));
      body.append(...rows);
    }
    cell.tabIndex = 0;
    cell.addEventListener("click", sort);
    cell.addEventListener("keydown", event => {
      if (event.key === "Enter")
        sort();
    });
  }

  watch(document);
  reveal();
})();
