/* report.js - draws the report of runs from JSON (src/report/facts.h): that of the page, or where it
 * has none, what its server says again and again. Text of runs is only ever put into text nodes. */
"use strict";
(() => {
  const RUN_COLOURS = 8;
  const SVG = "http://www.w3.org/2000/svg";
  const byId = (id) => document.getElementById(id);
  let data = JSON.parse(byId("data").textContent);
  const shown = new Map(); // path of a run: is it drawn?
  const view = { from: null, to: null, smoothing: 0.8, log: false };

  // ---- elements ----

  function build(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "color") node.style.setProperty("--c", value);
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children) if (child !== null && child !== undefined) node.append(child);
    return node;
  }
  const el = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
  const draw = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);
  const colour = (i) => `var(--run${i % RUN_COLOURS})`;

  // ---- numbers ----

  const isNumber = (x) => typeof x === "number" && Number.isFinite(x);
  function plain(x, digits = 4) {
    if (!isNumber(x)) return "–";
    if (x === 0) return "0";
    const size = Math.abs(x);
    if (size >= 1e6 || size < 1e-3) return x.toExponential(Math.max(0, digits - 2)).replace("e+", "e");
    return String(Number(x.toPrecision(digits)));
  }
  const whole = (x) => (isNumber(x) ? Math.round(x).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f") : "–");
  function bytes(x) {
    if (!isNumber(x)) return "–";
    const names = ["B", "KiB", "MiB", "GiB", "TiB"];
    let i = 0;
    while (x >= 1024 && i < names.length - 1) { x /= 1024; i++; }
    return `${i === 0 ? Math.round(x) : Number(x.toPrecision(3))} ${names[i]}`;
  }
  function seconds(x) {
    if (!isNumber(x)) return "–";
    if (x === 0) return "0 s";
    if (x < 1e-3) return `${Number((x * 1e6).toPrecision(3))} µs`;
    if (x < 1) return `${Number((x * 1e3).toPrecision(3))} ms`;
    if (x < 120) return `${Number(x.toPrecision(3))} s`;
    const minutes = Math.floor(x / 60), two = (n) => String(Math.floor(n)).padStart(2, "0");
    return minutes < 60 ? `${minutes}:${two(x % 60)} min` : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(x % 60)} h`;
  }
  const rate = (x) => (isNumber(x) ? (x >= 100 ? whole(x) : plain(x, 3)) : "–");
  const percent = (x) => (isNumber(x) ? `${(100 * x).toFixed(1)} %` : "–");

  /* Round values within [low, high], about `count` of them; of bytes, powers of two. */
  function ticks(low, high, count, binary) {
    const span = (high - low) / Math.max(1, count);
    if (!(span > 0)) return [low];
    let step;
    if (binary && high >= 1024) {
      step = 2 ** Math.ceil(Math.log2(span));
    } else {
      const power = 10 ** Math.floor(Math.log10(span));
      step = power * [1, 2, 5, 10].find((m) => m * power >= span * 0.999);
    }
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && found.length < 50; i++) found.push(i * step);
    return found;
  }
  function logTicks(low, high) {
    const found = [];
    for (let p = Math.floor(Math.log10(low)); p <= Math.log10(high); p++)
      for (const m of high / low > 50 ? [1] : [1, 2, 5]) {
        const x = m * 10 ** p;
        if (x >= low * 0.999 && x <= high * 1.001) found.push(x);
      }
    return found.length > 1 ? found : [low, high];
  }

  // ---- curves ----

  /* The mean so far, weighing each point less the longer ago it was; the first ones are not drawn to 0. */
  function smooth(values) {
    let sum = 0, weight = 0;
    return values.map((x) => {
      if (!isNumber(x)) return null;
      sum = view.smoothing * sum + (1 - view.smoothing) * x;
      weight = view.smoothing * weight + (1 - view.smoothing);
      return sum / weight;
    });
  }
  const drawn = () => data.runs.map((run, i) => ({ run, i })).filter(({ run }) => shown.get(run.path));
  const points = (key) => (run) => [{ x: run.points.step, y: run.points[key] || [], kind: "curve" }];
  const SPECS = [
    { id: "loss", title: "Loss", unit: "mean per label token", full: true, format: plain, log: true,
      lines: (run) => [
        { x: run.points.step, low: run.points.lowest, high: run.points.highest, kind: "band" },
        { x: run.points.step, y: run.points.loss, kind: "raw" },
        { x: run.points.step, y: smooth(run.points.loss), kind: "curve", name: "smoothed" },
        { x: run.evaluations.step, y: run.evaluations.loss, kind: "evaluated", name: "evaluation" }] },
    { id: "accuracy", title: "Accuracy of evaluations", unit: "share of label tokens", format: percent,
      lines: (run) => [{ x: run.evaluations.step, y: run.evaluations.accuracy, kind: "evaluated" }] },
    { id: "reward", title: "Reward", unit: "mean of the completions", format: plain,
      lines: (run) => [{ x: run.points.step, y: run.points.reward || [], kind: "raw" },
                       { x: run.points.step, y: smooth(run.points.reward || []), kind: "curve", name: "smoothed" },
                       { x: run.evaluations.step, y: run.evaluations.reward, kind: "evaluated", name: "evaluation" }] },
    { id: "length", title: "Length of completions", unit: "tokens, mean", format: plain, zero: true, lines: points("completions/mean_length") },
    { id: "entropy", title: "Entropy", unit: "mean per token", format: plain, zero: true, lines: points("entropy") },
    { id: "even", title: "Groups without spread", unit: "share of the prompts", format: percent, zero: true, lines: points("frac_reward_zero_std") },
    { id: "lr", title: "Learning rate", unit: "", format: plain, zero: true, lines: points("lr") },
    { id: "grad", title: "Gradient norm", unit: "before clipping", format: plain, zero: true,
      lines: (run) => [{ x: run.points.step, y: run.points.grad_norm, kind: "raw" },
                       { x: run.points.step, y: smooth(run.points.grad_norm), kind: "curve", name: "smoothed" }] },
    { id: "rate", title: "Speed", unit: "tokens/s", format: rate, zero: true,
      lines: (run) => [{ x: run.points.step, y: run.points.tokens_per_s, kind: "raw" },
                       { x: run.points.step, y: smooth(run.points.tokens_per_s), kind: "curve", name: "smoothed" }] },
    { id: "memory", title: "Memory", unit: "peak so far of the fullest rank", format: bytes, zero: true, binary: true, lines: points("memory") },
    { id: "sent", title: "Bytes exchanged", unit: "sent by all ranks per step", format: bytes, zero: true, binary: true, lines: points("sent") },
  ];

  function table(head, rows) {
    return el("table", {}, el("thead", {}, el("tr", {}, ...head.map((h, i) => el("th", { scope: "col", class: i ? "n" : null }, h)))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell, i) => (i ? el("td", { class: "n" }, cell) : el("th", { scope: "row" }, cell)))))));
  }
  /* The table beside a chart is built while it is open. */
  function tableOf(title, make) {
    const box = el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `Table: ${title}` });
    const node = el("details", { ontoggle: () => node.fill() }, el("summary", {}, "As a table"), box);
    node.fill = () => box.replaceChildren(...(node.open ? [make()] : []));
    return node;
  }
  function figure(id, title, unit, full) {
    const readout = el("p", { class: "readout" }), plot = el("div", { class: "plot" });
    const node = el("figure", { class: full ? "full" : null, "aria-labelledby": `title-${id}` },
      el("figcaption", {}, el("h3", { id: `title-${id}` }, title), el("span", { class: "unit" }, unit)), readout, plot);
    return { node, plot, readout };
  }

  /* The last index whose step is at most `step`; -1. */
  function before(steps, step) {
    let low = 0, high = steps.length;
    while (low < high) { const m = (low + high) >> 1; if (steps[m] <= step) low = m + 1; else high = m; }
    return low - 1;
  }
  function nearest(steps, step) {
    const i = before(steps, step);
    return i < 0 ? 0 : i + 1 < steps.length && steps[i + 1] - step < step - steps[i] ? i + 1 : i;
  }

  function extent() {
    let most = 1;
    for (const { run } of drawn()) most = Math.max(most, run.last_step, run.evaluations.step.at(-1) || 0);
    const least = Math.min(1, most);
    return [view.from === null ? least : view.from, view.to === null ? Math.max(most, least + 1) : view.to];
  }

  class Chart {
    constructor(spec) {
      this.spec = spec;
      Object.assign(this, figure(spec.id, spec.title, spec.unit, spec.full));
      this.plot.tabIndex = 0;
      this.plot.setAttribute("role", "group");
      this.details = tableOf(spec.title, () => this.table());
      this.node.append(this.details);
      this.cursor = null;
      this.plot.addEventListener("pointermove", (e) => this.move(e));
      this.plot.addEventListener("pointerleave", () => { if (this.started === undefined) this.point(null); });
      this.plot.addEventListener("pointerdown", (e) => { if (e.button === 0 && this.scale) { this.started = this.stepAt(e); this.plot.setPointerCapture(e.pointerId); } });
      this.plot.addEventListener("pointerup", (e) => this.release(e));
      this.plot.addEventListener("pointercancel", () => { this.started = undefined; this.mark(null); });
      this.plot.addEventListener("dblclick", () => zoom(null, null));
      this.plot.addEventListener("keydown", (e) => this.key(e));
      this.plot.addEventListener("blur", () => this.point(null));
    }
    stepAt(e) {
      const box = this.plot.getBoundingClientRect(), s = this.scale;
      const part = Math.min(1, Math.max(0, (e.clientX - box.left - s.left) / (s.right - s.left)));
      return s.from + part * (s.to - s.from);
    }
    move(e) {
      if (!this.scale) return;
      const step = this.stepAt(e);
      this.point(step);
      if (this.started !== undefined) this.mark([this.started, step]);
    }
    release(e) {
      if (this.started === undefined) return;
      const [from, to] = [this.started, this.stepAt(e)].sort((a, b) => a - b), s = this.scale;
      this.started = undefined;
      this.mark(null);
      if ((to - from) * (s.right - s.left) > 8 * (s.to - s.from)) zoom(from, to);
    }
    mark(range) {
      if (this.selection) this.selection.remove();
      this.selection = null;
      if (!range) return;
      const [a, b] = range.map((x) => this.scale.x(x)).sort((p, q) => p - q);
      this.selection = draw("rect", { class: "selection", x: a, width: b - a, y: 4, height: this.scale.bottom - 4 });
      this.svg.append(this.selection);
    }
    key(e) {
      const s = this.scale;
      if (!s || e.ctrlKey || e.metaKey || e.altKey) return;
      const span = s.to - s.from, at = this.cursor === null ? s.to : this.cursor;
      const by = e.shiftKey ? 10 : 1;
      if (e.key === "ArrowLeft" || e.key === "ArrowRight") {
        const steps = this.steps(), i = nearest(steps, at) + (this.cursor === null ? 0 : e.key === "ArrowLeft" ? -by : by);
        this.point(steps[Math.min(steps.length - 1, Math.max(0, i))]);
        announce(this.readout.textContent);
      } else if (e.key === "Home" || e.key === "End") {
        this.point(e.key === "Home" ? s.from : s.to);
        announce(this.readout.textContent);
      } else if (e.key === "+" || e.key === "=") zoom(Math.max(s.from, at - span / 4), Math.min(s.to, at + span / 4));
      else if (e.key === "-") zoom(s.from - span / 2, s.to + span / 2);
      else if (e.key === "0" || e.key === "Escape") zoom(null, null);
      else return;
      e.preventDefault();
    }
    /* Steps at which any line has a point, in view. */
    steps() {
      const all = new Set();
      for (const line of this.lines) for (const x of line.x) if (x >= this.scale.from && x <= this.scale.to) all.add(x);
      return [...all].sort((a, b) => a - b);
    }
    /* Shows the values at a step in all charts' own words; null: those of the end. */
    point(step) {
      this.cursor = step;
      if (!this.svg) return;
      for (const node of this.svg.querySelectorAll(".cursor, .at")) node.remove();
      const words = [];
      let at = null;
      for (const line of this.lines) {
        if (line.kind === "band" || line.kind === "raw" && this.lines.some((l) => l.i === line.i && l.kind === "curve")) continue;
        const n = line.x.length;
        if (n === 0) continue;
        const i = step === null ? n - 1 : nearest(line.x, step), y = line.y[i];
        if (line.kind === "curve" || at === null) at = line.x[i];
        const raw = this.lines.find((l) => l.i === line.i && l.kind === "raw");
        const name = data.runs.length > 1 ? line.run.name : line.name ? "" : "value";
        words.push(el("span", { color: colour(line.i) }, el("i", { class: line.kind === "evaluated" ? "dot" : null }),
          [name === "value" ? "" : name, line.name || ""].filter(Boolean).join(", ") + (name === "value" ? "" : " "), el("b", {}, this.spec.format(y)),
          raw && line.kind === "curve" ? ` (${this.spec.format(raw.y[i])})` : "",
          line.kind === "evaluated" && step !== null ? ` at ${whole(line.x[i])}` : ""));
        if (step !== null && isNumber(y) && this.scale.inside(line.x[i]))
          this.svg.append(draw("circle", { class: "at", color: colour(line.i), cx: this.scale.x(line.x[i]), cy: this.scale.y(y), r: 3.5 }));
      }
      if (step !== null && at !== null)
        this.svg.prepend(draw("line", { class: "cursor", x1: this.scale.x(at), x2: this.scale.x(at), y1: 4, y2: this.scale.bottom }));
      this.readout.replaceChildren(el("span", {}, step === null ? "last" : `step ${whole(at)}`), ...words);
    }
    table() {
      const lines = this.lines.filter((l) => l.kind !== "band"), steps = this.scale ? this.steps() : [], most = 200;
      const every = Math.max(1, Math.ceil(steps.length / most));
      const kept = steps.filter((_, i) => i % every === 0 || i === steps.length - 1);
      return table(["Step", ...lines.map((l) => [data.runs.length > 1 ? l.run.name : "", l.kind === "raw" ? "raw" : l.name || this.spec.title.toLowerCase()].filter(Boolean).join(", "))],
        kept.map((step) => [whole(step), ...lines.map((l) => { const i = before(l.x, step); return i >= 0 && l.x[i] === step ? this.spec.format(l.y[i]) : ""; })]));
    }
    draw() {
      const spec = this.spec, [from, to] = extent();
      this.lines = drawn().flatMap(({ run, i }) => spec.lines(run).map((line) => ({ ...line, run, i })))
        .filter((l) => l.kind !== "band" ? l.y.some(isNumber) : Array.isArray(l.low));
      if (this.lines.length === 0) {
        this.svg = this.scale = null;
        this.plot.replaceChildren(el("p", { class: "empty" }, "Not measured."));
        this.readout.replaceChildren();
        this.node.hidden = !spec.full;
        this.details.fill();
        return;
      }
      this.node.hidden = false;
      const log = spec.log && view.log;
      let low = Infinity, high = -Infinity;
      const take = (y) => { if (isNumber(y) && (!log || y > 0)) { low = Math.min(low, y); high = Math.max(high, y); } };
      for (const line of this.lines)
        line.x.forEach((x, i) => { if (x >= from && x <= to) for (const y of line.kind === "band" ? [line.low[i], line.high[i]] : [line.y[i]]) take(y); });
      if (low > high) [low, high] = log ? [0.1, 1] : [0, 1];
      if (spec.zero && low > 0) low = 0;
      if (low === high) { const by = Math.abs(low) * 0.1 || 1; low -= log || spec.zero ? 0 : by; high += by; }
      const [a, b] = log ? [Math.log(low), Math.log(high)] : [low, high], room = (b - a) * 0.06;
      const bottomValue = spec.zero && low === 0 ? a : a - room, topValue = b + room;
      const width = Math.max(220, this.plot.clientWidth), height = spec.full ? Math.min(340, Math.max(240, width * 0.34)) : 190;
      const values = log ? logTicks(Math.exp(bottomValue), Math.exp(topValue)) : ticks(bottomValue, topValue, 5, spec.binary);
      const left = 14 + Math.max(...values.map((v) => spec.format(v).length)) * 7.2, right = width - 12, bottom = height - 26;
      const s = this.scale = {
        from, to, left, right, bottom, inside: (x) => x >= from && x <= to,
        x: (x) => left + (x - from) / (to - from) * (right - left),
        y: (v) => bottom - ((log ? Math.log(v) : v) - bottomValue) / (topValue - bottomValue) * (bottom - 6),
      };
      const svg = this.svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": this.summary() });
      const clip = `clip-${spec.id}`;
      svg.append(draw("defs", {}, draw("clipPath", { id: clip }, draw("rect", { x: left, y: 0, width: right - left, height: bottom + 1 }))));
      for (const v of values) {
        const y = Math.round(s.y(v)) + 0.5;
        svg.append(draw("line", { class: "gridline", x1: left, x2: right, y1: y, y2: y }), draw("text", { x: left - 8, y: y + 4, "text-anchor": "end" }, spec.format(v)));
      }
      svg.append(draw("line", { class: "axis", x1: left, x2: right, y1: bottom + 0.5, y2: bottom + 0.5 }));
      for (const v of ticks(from, to, Math.max(2, Math.floor((right - left) / 90)))) {
        if (!Number.isInteger(v)) continue;
        svg.append(draw("line", { class: "axis", x1: s.x(v), x2: s.x(v), y1: bottom, y2: bottom + 4 }),
          draw("text", { x: Math.min(s.x(v), right - 8), y: bottom + 18, "text-anchor": "middle" }, whole(v)));
      }
      const inside = draw("g", { "clip-path": `url(#${clip})` });
      svg.append(inside);
      // points may stand half beyond the edge
      for (const line of this.lines)
        for (const node of this.path(line, s, log)) (node.localName === "circle" ? svg : inside).append(node);
      this.plot.setAttribute("aria-label", `${spec.title} over the steps. Arrow keys move along it, plus and minus zoom, 0 shows all.`);
      this.plot.replaceChildren(svg);
      this.point(this.cursor);
      this.details.fill();
    }
    path(line, s, log) {
      const ok = (y) => isNumber(y) && (!log || y > 0), at = (i, y) => `${s.x(line.x[i]).toFixed(1)},${s.y(y).toFixed(1)}`;
      if (line.kind === "band") {
        const kept = line.x.map((_, i) => i).filter((i) => ok(line.low[i]) && ok(line.high[i]));
        if (kept.length < 2) return [];
        return [draw("path", { class: "band", color: colour(line.i), d: `M${kept.map((i) => at(i, line.high[i])).join("L")}L${kept.reverse().map((i) => at(i, line.low[i])).join("L")}Z` })];
      }
      let d = "", pen = false;
      line.x.forEach((_, i) => { if (ok(line.y[i])) { d += (pen ? "L" : "M") + at(i, line.y[i]); pen = true; } else pen = false; });
      const nodes = [draw("path", { class: line.kind, color: colour(line.i), d })];
      const few = line.kind !== "raw" && line.x.length <= (line.kind === "evaluated" ? 80 : 1);
      if (few) line.x.forEach((x, i) => { if (ok(line.y[i]) && s.inside(x)) nodes.push(draw("circle", { class: "point", color: colour(line.i), cx: s.x(x), cy: s.y(line.y[i]), r: 3 })); });
      return nodes;
    }
    summary() {
      return `${this.spec.title}: ` + drawn().map(({ run, i }) => {
        const line = this.lines.find((l) => l.i === i && l.kind !== "band");
        const known = line ? line.y.map((y, k) => [y, line.x[k]]).filter(([y]) => isNumber(y)) : [];
        if (known.length === 0) return `${run.name}: not measured`;
        const best = known.reduce((a, b) => (b[0] < a[0] ? b : a));
        return `${run.name}: ${this.spec.format(known[0][0])} at step ${known[0][1]}, ${this.spec.format(known.at(-1)[0])} at step ${known.at(-1)[1]}, lowest ${this.spec.format(best[0])} at step ${best[1]}`;
      }).join("; ");
    }
  }

  function zoom(from, to) {
    view.from = view.to = null;
    const [least, most] = extent();
    if (from !== null && (from > least || to < most)) {
      view.from = Math.max(least, from);
      view.to = Math.min(most, to);
      if (view.to - view.from < 2) [view.from, view.to] = [Math.max(least, view.from - 1), Math.min(most, view.to + 1)];
    }
    byId("all").disabled = view.from === null;
    drawCurves();
    announce(view.from === null ? "All steps." : `Steps ${Math.round(view.from)} to ${Math.round(view.to)}.`);
  }
  const announce = (text) => { byId("status").textContent = text; };
  const drawCurves = () => charts.forEach((c) => c.draw());

  // ---- bars: a row for each rank ----

  const perStep = (run, x) => (run.ranks_steps > 0 ? x / run.ranks_steps : 0);
  const BARS = [
    { id: "time", title: "Time of a step, by part", unit: "mean of the steps of each rank", format: seconds,
      names: ["products", "attention", "other computing", "waiting", "exchange", "reading", "saving"],
      parts: (run, r) => {
        const timed = r.timed > 0 ? run.ranks_steps / r.timed : 0;
        const products = Math.min(r.compute, r.products * timed), attention = Math.min(r.compute - products, r.attention * timed);
        return [products, attention, r.compute - products - attention, r.wait, r.exchange, r.read, r.save].map((x) => perStep(run, x));
      } },
    { id: "kinds", title: "Memory by kind", unit: "at the peak of each rank", format: bytes, binary: true,
      names: null, parts: (run, r) => r.kinds },
    { id: "traffic", title: "Bytes of a step", unit: "mean of the steps of each rank", format: bytes, binary: true,
      names: ["sent", "received"], parts: (run, r) => [r.sent, r.received].map((x) => perStep(run, x)) },
  ];
  class Bars {
    constructor(spec) {
      this.spec = spec;
      Object.assign(this, figure(`bars-${spec.id}`, spec.title, spec.unit, false));
      this.plot.classList.add("bars");
      this.legend = el("ul", { class: "legend" });
      this.plot.before(this.legend);
      this.plot.after(this.readout); // its text moves no bar away from the pointer
      this.details = tableOf(spec.title, () => this.table());
      this.node.append(this.details);
    }
    label(row) { return data.runs.length > 1 ? `${row.run.name}, rank ${row.rank}` : `rank ${row.rank}`; }
    table() {
      return table(["Rank", ...this.names, "all"], this.rows.map((row) => [this.label(row), ...row.parts.map(this.spec.format), this.spec.format(sum(row.parts))]));
    }
    tell(row) {
      const part = (v, k) => (v > 0 ? el("span", { color: `var(--part${k})` }, el("i", { class: "box" }), `${this.names[k]} `, el("b", {}, this.spec.format(v))) : "");
      this.readout.replaceChildren(...(row ? [el("span", {}, this.label(row)), ...row.parts.map(part)] : []));
    }
    draw() {
      const spec = this.spec, names = this.names = spec.names || (data.runs[0] && data.runs[0].kinds) || [];
      const rows = this.rows = drawn().flatMap(({ run, i }) => run.ranks.map((rank, r) => ({ i, run, rank: r, parts: spec.parts(run, rank) })));
      const most = Math.max(...rows.map((row) => sum(row.parts)), 0);
      this.node.hidden = !(most > 0);
      this.details.fill();
      if (this.node.hidden) return;
      const width = Math.max(220, this.plot.clientWidth);
      const left = Math.min(width * 0.4, 10 + Math.max(...rows.map((row) => this.label(row).length)) * 7), right = width - 12;
      const each = Math.max(12, Math.min(26, 420 / rows.length)), height = rows.length * each + 34, bottom = height - 26;
      const x = (v) => left + v / most * (right - left);
      const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img",
        "aria-label": `${spec.title}: ${rows.slice(0, 16).map((row) => `${this.label(row)} ${spec.format(sum(row.parts))}`).join("; ")}` });
      for (const v of ticks(0, most, Math.max(2, Math.floor((right - left) / 90)), spec.binary))
        svg.append(draw("line", { class: "gridline", x1: x(v), x2: x(v), y1: 4, y2: bottom }), draw("text", { x: x(v), y: bottom + 18, "text-anchor": "middle" }, spec.format(v)));
      rows.forEach((row, n) => {
        let from = 0;
        const y = 6 + n * each, g = draw("g", { onpointerenter: () => this.tell(row), onpointerleave: () => this.tell(null) });
        g.append(draw("rect", { class: "row", x: left, width: right - left, y, height: each - 5 })); // a part may be too narrow to be pointed at
        if (each >= 14 || n % 2 === 0) g.append(draw("text", { class: "label", x: left - 8, y: y + each / 2 + 3, "text-anchor": "end" }, this.label(row)));
        row.parts.forEach((v, k) => {
          if (v > 0) g.append(draw("rect", { class: "part", color: `var(--part${k})`, x: x(from), width: Math.max(0.5, x(from + v) - x(from)), y, height: each - 5 }));
          from += v;
        });
        svg.append(g);
      });
      this.plot.replaceChildren(svg);
      this.legend.replaceChildren(...names.map((name, k) => (rows.some((row) => row.parts[k] > 0) ? el("li", { color: `var(--part${k})` }, el("i"), name) : "")));
      this.tell(null);
    }
  }
  const sum = (list) => list.reduce((a, b) => a + b, 0);
  function drawBars() {
    byId("bars").closest("section").hidden = !drawn().some(({ run }) => run.ranks.length > 0);
    for (const one of bars) one.draw();
  }

  // ---- tables ----

  const last = (list) => { for (let i = list.length - 1; i >= 0; i--) if (isNumber(list[i])) return list[i]; return null; };
  function drawRuns() {
    const rows = data.runs.map((run, i) => {
      const losses = run.evaluations.loss, known = losses.map((y, k) => [y, run.evaluations.step[k]]).filter(([y]) => isNumber(y));
      const best = known.length ? known.reduce((a, b) => (b[0] < a[0] ? b : a)) : null;
      const box = el("input", { type: "checkbox", checked: shown.get(run.path), onchange: (e) => { shown.set(run.path, e.target.checked); drawCurves(); drawBars(); } });
      return el("tr", {}, el("th", { scope: "row" }, el("label", { class: "run-name", title: run.path }, box, el("span", { class: "swatch", color: colour(i) }), run.name)),
        el("td", { class: `state state-${run.state.replace(" ", "-")}` }, run.state),
        el("td", { class: "n" }, whole(run.last_step), el("small", {}, run.steps > 0 ? ` of ${whole(run.steps)}` : "")),
        el("td", { class: "n" }, plain(last(run.points.loss))),
        el("td", { class: "n" }, best ? plain(best[0]) : "–", el("small", {}, best ? ` at ${whole(best[1])}` : "")),
        el("td", { class: "n" }, rate(run.seconds > 0 ? run.tokens / run.seconds : null)), el("td", { class: "n" }, whole(run.tokens)), el("td", { class: "n" }, seconds(run.seconds)),
        el("td", { class: "n" }, run.ranks.length ? String(run.ranks.length) : "–"), el("td", { class: "n" }, bytes(last(run.points.memory))));
    });
    const boxes = () => [...byId("runs").querySelectorAll("input")], at = boxes().indexOf(document.activeElement);
    byId("runs").replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ...["Run", "State", "Steps", "Loss", "Best evaluation", "Tokens/s", "Tokens", "Time of steps", "Ranks", "Memory per rank"]
      .map((h, i) => el("th", { scope: "col", class: i > 1 ? "n" : null }, h)))), el("tbody", {}, ...rows)));
    if (at >= 0 && boxes()[at]) boxes()[at].focus();
  }
  function drawSamples() {
    const runs = data.runs.map((run, i) => ({ run, i })).filter(({ run }) => run.samples.length > 0);
    byId("samples").closest("section").hidden = runs.length === 0;
    byId("samples").replaceChildren(...runs.map(({ run, i }) => el("div", { class: "start" }, el("h3", {}, el("span", { class: "swatch", color: colour(i) }), run.name),
      el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `Completions of ${run.name}` }, el("table", {},
        el("thead", {}, el("tr", {}, ...["", "Step", "Reward", "Prompt", "Completion"].map((h, k) => el("th", { scope: "col", class: k === 1 || k === 2 ? "n" : null }, h)))),
        el("tbody", {}, ...run.samples.map((s) => el("tr", {}, el("td", {}, s.of === "step" ? "" : s.of), el("td", { class: "n" }, whole(s.step)), el("td", { class: "n" }, plain(s.reward)),
          el("td", {}, el("code", { class: "said" }, s.prompt === null ? "–" : s.prompt)), el("td", {}, el("code", { class: "said" }, s.text), s.truncated ? el("small", {}, " no end") : "")))))))));
  }
  function drawSettings() {
    const keys = [...new Set(data.runs.flatMap((run) => run.settings.map(([key]) => key)))];
    const of = (run, key) => { const found = run.settings.find(([k]) => k === key); return found ? found[1] : ""; };
    const differs = (key) => new Set(data.runs.map((run) => of(run, key))).size > 1;
    const only = byId("differing").checked;
    byId("settings-tools").hidden = data.runs.length < 2;
    byId("settings").replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Setting"), ...data.runs.map((run) => el("th", { scope: "col" }, run.name)))),
      el("tbody", {}, ...keys.filter((key) => !only || differs(key)).map((key) => el("tr", { class: data.runs.length > 1 && differs(key) ? "differs" : null },
        el("th", { scope: "row" }, key), ...data.runs.map((run) => el("td", {}, el("code", {}, of(run, key)))))))));
  }
  function drawStarts() {
    byId("starts").replaceChildren(...data.runs.map((run, i) => el("div", { class: "start" }, el("h3", {}, el("span", { class: "swatch", color: colour(i) }), run.name),
      el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `Starts of ${run.name}` }, el("table", {},
        el("thead", {}, el("tr", {}, ...["Started", "After step", "Host", "Processor", "Ranks", "Threads", "Transport", "Version", "Command"].map((h) => el("th", { scope: "col" }, h)))),
        el("tbody", {}, ...run.starts.map((s) => el("tr", {}, ...[s.started, s.step, s.host, s.cpu, s.ranks, s.threads === 0 ? "all" : s.threads, s.transport, s.version].map((v) => el("td", {}, v === undefined ? "–" : String(v))),
          el("td", {}, el("code", {}, s.command || "–"))))))))));
  }
  /* Unchanged parts stay as they are, with the selection in them. */
  const seen = new Map();
  function isNew(name, value) {
    const text = JSON.stringify(value), had = seen.get(name);
    seen.set(name, text);
    return had !== text;
  }
  function drawAll() {
    byId("report").hidden = false;
    for (const run of data.runs) if (!shown.has(run.path)) shown.set(run.path, true);
    const names = data.runs.map((run) => run.name);
    document.title = `${names.slice(0, 3).join(", ")}${names.length > 3 ? ", …" : ""} – training report`;
    const written = new Date(1000 * data.written);
    byId("about").textContent = `${names.length} run${names.length === 1 ? "" : "s"}, as of ${written.toISOString().replace("T", " ").slice(0, 16)} UTC; sheaf ${data.version}`;
    const odd = data.runs.flatMap((run) => run.odd.map((text) => `${run.name}: ${text}`)).concat(
      data.runs.filter((run) => run.merged > 1).map((run) => `${run.name}: a long run; each point is the mean of ${run.merged} steps, the band of the loss their lowest and highest`));
    byId("notes").hidden = odd.length === 0;
    if (isNew("notes", odd)) byId("notes").querySelector("ul").replaceChildren(...odd.map((text) => el("li", {}, text)));
    drawRuns(); drawCurves(); drawBars();
    if (isNew("samples", data.runs.map((run) => [run.name, run.samples]))) drawSamples();
    if (isNew("settings", data.runs.map((run) => [run.name, run.settings]))) drawSettings();
    if (isNew("starts", data.runs.map((run) => [run.name, run.starts]))) drawStarts();
  }

  // ---- the page ----

  const charts = SPECS.map((spec) => new Chart(spec)), bars = BARS.map((spec) => new Bars(spec));
  byId("curves").append(...charts.map((c) => c.node));
  byId("bars").append(...bars.map((b) => b.node));
  byId("smoothing").addEventListener("input", (e) => {
    view.smoothing = e.target.value / 100;
    byId("smoothing-value").textContent = view.smoothing.toFixed(2);
    drawCurves();
  });
  byId("log").addEventListener("change", (e) => { view.log = e.target.checked; drawCurves(); });
  byId("all").addEventListener("click", () => zoom(null, null));
  byId("differing").addEventListener("change", drawSettings);
  let width = 0;
  new ResizeObserver(() => {
    if (data === null || document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    drawCurves(); drawBars();
  }).observe(document.body);

  // ---- a page with a server, which has the numbers ----

  const EVERY = 2000;
  let token = "";
  try { token = sessionStorage.getItem("sheaf token") || ""; } catch (e) { token = ""; }
  function tell(state, text) {
    const node = byId("following");
    if (node.textContent === text) return;
    node.dataset.state = state;
    node.textContent = text;
    node.hidden = false;
    announce(text);
  }
  function stateOfRuns() {
    const one = data.runs.length === 1;
    if (data.runs.some((run) => run.state === "running")) tell("running", `The numbers follow the ${one ? "run" : "runs"}.`);
    else tell("ended", one && data.runs[0].state === "done" ? "The run is done: these are its last numbers." : `The ${one ? "run has" : "runs have"} ended: these are the last numbers.`);
  }
  /* The reply of the server; status 0: it cannot be read. */
  async function ask() {
    try {
      const answer = await fetch("report.json", { cache: "no-store", headers: token === "" ? {} : { Authorization: `Bearer ${token}` } });
      return { status: answer.status, reply: await answer.json() };
    } catch (e) { return { status: 0, reply: null }; }
  }
  async function follow() {
    const started = performance.now(), { status, reply } = await ask();
    byId("access").hidden = status !== 401;
    if (status === 401) {
      if (token !== "") tell("gone", "The server does not know this token.");
      byId("token").focus();
      return; // goes on with the token
    }
    if (status === 200) {
      data = reply;
      if (isNew("runs", data.runs)) drawAll();
      stateOfRuns();
    } else tell("gone", reply && reply.error ? String(reply.error.message) : "The server of this report does not answer; these are the last numbers it gave.");
    setTimeout(follow, Math.max(EVERY, 10 * (performance.now() - started))); // a tenth of a processor at most: the runs may need it
  }
  byId("access").addEventListener("submit", (e) => {
    e.preventDefault();
    token = byId("token").value;
    try { sessionStorage.setItem("sheaf token", token); } catch (error) { /* asked for again, then */ }
    follow();
  });
  if (data === null) follow();
  else drawAll();
})();
