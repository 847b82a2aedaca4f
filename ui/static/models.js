// The Models tab: the catalogue's filter, the progress of downloads, and what survives a redraw.
(() => {
  const { byId, send } = slipstream;
  let seen = "", now = { done: 0, model: "", here: [], downloads: {} }, focused = null, words = "";
  const kinds = new Set(), folds = new Map(); // folds: what a person opened or closed, by place

  const here = (type, act) => document.addEventListener(type, (event) => event.target.closest?.("#models") && act(event));
  here("click", ({ target }) => {
    const button = target.closest("button[data-kind]");
    if (!button) return;
    const { kind } = button.dataset;
    kinds[kinds.has(kind) ? "delete" : "add"](kind);
    button.setAttribute("aria-pressed", kinds.has(kind));
    find();
  });
  here("input", ({ target }) => {
    if (target.id !== "models-search") return;
    words = target.value.toLowerCase();
    find();
  });

  // --- The filter: a row needs every word and every chosen kind
  const filter = () => {
    const root = byId("models");
    const wanted = words.split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const group of root.querySelectorAll(".group")) {
      let matches = 0;
      for (const row of group.querySelectorAll("[data-words]")) {
        const has = row.dataset.kinds.split(" ");
        row.hidden = !(wanted.every((word) => row.dataset.words.includes(word)) && [...kinds].every((kind) => has.includes(kind)));
        matches += !row.hidden;
      }
      group.hidden = !matches;
      shown += matches;
    }
    const none = root.querySelector(".none");
    if (none) none.hidden = shown > 0;
  };

  const matching = (group) => Boolean(words || kinds.size) && !group.hidden;
  const find = () => {
    filter();
    for (const group of byId("models-list").querySelectorAll("details.group")) {
      folds.delete(place(group));
      group.open = matching(group);
    }
  };

  // --- Details that a person or a search opened stay open when they are drawn again
  const LISTED = "details.group, details.how";
  const place = (details) => `${details.closest("[id^=models-]").id} ${details.className} ${details.closest("[data-row]")?.dataset.row ?? ""}`;
  here("click", ({ target }) => {
    const details = target.closest("summary")?.parentElement;
    if (details?.matches(LISTED)) folds.set(place(details), !details.open); // this click will change it
  });
  const unfold = () => {
    for (const details of byId("models").querySelectorAll(LISTED)) {
      const open = folds.get(place(details)) ?? (details.matches(".group") ? matching(details) : details.open);
      if (details.open !== open) details.open = open;
    }
  };

  // --- Figures of the downloads, written into their rows
  const run = () => {
    for (const row of byId("models").querySelectorAll("[data-download]")) {
      const download = now.downloads[row.dataset.download];
      if (!download) continue;
      const [share, figures] = download;
      const text = row.querySelector(".figures"), track = row.querySelector(".track");
      if (text.textContent !== figures) text.textContent = figures;
      track.firstElementChild.style.transform = `scaleX(${share})`;
      track.setAttribute("aria-valuenow", Math.round(100 * share));
    }
  };

  // --- The focus stays on its row: after a redraw the focused element may be another row's
  here("focusin", ({ target }) => (focused = target.closest("[data-row]")?.dataset.row ?? null));
  const refocus = () => {
    const at = document.activeElement, row = at.closest("#models [data-row]");
    if (focused === null || (at !== document.body && (!row || row.dataset.row === focused))) return;
    const place = byId("models").querySelector(`[data-row="${CSS.escape(focused)}"]`);
    const again = (at.dataset.command && place?.querySelector(`[data-command="${at.dataset.command}"]`)) || place;
    again ? again.focus({ preventScroll: true }) : at.blur();
  };

  const read = () => {
    const root = byId("models");
    const data = root.querySelector("[data-models]")?.dataset.models;
    if (data && data !== seen) {
      const before = now;
      seen = data;
      now = JSON.parse(data);
      if (now.done !== before.done) root.querySelectorAll("button:disabled").forEach((button) => (button.disabled = false));
      const changed = String(now.here) !== String(before.here);
      if (before.model && (changed || now.model !== before.model)) send({ command: "refresh" }); // the chat's picker
      if (changed && root.querySelector("[data-command='add']")) root.querySelector("[data-command='add']").reset();
    }
    run();
  };
  new MutationObserver((changes) => {
    const root = byId("models");
    if (!root || !changes.some(({ target }) => root.contains(target) || target.contains(root))) return;
    read();
    filter();
    unfold();
    refocus();
  }).observe(document.documentElement, { childList: true, subtree: true, attributes: true, attributeFilter: ["data-models"] });
})();
