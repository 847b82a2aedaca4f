// What every tab needs: commands to the server, the theme, the keyboard.
window.slipstream = (() => {
  const stored = (key, fallback) => {
    try {
      return JSON.parse(localStorage.getItem(`slipstream-${key}`)) ?? fallback;
    } catch {
      return fallback;
    }
  };
  const store = (key, value) => localStorage.setItem(`slipstream-${key}`, JSON.stringify(value));
  const byId = (id) => document.getElementById(id);
  const acts = {}; // what is done in the page and not on the server, by name
  const formFields = {}; // functions that read the form of a command, by its name
  const EVERYWHERE = new Set(["theme", "help"]); // the other shortcuts go to the chat first
  let post = null, number = 0;

  // A command of a tab: ``fields`` has its name in ``command``, and what it needs.
  const command = (tab, fields) => post?.(tab, JSON.stringify(fields));
  // One of the chat: with the settings, and a number, as commands may overtake each other.
  const send = (fields) => {
    if (!post) return 0;
    number += 1;
    command("chat", { ...fields, number, settings: slipstream.settings?.() ?? {} });
    return number;
  };
  // Every open page keeps one connection, and browsers allow six to a host.
  const CONNECTIONS = 6, PAGE = "slipstream-page-", LOOK = 2000;
  const count = async () => {
    const { held } = await navigator.locks.query();
    const open = held.filter(({ name }) => name.startsWith(PAGE)).length;
    const note = byId("crowd");
    if (!note) return; // the chat is not drawn
    note.hidden = open < CONNECTIONS;
    note.querySelector("b").textContent = open;
  };
  const watchCrowd = () => {
    if (!navigator.locks) return; // missing on pages that the browser does not trust
    navigator.locks.request(PAGE + crypto.randomUUID(), () => new Promise(() => {}));
    count();
    setInterval(() => document.visibilityState === "visible" && count(), LOOK);
  };
  const connect = (how) => {
    if (!post) watchCrowd();
    [post, number] = [how, 0]; // a restarted server counts from 1 again
    showTheme();
    acts.hello?.();
  };

  const dark = () => document.body.classList.contains("dark");
  const showTheme = () => {
    const chosen = stored("theme", null);
    if (chosen) document.body.classList.toggle("dark", chosen === "dark");
  };
  acts.theme = () => {
    store("theme", dark() ? "light" : "dark");
    showTheme();
  };

  const tab = (name) => [...document.querySelectorAll("#tabs [role=tab]")].find((each) => each.textContent.trim() === name);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-do]");
    if (!button) return;
    const { do: name, id = "", text = "" } = button.dataset;
    if (acts[name]) acts[name](button);
    else send({ command: name, id, text });
  });

  document.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    const typing = event.target.matches("input, textarea, select");
    const keys = [
      (event.ctrlKey || event.metaKey) && "ctrl",
      event.altKey && "alt",
      event.key.toLowerCase(),
    ].filter(Boolean).join("+");
    if (typing && keys.length === 1) return; // a letter
    if (keys === "arrowup" && !(event.target.id === "box" && !event.target.value)) return;
    const row = [...document.querySelectorAll("#help [data-keys]")].find((each) => each.dataset.keys === keys);
    const name = row?.dataset.act;
    if (!name || !acts[name] || (byId("help").open && name !== "help")) return;
    const there = () => EVERYWHERE.has(name) || byId("chat").checkVisibility();
    if (!there() && name === "escape") return;
    event.preventDefault();
    if (!there()) tab("Chat").click();
    const act = () => (there() ? acts[name]() : requestAnimationFrame(act));
    act();
  });

  // When the page is left, Gradio aborts its connection and logs that as an error. The browser closes
  // the connection anyway.
  const { abort } = AbortController.prototype;
  AbortController.prototype.abort = function (...why) {
    if (window.event?.type !== "beforeunload") abort.apply(this, why);
  };

  return { acts, byId, command, connect, formFields, send, store, stored, tab };
})();
