(function () {
  "use strict";
  var root = document.documentElement, list = document.getElementById("list");
  root.classList.add("js");

  /* Numbers with units, as the page writes them: "8.2 us" is 8.2e-6. */
  var units = {ns: 1e-9, "\u00b5s": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600,
               kB: 1e3, MB: 1e6, GB: 1e9};
  function value(text) {
    var m = /^[\u00b1=]?\s*(-?[\d.]+(?:e[+-]?\d+)?)\s*(\S*)/.exec(text.trim());
    return m ? +m[1] * (units[m[2]] || 1) : NaN;
  }
  function order(a, b) {
    var x = value(a), y = value(b);
    if (isNaN(x) || isNaN(y))
      return isNaN(x) && isNaN(y) ? a.localeCompare(b) : isNaN(x) ? 1 : -1;
    return x - y;
  }

  /* Tables: a click on a heading sorts by its column, a second one turns. */
  document.querySelectorAll("table.sort").forEach(function (table) {
    table.querySelectorAll("thead th").forEach(function (head, column) {
      head.tabIndex = 0;
      function sort() {
        var up = head.getAttribute("aria-sort") !== "ascending";
        var body = table.tBodies[0], rows = Array.from(body.rows);
        table.querySelectorAll("th").forEach(function (h) {
          h.removeAttribute("aria-sort");
        });
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        rows.sort(function (a, b) {
          var c = order(a.cells[column].textContent,
                        b.cells[column].textContent);
          return up ? c : -c;
        });
        rows.forEach(function (row) { body.appendChild(row); });
      }
      head.addEventListener("click", sort);
      head.addEventListener("keydown", function (e) {
        if (e.key === "Enter") sort();
      });
    });
  });

  /* Problems: a filter of words, an order, all open or closed. */
  if (list) {
    var items = Array.from(list.children), tools = document.getElementById("tools");
    var filter = document.createElement("input");
    filter.type = "search";
    filter.placeholder = "filter: graph, operator, variant \u2026";
    filter.setAttribute("aria-label", "filter problems");
    var by = document.createElement("select");
    by.setAttribute("aria-label", "order of problems");
    [["", "by problem and graph"], ["rule", "by gain over the rule"],
     ["time", "by time"], ["floor", "by share of the floor"]].forEach(function (o) {
      by.add(new Option(o[1], o[0]));
    });
    var open = document.createElement("button");
    open.textContent = "open shown";
    var count = document.createElement("span");
    var shown = function () {
      return items.filter(function (item) { return !item.hidden; });
    };
    var text = items.map(function (item) {
      return item.textContent.toLowerCase();
    });
    var narrow = function () {
      var words = filter.value.toLowerCase().split(/\s+/);
      items.forEach(function (item, i) {
        item.hidden = !words.every(function (word) {
          return text[i].indexOf(word) >= 0;
        });
      });
      count.textContent = shown().length + " of " + items.length;
    };
    filter.addEventListener("input", narrow);
    by.addEventListener("change", function () {
      var key = by.value, sorted = items.slice();
      function figure(item) { /* in the summary, such as "1.13x rule" */
        var all = Array.from(item.querySelectorAll("summary em"));
        var found = all.filter(function (em, i) {
          return key === "time" ? !i : em.textContent.indexOf(key) > 0;
        })[0];
        return found ? value(found.textContent) : -1;
      }
      if (key)
        sorted.map(function (item) { return [figure(item), item]; })
            .sort(function (a, b) { return b[0] - a[0]; })
            .forEach(function (pair, i) { sorted[i] = pair[1]; });
      sorted.forEach(function (item) { list.appendChild(item); });
    });
    open.addEventListener("click", function () {
      var some = shown().slice(0, 200);
      var to = !some.every(function (item) { return item.open; });
      some.forEach(function (item) { item.open = to; });
    });
    tools.append(filter, by, open, count);
    narrow();
  }

  /* A link into details opens them. */
  function reveal() {
    var target = location.hash && document.getElementById(location.hash.slice(1));
    var details = target && target.closest("details");
    if (details) {
      details.hidden = false;
      details.open = true;
      details.scrollIntoView();
    }
  }
  addEventListener("hashchange", reveal);
  reveal();
})();
