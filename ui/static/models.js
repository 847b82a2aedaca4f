// The models tab: commands up, the catalogue's filter, figures that run, and focus that stays.
window.slipstream.models = (() => {
  const { byId, send } = slipstream;
  let ask = () => {}; // until the tab is there
  let seen = "", now = { done: 0, model: "", here: [], downloads: {} }, focused = null, words = "";
  const kinds = new Set(), folds = new Map(); // folds: what a person opened or closed, by place

  const post = (button, command) => {
    byId("models").querySelectorAll("[popover]:popover-open").forEach((open) => open.hidePopover());
    if (button) button.disabled = true; // until something is done
    ask(JSON.stringify(command));
  };
  const here = (type, act) => document.addEventListener(type, (event) => event.target.closest?.("#models") && act(event));
  here("click", ({ target }) => {
    const button = target.closest("button");
    if (!button) return;
    const { ask: what, name = "", kind } = button.dataset;
    if (what) post(button, { ask: what, name });
    if (!kind) return;
    kinds[kinds.has(kind) ? "delete" : "add"](kind);
    button.setAttribute("aria-pressed", kinds.has(kind));
    find();
  });
  here("submit", (event) => {
    event.preventDefault();
    const field = event.target.querySelector("input");
    post(event.target.querySelector("button"), { ask: event.target.dataset.ask, name: field.value });
    if (field.type === "password") field.value = "";
  });
  here("input", ({ target }) => {
    if (target.id !== "models-search") return;
    words = target.value.toLowerCase();
    find();
  });

  // --- The catalogue: every word and every kind that is chosen
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

  // --- What a person unfolded stays so though it was drawn anew, and so does what a search did
  const LISTED = "details.group, details.how";
  const place = (details) => `${details.closest("[id^=models-]").id} ${details.className} ${details.closest("[data-row]")?.dataset.row ?? ""}`;
  here("click", ({ target }) => {
    const details = target.closest("summary")?.parentElement;
    if (details?.matches(LISTED)) folds.set(place(details), !details.open); // this click changes it yet
  });
  const unfold = () => {
    for (const details of byId("models").querySelectorAll(LISTED)) {
      const open = folds.get(place(details)) ?? (details.matches(".group") ? matching(details) : details.open);
      if (details.open !== open) details.open = open;
    }
  };

  // --- Figures of the downloads, in the rows that stand there
  const run = () => {
    for (const row of byId("models").querySelectorAll("[data-download]")) {
      const figures = now.downloads[row.dataset.download];
      if (!figures) continue;
      const [share, says] = figures;
      const said = row.querySelector(".figures"), track = row.querySelector(".track");
      if (said.textContent !== says) said.textContent = says;
      track.firstElementChild.style.transform = `scaleX(${share})`;
      track.setAttribute("aria-valuenow", Math.round(100 * share));
    }
  };

  // --- Whoever works with the keyboard stays where they were: drawn anew, the focused element may be another row's
  here("focusin", ({ target }) => (focused = target.closest("[data-row]")?.dataset.row ?? null));
  const refocus = () => {
    const at = document.activeElement, row = at.closest("#models [data-row]");
    if (focused === null || (at !== document.body && (!row || row.dataset.row === focused))) return;
    const place = byId("models").querySelector(`[data-row="${CSS.escape(focused)}"]`);
    const again = (at.dataset.ask && place?.querySelector(`[data-ask="${at.dataset.ask}"]`)) || place;
    again ? again.focus({ preventScroll: true }) : at.blur();
  };

  const read = () => {
    const root = byId("models");
    const told = root.querySelector("[data-models]")?.dataset.models;
    if (told && told !== seen) {
      const before = now;
      seen = told;
      now = JSON.parse(told);
      if (now.done !== before.done) root.querySelectorAll("button:disabled").forEach((button) => (button.disabled = false));
      const changed = String(now.here) !== String(before.here);
      if (before.model && (changed || now.model !== before.model)) send({ do: "refresh" }); // the chat's picker
      if (changed && root.querySelector("[data-ask='add']")) root.querySelector("[data-ask='add']").reset();
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
  return { connect: (how) => (ask = how) };
})();
