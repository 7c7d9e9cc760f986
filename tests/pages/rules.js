/* rules.js - what a page must keep so that everybody can use it: `rules.page()` and, after each Tab,
 * `rules.focus()` are lists of what is wrong, as texts. */
"use strict";
window.rules = (() => {
  const seen = (e) => {
    const r = e.getBoundingClientRect(), s = getComputedStyle(e);
    return r.width > 0 && r.height > 0 && s.visibility !== "hidden" && e.closest("[hidden]") === null;
  };
  const all = (selector, within = document) => [...within.querySelectorAll(selector)].filter(seen);
  const called = (e) => `<${e.localName}${e.id ? ` id=${e.id}` : ""}${e.className && typeof e.className === "string" ? ` class="${e.className}"` : ""}> ${(e.textContent || "").trim().slice(0, 40)}`;
  const words = (e) => (e ? e.textContent.trim() : "");
  /* What a screen reader calls an element. */
  function nameOf(e) {
    const by = (e.getAttribute("aria-labelledby") || "").split(" ").map((id) => words(document.getElementById(id))).join(" ").trim();
    return by || (e.getAttribute("aria-label") || "").trim() || [...(e.labels || [])].map(words).join(" ").trim() ||
      (["button", "a", "summary"].includes(e.localName) ? words(e) : "") || (e.getAttribute("title") || "").trim();
  }

  // ---- colours: [red, green, blue, alpha], 0 to 1 ----

  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  function colour(text) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].map((x) => x / 255);
  }
  const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  function behind(e) {
    const layers = [];
    for (let at = e; at; at = at.parentElement) layers.push(colour(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((under, layer) => over(layer, under), colour(getComputedStyle(document.documentElement).colorScheme.includes("dark") && matchMedia("(prefers-color-scheme: dark)").matches ? "#121212" : "#fff"));
  }
  function brightness(c) {
    const [r, g, b] = c.slice(0, 3).map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  function contrast(a, b) {
    const x = brightness(a), y = brightness(b);
    return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
  }

  function page() {
    const wrong = [], add = (what, e) => wrong.push(e ? `${what}: ${called(e)}` : what);
    if (!document.documentElement.lang) add("the page says no language");
    if (!document.title.trim()) add("the page has no title");
    if (all("h1").length !== 1) add(`${all("h1").length} headings of the first level`);
    if (all("main, [role=main]").length !== 1) add("not one main part");
    let level = 0;
    for (const h of all("h1, h2, h3, h4, h5, h6")) {
      const now = Number(h.localName[1]);
      if (now > level + 1) add(`a heading of level ${now} after one of ${level}`, h);
      if (words(h) === "") add("an empty heading", h);
      level = now;
    }
    const ids = new Map();
    for (const e of document.querySelectorAll("[id]")) ids.set(e.id, (ids.get(e.id) || 0) + 1);
    for (const [id, n] of ids) if (n > 1) add(`${n} elements are called ${id}`);
    for (const attribute of ["for", "aria-labelledby", "aria-describedby", "aria-controls"])
      for (const e of document.querySelectorAll(`[${attribute}]`))
        for (const id of e.getAttribute(attribute).split(" ")) if (!document.getElementById(id)) add(`${attribute} names nothing (${id})`, e);
    for (const e of all("a[href], button, summary, input, select, textarea, [tabindex], [role=button], [role=img]"))
      if (e.getAttribute("tabindex") !== "-1" && e.type !== "hidden" && nameOf(e) === "") add("a control without a name", e);
    for (const e of all("img")) if (!e.hasAttribute("alt")) add("a picture without words", e);
    for (const e of all("[tabindex]")) if (Number(e.getAttribute("tabindex")) > 0) add("an order of its own for Tab", e);
    for (const e of all("ul, ol")) for (const child of e.children) if (child.localName !== "li") add("a list with what is no item", child);
    for (const e of all("section[aria-label], nav, [role=region], [role=log]")) if (nameOf(e) === "") add("a region without a name", e);
    for (const e of all("button, select, input, summary, label.button")) {
      const r = e.getBoundingClientRect();
      if (!e.closest(".visually-hidden") && (r.height < 16 || r.width < 16)) add(`too small to hit, ${Math.round(r.width)} x ${Math.round(r.height)}`, e);
    }
    // Text over what is behind it: 4.5, or 3 where it is large. What cannot be used now may be paler.
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
      const e = node.parentElement;
      if (node.data.trim() === "" || !seen(e) || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(e.tagName) || e.closest(".visually-hidden, :disabled, .skip")) continue;
      const s = getComputedStyle(e), size = parseFloat(s.fontSize), large = size >= 24 || (size >= 18.66 && Number(s.fontWeight) >= 700);
      const ground = behind(e), ink = e.namespaceURI.endsWith("svg") ? s.fill : s.color;
      if (ink === "none") continue;
      const ratio = contrast(over(colour(ink), ground), ground);
      if (ratio < (large ? 3 : 4.5)) add(`contrast ${ratio.toFixed(2)}`, e);
    }
    if (document.scrollingElement.scrollWidth > innerWidth) add(`the page is ${document.scrollingElement.scrollWidth} wide, the window ${innerWidth}`);
    return [...new Set(wrong)];
  }

  /* Can the element with the focus be told from all others? Itself or its label has an outline that
   * stands out from its ground by 3. */
  let passed = 0;
  function focus() {
    const e = document.activeElement;
    if (!e || e === document.body) return [];
    passed++;
    const shown = [e, ...(e.labels || [])].some((x) => {
      const s = getComputedStyle(x), r = x.getBoundingClientRect();
      return s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 1.5 && r.width > 4 && r.height > 4 &&
        contrast(over(colour(s.outlineColor), behind(x)), behind(x.parentElement)) >= 3;
    });
    return shown ? [] : [`the focus is not seen: ${called(e)}`];
  }
  return { page, focus, wrong: [], tab: () => { window.rules.wrong.push(...focus()); return passed; }, get passed() { return passed; } };
})();
