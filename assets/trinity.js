/* What the page does by itself: patching HTML in place, drawing plots that keep their zoom, choosing a turn,
   keyboard, and saying when the server is gone. No values are stored here and nothing is fetched but the server. */
(() => {
  "use strict";
  const state = { picked: null, softmax: false, panels: new Set(), pressed: null };
  const $ = (id) => document.getElementById(id);
  const typing = (node) => node instanceof Element && node.closest("input:not([type=radio]):not([type=checkbox]), textarea, select, [contenteditable=true]");

  /* --- Patching ------------------------------------------------------------------------------------------ */
  const KEPT = new Set(["open", "aria-current"]);

  function patch(from, to) {
    if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName || from.dataset?.key !== to.dataset?.key) {
      from.replaceWith(to);
      return;
    }
    if (from.nodeType !== Node.ELEMENT_NODE) {
      if (from.data !== to.data) from.data = to.data;
      return;
    }
    if (from.nodeName === "OPTION") from.selected = to.hasAttribute("selected");
    for (const { name, value } of [...to.attributes]) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    for (const { name } of [...from.attributes]) if (!to.hasAttribute(name) && !KEPT.has(name)) from.removeAttribute(name);
    patchChildren(from, to);
  }

  function patchChildren(from, to) {
    const wanted = [...to.childNodes];
    wanted.forEach((child, index) => {
      const old = from.childNodes[index];
      if (old) patch(old, child);
      else from.appendChild(child);
    });
    while (from.childNodes.length > wanted.length) from.lastChild.remove();
  }

  function paintHtml(hold, value) {
    const made = document.createElement("template");
    made.innerHTML = value;
    const scroller = hold.closest(".tr-scroll, #run-answer");
    const atEnd = scroller && scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 60;
    patchChildren(hold, made.content);
    if (atEnd) scroller.scrollTop = scroller.scrollHeight;
    const lane = hold.querySelector(".tr-lane");
    if (lane) {
      if (!lane.querySelector(".tr-card")) state.picked = null;
      markPicked();
    }
    if (hold.closest("#trace-detail")) follow(hold);
    if (hold.closest("#pool-note, #pool-status")) showMessage(hold);
    if (hold.closest("#pool-table, #pool-note")) keepFocus(hold);
    hold.querySelectorAll("time[datetime]").forEach(localise);
    const clock = hold.querySelector(".tr-clock");
    if (clock) clock.since = performance.now();
  }

  /* Where the detail stands below the list, opening and closing move the view to what was asked for. */
  function follow(hold) {
    const id = hold.querySelector("article")?.dataset.id || "";
    const before = hold.shows || "";
    if (id === before) return;
    hold.shows = id;
    const row = document.querySelector(`#traces-table tr[data-id="${CSS.escape(before)}"]`);
    requestAnimationFrame(() => {
      if (id && window.innerWidth <= 1100) hold.scrollIntoView({ block: "start" });
      if (!id && !hold.firstChild) row?.focus();
    });
  }

  /* The form may stand out of sight, below the table or beside its beginning; what fills it moves view and focus. */
  function toForm(name) {
    const title = document.querySelector("#pool-form-title h2");
    if (!title) return;
    const { top, bottom } = title.getBoundingClientRect();
    if (top < 0 || bottom > window.innerHeight) title.scrollIntoView({ block: "start" });
    (name ? $("pool-name").querySelector("input, textarea") : title).focus({ preventScroll: true });
  }

  /* A wrong answer asks for the right one: the field gets the focus, and typing replaces what is in it. */
  function toReference() {
    const box = $("queue-reference")?.querySelector("textarea, input");
    box?.focus();
    box?.select();
  }

  function toTaskForm() {
    const title = document.querySelector("#task-title h2");
    if (title && window.innerWidth <= 1100) requestAnimationFrame(() => title.scrollIntoView({ block: "start" }));
  }

  /* Once a page, after what the browser remembers has been read: an empty draft is shorter than this. */
  function restoreForm(hold) {
    if (state.restored || (localStorage.getItem("trinity-pool") || "").length < 100) return;
    state.restored = true;
    setTimeout(() => hold.trinityTrigger("pick", { act: "restore", id: "" }), 50);
  }

  /* What became of a button that was pressed is said where the eye may not be. */
  function showMessage(hold) {
    const first = hold.firstElementChild;
    const shows = hold.closest("#pool-note") ? hold.textContent : first?.dataset.kind || "";
    const before = hold.shows;
    hold.shows = shows;
    if (first && before !== undefined && before !== shows)
      requestAnimationFrame(() => first.scrollIntoView({ block: "nearest" }));
  }

  /* Rows are patched in place, so after a move the focus would be on another member's button. */
  function keepFocus(hold) {
    const { act, id } = state.pressed || {};
    if (!act) return;
    const find = (what) => hold.querySelector(`[data-act="${what}"]:not([disabled])${what === "undo" ? "" : `[data-id="${CSS.escape(id)}"]`}`);
    const button = act === "remove" ? hold.closest("#pool-note") && find("undo") : find(act) || find("edit");
    if (!button) return;
    state.pressed = null;
    button.focus({ preventScroll: true });
  }

  function localise(node) {
    const at = new Date(node.getAttribute("datetime"));
    const pad = (n) => String(n).padStart(2, "0");
    const text = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${pad(at.getHours())}:${pad(at.getMinutes())}`;
    if (node.textContent !== text) node.textContent = text;
  }

  /* --- Plots --------------------------------------------------------------------------------------------- */
  let loading = null;

  function plotly() {
    /* Gradio's own plots set window.Plotly to an older version: keep ours apart, and give back what was there. */
    loading ||= new Promise((done, fail) => {
      const before = window.Plotly;
      const script = document.createElement("script");
      script.src = window.trinityPlotly;
      script.onload = () => {
        const ours = window.Plotly;
        if (before) window.Plotly = before;
        done(ours);
      };
      script.onerror = () => fail(new Error("plotly.min.js could not be loaded"));
      document.head.appendChild(script);
    });
    return loading;
  }

  (window.requestIdleCallback || setTimeout)(() => plotly().catch(() => {}));

  const CONFIG = { displayModeBar: false, responsive: true, showSendToCloud: false, displaylogo: false, scrollZoom: false };

  function narrowed(figure) {
    /* On a phone: the three largest, and the chosen one when it is not among them. */
    if (window.innerWidth > 480 || figure.data.length !== 1 || figure.data[0].y.length <= 3) return figure;
    const copy = structuredClone(figure);
    const trace = copy.data[0];
    const keep = trace.y.map((_, i) => i < 3 || trace.customdata[i]);
    const cut = (list) => list.filter((_, i) => keep[i]);
    for (const name of ["y", "x", "text", "hovertext", "customdata"]) trace[name] = cut(trace[name]);
    trace.marker.color = cut(trace.marker.color);
    trace.marker.line.width = cut(trace.marker.line.width);
    copy.layout.height = 56 + 34 * trace.y.length;
    return copy;
  }

  async function draw(hold, figure, title, empty) {
    const key = JSON.stringify([figure, title, empty, window.innerWidth <= 480]);
    if (hold.drawn === key) return;
    hold.drawn = key;
    let head = hold.querySelector(".tr-plot-title");
    if (!head) {
      hold.innerHTML = '<div class="tr-plot-title"></div><div class="tr-plot"></div><p class="tr-caption"></p>';
      head = hold.querySelector(".tr-plot-title");
    }
    const plot = hold.querySelector(".tr-plot");
    const caption = hold.querySelector(".tr-caption");
    head.textContent = title;
    caption.textContent = figure ? figure.caption : empty;
    plot.hidden = !figure;
    if (!figure) return;
    const Plotly = await plotly();
    if (hold.drawn !== key) return;
    const shown = narrowed(structuredClone(figure));
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", `${title}. ${figure.caption}`);
    await Plotly.react(plot, shown.data, shown.layout, CONFIG);
    if (!plot.listens && figure.keys) {
      plot.listens = true;
      plot.on("plotly_click", (event) => {
        const column = event.points[0]?.pointIndex;
        const index = Array.isArray(column) ? column[1] : column;
        const keys = JSON.parse(hold.drawn)[0].keys;
        if (keys[index]) pick(keys[index]);
      });
    }
  }

  function paintBars(hold, text) {
    const value = JSON.parse(text);
    const what = hold.closest("#run-role-logits") ? "Role" : "Agent";
    const key = state.picked && value.calls[state.picked] ? state.picked : value.latest;
    const call = value.calls[key];
    const figure = call ? call[state.softmax ? "probs" : "logits"] : null;
    const unit = state.softmax ? "probabilities" : "logits";
    draw(hold, figure, `${what} ${unit}${call ? ` · ${call.title}` : ""}`, call?.words || value.empty);
  }

  function paintHeat(hold, text) {
    const value = JSON.parse(text);
    draw(hold, value.figure, "All turns", value.empty);
  }

  const painters = { html: paintHtml, bars: paintBars, heat: paintHeat };

  function mount(painter, element, props, watch, trigger) {
    const hold = element.querySelector(".tr-hold");
    const panel = { hold, paint: () => typeof props.value === "string" && painters[painter](hold, props.value) };
    for (const old of state.panels) if (!old.hold.isConnected) state.panels.delete(old);
    if (painter !== "html") state.panels.add(panel);
    hold.trinityTrigger = trigger;
    if (hold.closest("#pool-form-title")) restoreForm(hold);
    panel.paint();
    watch("value", panel.paint);
  }

  const repaint = () => state.panels.forEach((panel) => panel.hold.isConnected && panel.paint());

  /* --- Choosing a turn ----------------------------------------------------------------------------------- */
  function lane() {
    return [...document.querySelectorAll(".tr-lane")].find((node) => node.offsetParent !== null);
  }

  function markPicked() {
    document.querySelectorAll(".tr-card").forEach((card) => {
      if (card.dataset.key === state.picked && card.closest("#run-lane")) card.setAttribute("aria-current", "true");
      else card.removeAttribute("aria-current");
    });
  }

  function pick(key) {
    state.picked = key;
    markPicked();
    repaint();
  }

  function step(nodes, current, by) {
    if (!nodes.length) return null;
    const at = nodes.indexOf(current);
    return nodes[at < 0 ? (by > 0 ? 0 : nodes.length - 1) : Math.min(Math.max(at + by, 0), nodes.length - 1)];
  }

  /* The labelling queue: its buttons by name, while it is in sight. */
  function queueButton(act) {
    const found = document.querySelector(`#queue-card [data-act="${act}"]`);
    return found && found.offsetParent !== null ? found : null;
  }

  function move(by) {
    const turn = queueButton(by > 0 ? "next" : "previous");
    if (turn) return turn.click();
    const table = $("traces-table");
    if (table && table.offsetParent !== null) {
      const rows = [...table.querySelectorAll("tr[data-id]")];
      const row = step(rows, rows.find((r) => r.getAttribute("aria-selected") === "true"), by);
      if (row) {
        row.focus();
        row.click();
      }
      return;
    }
    const cards = lane() ? [...lane().querySelectorAll(".tr-card")] : [];
    const card = step(cards, cards.find((c) => c.dataset.key === state.picked), by);
    if (card) {
      card.focus();
      card.scrollIntoView({ block: "nearest" });
      pick(card.dataset.key);
    }
  }

  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target : null;
    if (!target) return;
    const card = target.closest("#run-lane .tr-card");
    if (card && !target.closest("summary, a, button")) pick(card.dataset.key);
    const example = target.closest(".tr-example[data-question]");
    if (example) ask(example.dataset.question);
    if (target.closest(".tr-help-button")) help();
    const act = target.closest("[data-act]");
    if (act) {
      const what = act.dataset.act;
      if (what === "remove" && event.detail > 1) return; // the second half of a double click meets the next member
      if (act.closest("#pool-table") && what !== "edit") state.pressed = { act: what, id: act.dataset.id };
      if (act.closest("#pool-table, #pool-offers") && (what === "edit" || what === "offer")) toForm(false);
      if (act.closest("#queue-card") && (what === "wrong" || what === "edit")) toReference();
      if (act.closest("#tasks-table") && what === "open") toTaskForm();
      const hold = act.closest(".tr-hold");
      hold?.trinityTrigger?.("pick", { act: act.dataset.act, id: act.dataset.id || "" });
    }
    if (target.closest("#pool-add")) toForm(true);
    const tab = target.closest("[data-tab]");
    if (tab) openTab(tab.dataset.tab);
    const copy = target.closest("[data-copy]");
    if (copy) copyText(copy);
  });

  document.addEventListener("change", (event) => {
    const select = event.target instanceof Element ? event.target.closest("select[data-filter]") : null;
    select?.closest(".tr-hold")?.trinityTrigger?.("pick", { act: "filter", id: `${select.name}=${select.value}` });
  });

  async function copyText(button) {
    const text = new URL(button.dataset.copy, location.href).href;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      window.prompt("Copy this link", text);
    }
    setTimeout(() => (button.textContent = "Copy link"), 1500);
  }

  function ask(question) {
    const box = $("run-query")?.querySelector("textarea");
    if (!box) return;
    Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, "value").set.call(box, question);
    box.dispatchEvent(new Event("input", { bubbles: true }));
    box.focus();
  }

  /* --- Keyboard ------------------------------------------------------------------------------------------ */
  const KEYS = [
    ["Ctrl + Enter", "Run the question"],
    ["Esc", "Stop the run or the test, or close the trace"],
    ["J / K", "Next / previous turn, trace or answer to label"],
    ["1 / 2", "Labelling: the answer is right / wrong"],
    ["E", "Labelling: edit the right answer"],
    ["/", "Search the traces"],
    ["← →", "Move between tabs"],
    ["?", "Show or hide this list"],
  ];

  function help() {
    let dialog = $("tr-help");
    if (!dialog) {
      dialog = document.createElement("dialog");
      dialog.id = "tr-help";
      dialog.setAttribute("aria-labelledby", "tr-help-title");
      const rows = KEYS.map(([key, what]) => `<tr><th scope="row"><kbd>${key}</kbd></th><td>${what}</td></tr>`).join("");
      dialog.innerHTML = `<h2 id="tr-help-title">Keyboard</h2><table>${rows}</table><form method="dialog"><button>Close</button></form>`;
      (document.querySelector(".gradio-container") || document.body).appendChild(dialog);
    }
    if (dialog.open) dialog.close();
    else dialog.showModal();
  }

  function openTab(id) {
    $(`${id}-button`)?.click();
  }

  function press(id) {
    const button = $(id);
    if (button && !button.disabled && button.offsetParent !== null) button.click();
  }

  document.addEventListener("keydown", (event) => {
    const target = event.target;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      return press("run-start");
    }
    if (event.key === "Escape" && !$("tr-help")?.open) {
      press("run-stop");
      press("pool-test-stop");
      const close = document.querySelector("#trace-detail .tr-close");
      if (close?.offsetParent && !typing(target)) close.click();
      return;
    }
    if (event.key === "Enter" && target instanceof Element && target.matches(".tr-card, tr[data-id]")) {
      event.preventDefault();
      return target.click();
    }
    if (target instanceof Element && target.getAttribute("role") === "tab" && /^Arrow(Left|Right)$/.test(event.key)) {
      const tabs = [...target.parentElement.querySelectorAll('[role="tab"]')];
      const next = tabs[(tabs.indexOf(target) + (event.key === "ArrowRight" ? 1 : tabs.length - 1)) % tabs.length];
      next.click();
      next.focus();
      return event.preventDefault();
    }
    if (typing(target) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "?") help();
    else if (event.key === "j" || event.key === "J") move(1);
    else if (event.key === "k" || event.key === "K") move(-1);
    else if (event.key === "1") queueButton("right")?.click();
    else if (event.key === "2" && queueButton("wrong")) {
      event.preventDefault(); // the field that gets the focus must not get the key too
      queueButton("wrong").click();
    } else if ((event.key === "e" || event.key === "E") && queueButton("edit")) {
      event.preventDefault();
      queueButton("edit").click();
    }
    else if (event.key === "/") {
      event.preventDefault();
      openTab("tab-traces");
      const focus = (tries) => {
        const box = $("traces-search")?.querySelector("input, textarea");
        if (box && box.offsetParent !== null) box.focus();
        else if (tries) setTimeout(() => focus(tries - 1), 100);
      };
      focus(20);
    }
  }, true);

  /* --- Clock, width, server ------------------------------------------------------------------------------ */
  const words = (s) => (s < 90 ? `${s.toFixed(1)} s` : `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`);

  setInterval(() => {
    document.querySelectorAll('.tr-status[data-running="1"] .tr-clock').forEach((clock) => {
      const passed = (performance.now() - (clock.since ?? performance.now())) / 1000;
      const text = words(Number(clock.dataset.elapsed) + passed);
      if (clock.firstChild) clock.firstChild.data = text;
    });
  }, 100);

  let resizing = null;
  window.addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(repaint, 150);
  });

  let lost = false;
  function banner(show) {
    lost = show;
    let box = $("tr-lost");
    if (!show) return box?.remove();
    if (box) return;
    box = document.createElement("div");
    box.id = "tr-lost";
    box.setAttribute("role", "alert");
    box.innerHTML = "<span>The server does not answer. What you typed is kept.</span><button type=button>Reconnect</button>";
    box.querySelector("button").onclick = () => location.reload();
    (document.querySelector(".gradio-container") || document.body).appendChild(box);
  }

  async function lookForServer() {
    if (document.hidden) return;
    try {
      await fetch("robots.txt", { cache: "no-store" });
      if (lost) $("tr-lost").querySelector("span").textContent = "The server answers again. Reconnect to go on.";
    } catch {
      banner(true);
    }
  }

  setInterval(lookForServer, 4000);
  window.addEventListener("offline", lookForServer);
  window.addEventListener("online", lookForServer);

  window.trinity = { mount, plotly, press: (id) => $(id)?.click(), softmax: (on) => { state.softmax = on; repaint(); } };
})();

/* --- Train: plots that grow and keep their zoom ------------------------------------------------------------- */
(() => {
  "use strict";
  const CONFIG = { displayModeBar: false, responsive: true, showSendToCloud: false, displaylogo: false, scrollZoom: false };

  async function draw(hold, text) {
    const narrow = window.innerWidth <= 480;
    const key = `${narrow}${text}`;
    if (hold.drawn === key) return;
    hold.drawn = key;
    const { figure, title, empty, caption } = JSON.parse(text);
    if (!hold.querySelector(".tr-plot"))
      hold.innerHTML = '<div class="tr-plot-title"></div><div class="tr-plot"></div><p class="tr-caption"></p>';
    const plot = hold.querySelector(".tr-plot");
    hold.querySelector(".tr-plot-title").textContent = title;
    hold.querySelector(".tr-caption").textContent = figure ? caption : empty;
    plot.hidden = !figure;
    if (!figure) return;
    const Plotly = await window.trinity.plotly();
    if (hold.drawn !== key) return; // a newer one came while the library loaded
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", `${title}. ${caption}`);
    if (narrow) figure.layout.hovermode = "closest";
    await Plotly.react(plot, figure.data, figure.layout, CONFIG);
    plot.dataset.drawn = String(Number(plot.dataset.drawn || 0) + 1);
  }

  function mount(element, props, watch) {
    const hold = element.querySelector(".tr-hold");
    const paint = () => typeof props.value === "string" && draw(hold, props.value);
    paint();
    watch("value", paint);
  }

  window.trinityTrain = { mount };
})();
