// What every tab needs: commands up, theme, help sheet, the keyboard.
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
  const acts = {}; // what is done here and not on the server, by name
  const EVERYWHERE = new Set(["theme", "help"]); // the other shortcuts go to the chat first
  let post = null, number = 0;

  // A command is JSON with ``do``; settings travel with each, and a number, since they may overtake each other.
  const send = (command) => {
    if (!post) return 0;
    number += 1;
    post(JSON.stringify({ ...command, number, settings: slipstream.settings?.() ?? {} }));
    return number;
  };
  // Every open page has a connection of its own all the time, of which browsers allow six to a host.
  const CONNECTIONS = 6, PAGE = "slipstream-page-", LOOK = 2000;
  const count = async () => {
    const { held } = await navigator.locks.query();
    const open = held.filter(({ name }) => name.startsWith(PAGE)).length;
    const note = byId("crowd");
    if (!note) return; // the tab was not drawn yet, or no longer
    note.hidden = open < CONNECTIONS;
    note.querySelector("b").textContent = open;
  };
  const watchCrowd = () => {
    if (!navigator.locks) return; // only where the page is trusted
    navigator.locks.request(PAGE + crypto.randomUUID(), () => new Promise(() => {}));
    count();
    setInterval(() => document.visibilityState === "visible" && count(), LOOK);
  };
  const connect = (how) => {
    if (!post) watchCrowd();
    [post, number] = [how, 0]; // a server that was started again counts from the beginning
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
  acts.help = () => (byId("help").open ? byId("help").close() : byId("help").showModal());

  // What another tab changed, a model perhaps, is read again.
  const tab = (name) => [...document.querySelectorAll("#tabs [role=tab]")].find((each) => each.textContent.trim() === name);
  document.addEventListener("click", (event) => {
    if (event.target.closest("#tabs [role=tab]")) send({ do: "refresh" });
    const button = event.target.closest("button[data-do]");
    if (!button) return;
    const { do: name, id = "", text = "" } = button.dataset;
    if (acts[name]) acts[name](button);
    else send({ do: name, id, text });
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

  // When the page is left, Gradio breaks its connection off and logs that as an error, and has a
  // listener for it before any script of ours runs; the browser closes the connection anyway.
  const { abort } = AbortController.prototype;
  AbortController.prototype.abort = function (...why) {
    if (window.event?.type !== "beforeunload") abort.apply(this, why);
  };

  return { acts, byId, connect, send, store, stored, tab };
})();
