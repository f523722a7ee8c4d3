"use strict";
// Completions may be hostile: the page inserts them through textContent only, never as markup.
(() => {
  const ROWS = 50; // rows per page: the list stays fast with 50,000 rollouts
  const at = (id) => document.getElementById(id);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const add = (parent, tag, text, className) => {
    const node = parent.appendChild(document.createElement(tag));
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    return node;
  };

  function theme() {
    for (const chart of document.querySelectorAll(".js-plotly-plot")) {
      const axis = (name) => ({ [`${name}.gridcolor`]: colour("--line"), [`${name}.zerolinecolor`]: colour("--line"), [`${name}.linecolor`]: colour("--line") });
      Plotly.relayout(chart, { "font.color": colour("--ink"), "hoverlabel.bgcolor": colour("--panel"), ...axis("xaxis"), ...axis("yaxis") });
    }
  }

  function inspector() {
    const store = (step) => at(`step-${step}`);
    const steps = JSON.parse(at("steps").textContent);
    let groups = [], group = null, rows = [], page = 0;

    const parsed = new Map(); // a step is parsed when it is shown
    function readStep(step) {
      if (!parsed.has(step)) parsed.set(step, JSON.parse(store(step).textContent));
      return parsed.get(step);
    }

    function showStep() {
      groups = readStep(at("step").value);
      const index = steps.indexOf(Number(at("step").value));
      at("previous").disabled = index <= 0;
      at("next").disabled = index >= steps.length - 1;
      at("group").replaceChildren();
      groups.forEach((one, i) => {
        const right = one.correct.filter(Boolean).length;
        const option = add(at("group"), "option", `${i + 1}: ${one.id || "prompt"} (${right} of ${one.total.length} correct)`);
        option.value = i;
      });
      showGroup();
    }

    function showGroup() {
      group = groups[Number(at("group").value) || 0];
      const n = group.total.length, mean = group.total.reduce((a, b) => a + b, 0) / n;
      group.isKept = new Set(group.kept);
      at("summary").textContent =
        `${n} rollouts, ${group.kept.length} kept, ${group.correct.filter(Boolean).length} correct; mean reward ${mean.toFixed(3)}`;
      at("prompt-text").textContent = group.prompt || "(the ledger has no text of this prompt)";
      at("gold").textContent = group.answer;
      histogram();
      choose();
    }

    function choose() {
      const kinds = {
        all: () => true,
        kept: (i) => group.isKept.has(i),
        dropped: (i) => !group.isKept.has(i),
        correct: (i) => group.correct[i],
        wrong: (i) => !group.correct[i],
      };
      rows = group.total.map((_, i) => i).filter(kinds[at("filter").value]);
      const sign = { down: -1, up: 1, index: 0 }[at("order").value];
      rows.sort((a, b) => sign * (group.total[a] - group.total[b]) || a - b);
      page = 0;
      list();
    }

    function list() {
      const names = Object.keys(group.rewards), pages = Math.max(1, Math.ceil(rows.length / ROWS));
      const columns = `48px 70px repeat(${names.length}, 92px) 64px 190px minmax(120px, 1fr)`;
      const head = at("head");
      head.style.gridTemplateColumns = columns;
      head.replaceChildren();
      for (const name of ["#", "reward", ...names, "tokens", "why", "text"]) add(head, "span", name);
      const box = at("rollouts");
      box.replaceChildren();
      for (const i of rows.slice(page * ROWS, (page + 1) * ROWS)) line(box, i, names, columns);
      at("page").textContent = `${rows.length} rollouts, page ${page + 1} of ${pages}`;
      at("page-back").disabled = page === 0;
      at("page-on").disabled = page >= pages - 1;
    }

    function line(box, i, names, columns) {
      const item = add(box, "details", undefined, group.isKept.has(i) ? "kept" : "dropped");
      const head = add(item, "summary", undefined, "line");
      head.style.gridTemplateColumns = columns;
      add(head, "span", i);
      add(head, "span", group.total[i].toFixed(3), group.correct[i] ? "correct" : "");
      for (const name of names) add(head, "span", group.rewards[name][i].toFixed(3));
      add(head, "span", group.lengths[i] ?? "");
      const why = add(head, "span", group.reasons[group.why[i]]);
      why.title = why.textContent;
      const text = group.completions ? group.completions[i] : "(the ledger has no text; train with ledger.texts=all)";
      add(head, "span", text.slice(0, 200), "text");
      item.addEventListener("toggle", () => {
        if (item.open && !item.querySelector("pre")) add(item, "pre", text);
      });
    }

    function histogram() {
      const [low, high] = range(group.total);
      const width = Math.max((high - low) / 40, 0.005), bins = 41;
      const counts = { kept: new Array(bins).fill(0), dropped: new Array(bins).fill(0) };
      group.total.forEach((value, i) => {
        counts[group.isKept.has(i) ? "kept" : "dropped"][Math.min(bins - 1, Math.round((value - low) / width))] += 1;
      });
      const x = counts.kept.map((_, i) => low + i * width);
      const bar = (name, shape) => ({
        type: "bar", name: `${name} (${counts[name].reduce((a, b) => a + b, 0)})`, x, y: counts[name], width,
        marker: { color: colour(`--${name}`), pattern: { shape } },
      });
      const layout = {
        barmode: "stack", height: 260, margin: { l: 60, r: 20, t: 40, b: 45 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        font: { color: colour("--ink") }, legend: { orientation: "h", y: 1.02, yanchor: "bottom" }, ...ends(width),
        xaxis: { title: { text: "reward of the n rollouts" }, gridcolor: colour("--line"), zerolinecolor: colour("--line") },
        yaxis: { title: { text: "rollouts" }, gridcolor: colour("--line"), zerolinecolor: colour("--line") },
      };
      Plotly.react("histogram", [bar("kept", ""), bar("dropped", "/")], layout, { displaylogo: false, responsive: true });
    }

    function ends(width) { // shade the kept rollouts at both ends of the sorted rewards
      const shapes = [], annotations = [];
      for (const end of ["top end", "bottom end"]) {
        const values = group.kept.filter((i) => group.reasons[group.why[i]].includes(end)).map((i) => group.total[i]);
        if (!values.length) continue;
        const [first, last] = range(values), x0 = first - width, x1 = last + width;
        shapes.push({ type: "rect", xref: "x", yref: "paper", x0, x1, y0: 0, y1: 1, layer: "below", fillcolor: colour("--kept"), opacity: 0.15, line: { width: 0 } });
        annotations.push({ x: (x0 + x1) / 2, y: 1, yref: "paper", yanchor: "top", showarrow: false, text: `kept ${end}: ${values.length}` });
      }
      return { shapes, annotations };
    }

    function range(values) { // Math.min(...values) overflows the stack with 50,000 arguments
      return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
    }

    for (const step of steps) add(at("step"), "option", step).value = step;
    at("step").value = steps[steps.length - 1];
    const move = (by) => () => { at("step").selectedIndex += by; showStep(); };
    at("previous").addEventListener("click", move(-1));
    at("next").addEventListener("click", move(1));
    at("step").addEventListener("change", showStep);
    at("group").addEventListener("change", showGroup);
    for (const id of ["filter", "order"]) at(id).addEventListener("change", choose);
    at("page-back").addEventListener("click", () => { page -= 1; list(); });
    at("page-on").addEventListener("click", () => { page += 1; list(); });
    showStep();
    return histogram;
  }

  for (const button of document.querySelectorAll("button.copy")) {
    button.addEventListener("click", async () => {
      const name = button.textContent;
      try {
        await navigator.clipboard.writeText(button.dataset.text);
      } catch { // a page from an http server may not write to the clipboard
        prompt("Copy:", button.dataset.text);
      }
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = name; }, 1500);
    });
  }

  const redraw = at("inspector") ? inspector() : () => {};
  theme();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { redraw(); theme(); });
})();
