/* chat.js - a conversation with the server that this page came from. Text of a model or a person is
 * only ever put into text nodes. Conversations stay in this browser. */
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const KEPT = "sheaf conversations", MOST_KEPT = 50;
  const el = (tag, attributes, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {}))
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
    node.append(...children.filter((child) => child !== null));
    return node;
  };
  const announce = (text) => { byId("status").textContent = text; };

  // ---- conversations: [{id, system, turns: [{text, pictures, answers: [{model, text, thoughts, end}]}]}] ----

  let all = [], now = null, pictures = [], running = null, token = "", models = [];
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT) || "[]");
    all = Array.isArray(kept) ? kept.filter((c) => c && Array.isArray(c.turns)) : [];
    for (const c of all) for (const t of c.turns) for (const a of t.answers || []) if (a.end === "") a.end = "stopped"; // the page was left
  } catch (e) { all = []; }
  try { token = sessionStorage.getItem("sheaf token") || ""; } catch (e) { token = ""; }
  function keep() {
    all = all.filter((c) => c.turns.length > 0 || c === now).slice(0, MOST_KEPT);
    for (let few = all; few.length > 0; few = few.slice(0, -1)) {
      try { localStorage.setItem(KEPT, JSON.stringify(few)); return; } catch (e) { /* full: the oldest goes */ }
    }
    try { localStorage.removeItem(KEPT); } catch (e) { /* none is kept here */ }
  }
  function show(conversation) {
    now = conversation;
    byId("system").value = now.system || "";
    byId("instructions").open = byId("system").value !== "";
    drawAll();
  }
  function begin() {
    const fresh = { id: Date.now(), system: byId("system").value, turns: [] };
    all = [fresh, ...all.filter((c) => c.turns.length > 0)];
    show(fresh);
  }
  const nameOf = (c) => (c.turns.length > 0 ? c.turns[0].text.slice(0, 60) || "a picture" : "New");
  function drawHistory() {
    byId("history").replaceChildren(...all.map((c) => el("li", {},
      el("button", { type: "button", "aria-current": c === now ? "true" : null, onclick: () => { if (!running) show(c); } }, nameOf(c)),
      el("button", { type: "button", "aria-label": `Delete: ${nameOf(c)}`, onclick: () => { if (running) return; all = all.filter((x) => x !== c); if (c === now) begin(); keep(); drawAll(); } }, "×"))));
  }

  // ---- turns ----

  /* Code between lines of ``` stands in a box; all other text is unchanged. */
  function put(node, text) {
    node.replaceChildren(...text.split(/^```[^\n]*\n?/m).map((part, i) => (i % 2 === 1 ? el("pre", { tabindex: "0", "aria-label": "Code" }, part) : document.createTextNode(part))));
  }
  function answerNode(turn, answer, n) {
    const text = el("div", { class: "text" }), doing = el("div", { class: "doing" });
    const said = el("div", { class: "thoughts" }), thoughts = el("details", { hidden: true }, el("summary", {}, "Thoughts"), said);
    const node = el("article", {}, el("h2", {}, answer.model), thoughts, text, doing);
    answer.show = () => {
      thoughts.hidden = !answer.thoughts;
      put(said, answer.thoughts || "");
      put(text, answer.text);
      doing.replaceChildren(...(answer.end === "" ? [el("span", {}, "writing …")] : [
        el("button", { type: "button", onclick: () => copy(answer.text) }, "Copy"),
        el("button", { type: "button", onclick: () => retry(n) }, "Retry"),
        el("span", {}, answer.end === "stop" ? "" : answer.end === "length" ? "stopped at the token limit" : answer.end)]));
    };
    answer.show();
    return node;
  }
  function turnNode(turn, n) {
    return el("section", { class: "turn", "aria-label": `Turn ${n + 1}` },
      el("div", { class: "question" }, el("h2", {}, "You"),
        turn.pictures.length ? el("ul", { class: "shown" }, ...turn.pictures.map((src, i) => el("li", {}, el("img", { src, alt: `Picture ${i + 1} of the question` })))) : null,
        el("p", { class: "text" }, turn.text),
        el("div", { class: "doing" }, el("button", { type: "button", onclick: () => edit(n) }, "Edit"), el("button", { type: "button", onclick: () => copy(turn.text) }, "Copy"))),
      el("div", { class: "answers" }, ...turn.answers.map((answer) => answerNode(turn, answer, n))));
  }
  function drawAll() {
    byId("turns").replaceChildren(...(now.turns.length ? now.turns.map(turnNode) : [el("p", { class: "empty" }, "No messages yet. Conversations stay in this browser.")]));
    byId("turns").scrollTop = byId("turns").scrollHeight;
    drawHistory();
  }
  async function copy(text) {
    try { await navigator.clipboard.writeText(text); announce("Copied."); } catch (e) { fail("The browser does not let this page copy."); }
  }
  /* The question returns to the field; it and all later turns leave the conversation. */
  function edit(n) {
    if (running) return;
    const turn = now.turns[n];
    now.turns.length = n;
    byId("question").value = turn.text;
    pictures = turn.pictures;
    drawPictures(); drawAll(); keep();
    byId("question").focus();
  }
  function retry(n) {
    if (running) return;
    const turn = now.turns[n];
    now.turns.length = n;
    ask(turn.text, turn.pictures);
  }

  // ---- pictures ----

  function drawPictures() {
    byId("pictures").replaceChildren(...pictures.map((src, i) => el("li", {}, el("img", { src, alt: `Picture ${i + 1}` }),
      el("button", { type: "button", "aria-label": `Remove picture ${i + 1}`, onclick: () => { pictures = pictures.filter((_, k) => k !== i); drawPictures(); } }, "Remove"))));
  }
  const takesPictures = () => models.some((m) => m.pictures > 0 && m.id === byId("model").value);
  function showWhetherPictures() { byId("pick").hidden = !takesPictures(); }
  function addFiles(files) {
    if (files.length > 0 && !takesPictures()) { fail(`${byId("model").value} takes no pictures.`); return; }
    for (const file of files) {
      if (!file.type.startsWith("image/")) continue;
      const reader = new FileReader();
      reader.onload = () => { pictures = [...pictures, reader.result]; drawPictures(); announce("A picture was added."); };
      reader.onerror = () => fail(`${file.name} cannot be read.`);
      reader.readAsDataURL(file);
    }
  }

  // ---- the server ----

  function fail(text) {
    byId("failed").textContent = text;
    byId("failed").hidden = text === "";
  }
  const headers = () => (token === "" ? {} : { Authorization: `Bearer ${token}` });
  /* An error of the server as a sentence. */
  function sentenceOf(error) {
    if (!error.expected) return String(error.message);
    return `${error.where}: expected ${error.expected}${error.found ? `, found ${error.found}` : ""}.${error.try ? ` Try ${error.try}.` : ""}`;
  }
  /* Why a request was refused; shows the field for the token where that is missing or wrong. */
  async function refusalOf(answer) {
    if (answer.status === 401) {
      byId("access").hidden = false;
      byId("token").focus();
      return token === "" ? "" : "The server does not know this token.";
    }
    try { return sentenceOf((await answer.json()).error); } catch (e) { return `The server answers with status ${answer.status}.`; }
  }
  async function loadModels() {
    try {
      const answer = await fetch("v1/models", { headers: headers() });
      if (!answer.ok) { fail(await refusalOf(answer)); return; }
      models = (await answer.json()).data;
      const names = models.map((m) => String(m.id)), option = (name) => el("option", { value: name }, name);
      byId("access").hidden = true;
      byId("model").replaceChildren(...names.map(option));
      byId("beside").replaceChildren(el("option", { value: "" }, "none"), ...names.map(option));
      showWhetherPictures();
      fail("");
      byId("question").focus();
    } catch (e) { fail("The server does not answer. Is sheaf serve still running?"); }
  }
  function messagesFor(model, upTo) {
    const messages = (now.system || "").trim() === "" ? [] : [{ role: "system", content: now.system }];
    for (const turn of now.turns.slice(0, upTo + 1)) {
      const answer = turn.answers.find((a) => a.model === model) || turn.answers[0], isLast = turn === now.turns[upTo];
      if (!isLast && (!answer || (answer.text === "" && answer.end === "failed"))) continue; // refused: no turn of the conversation
      messages.push({ role: "user", content: turn.pictures.length === 0 ? turn.text : [...turn.pictures.map((url) => ({ type: "image_url", image_url: { url } })), { type: "text", text: turn.text }] });
      if (!isLast) messages.push({ role: "assistant", content: answer.text, reasoning_content: answer.thoughts || null });
    }
    return messages;
  }
  /* Answers as server-sent events: lines "data: JSON", at the end "data: [DONE]". */
  async function stream(answer, upTo, signal) {
    const request = { model: answer.model, messages: messagesFor(answer.model, upTo), stream: true,
      temperature: Number(byId("temperature").value) || 0, max_tokens: Math.max(1, Number(byId("most").value) || 512) };
    const reply = await fetch("v1/chat/completions", { method: "POST", signal, headers: { "Content-Type": "application/json", ...headers() }, body: JSON.stringify(request) });
    if (!reply.ok) throw new Error(await refusalOf(reply));
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "", end = "the server ended the answer early";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "" || data === "[DONE]") continue;
        const piece = JSON.parse(data);
        if (piece.error) throw new Error(sentenceOf(piece.error));
        const choice = piece.choices && piece.choices[0];
        if (!choice) continue;
        if (choice.delta && choice.delta.content) answer.text += choice.delta.content;
        if (choice.delta && choice.delta.reasoning_content) answer.thoughts = (answer.thoughts || "") + choice.delta.reasoning_content;
        if (choice.finish_reason) end = choice.finish_reason;
      }
      const box = byId("turns"), below = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
      answer.show();
      if (below) box.scrollTop = box.scrollHeight;
    }
    answer.end = end;
  }
  async function ask(text, sent) {
    const chosen = [byId("model").value, byId("beside").value].filter((m, i) => m !== "" && (i === 0 || m !== byId("model").value));
    const turn = { text, pictures: sent, answers: chosen.map((model) => ({ model, text: "", end: "" })) };
    now.turns.push(turn);
    all = [now, ...all.filter((c) => c !== now)];
    running = new AbortController();
    byId("stop").disabled = false;
    byId("send").disabled = true;
    fail("");
    drawAll();
    announce("The answer is being written.");
    await Promise.all(turn.answers.map(async (answer) => {
      try { await stream(answer, now.turns.length - 1, running.signal); } catch (e) {
        answer.end = running.signal.aborted ? "stopped" : "failed";
        if (!running.signal.aborted) fail(e instanceof TypeError ? "The server does not answer. Is sheaf serve still running?" : e.message);
      }
      answer.show();
    }));
    running = null;
    byId("stop").disabled = true;
    byId("send").disabled = false;
    announce(turn.answers.map((a) => `${chosen.length > 1 ? `${a.model}: ` : ""}${a.text}`).join(" "));
    drawHistory(); keep();
    byId("question").focus();
  }

  // ---- the page ----

  byId("ask").addEventListener("submit", (e) => {
    e.preventDefault();
    const text = byId("question").value.trim();
    if (running || (text === "" && pictures.length === 0)) return;
    if (byId("model").value === "") { loadModels(); return; } // the typed text stays
    const sent = pictures;
    byId("question").value = "";
    pictures = [];
    drawPictures();
    ask(text, sent);
  });
  byId("question").addEventListener("keydown", (e) => {
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); byId("ask").requestSubmit(); }
  });
  document.addEventListener("keydown", (e) => { if (e.key === "Escape" && running) running.abort(); });
  byId("stop").addEventListener("click", () => { if (running) running.abort(); });
  byId("system").addEventListener("input", () => { now.system = byId("system").value; });
  byId("system").addEventListener("change", () => { if (!running) keep(); });
  byId("model").addEventListener("change", showWhetherPictures);
  byId("new").addEventListener("click", () => { if (!running) { begin(); byId("question").focus(); } });
  byId("file").addEventListener("change", (e) => { addFiles(e.target.files); e.target.value = ""; });
  document.addEventListener("paste", (e) => { if (e.clipboardData && e.clipboardData.files.length > 0) { e.preventDefault(); addFiles(e.clipboardData.files); } });
  document.addEventListener("dragover", (e) => { e.preventDefault(); byId("ask").classList.add("over"); });
  document.addEventListener("dragleave", () => byId("ask").classList.remove("over"));
  document.addEventListener("drop", (e) => { e.preventDefault(); byId("ask").classList.remove("over"); addFiles(e.dataTransfer.files); });
  byId("access").addEventListener("submit", (e) => {
    e.preventDefault();
    token = byId("token").value;
    try { sessionStorage.setItem("sheaf token", token); } catch (error) { /* asked for again, then */ }
    loadModels();
  });
  begin();
  loadModels();
})();
