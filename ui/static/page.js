// What every tab needs: commands to the server, the theme, the keyboard.
window.slipstream = (() => {
  // Where the browser blocks storage, the page, and Gradio, get one that ends with the page.
  const unkept = () => {
    const values = new Map();
    return {
      getItem: (key) => values.get(String(key)) ?? null,
      setItem: (key, value) => void values.set(String(key), String(value)),
      removeItem: (key) => void values.delete(String(key)),
      clear: () => values.clear(),
      key: (place) => [...values.keys()][place] ?? null,
      get length() { return values.size; },
    };
  };
  for (const name of ["localStorage", "sessionStorage"]) {
    try {
      window[name].getItem("slipstream");
    } catch {
      Object.defineProperty(window, name, { value: unkept(), configurable: true });
    }
  }
  const stored = (key, fallback, area = localStorage) => {
    try {
      return JSON.parse(area.getItem(`slipstream-${key}`)) ?? fallback;
    } catch {
      return fallback; // written by something else
    }
  };
  const store = (key, value, area = localStorage) => {
    try {
      area.setItem(`slipstream-${key}`, JSON.stringify(value));
    } catch {
      area.removeItem(`slipstream-${key}`); // it is full: nothing is better than something old
    }
  };
  // An input method takes this key; Safari says so by its number only.
  const composing = (event) => event.isComposing || event.keyCode === 229;
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
  const watchCrowd = async () => {
    if (!navigator.locks) return; // missing on pages that the browser does not trust
    try {
      await count(); // refused where storage is blocked
    } catch {
      return;
    }
    navigator.locks.request(PAGE + crypto.randomUUID(), () => new Promise(() => {}));
    setInterval(() => document.visibilityState === "visible" && count(), LOOK);
  };
  const connect = (how) => {
    if (!post) watchCrowd();
    if (!post && document.querySelector('[data-do="logout"]')) watchDoor();
    [post, number] = [how, 0]; // a restarted server counts from 1 again
    showTheme();
    acts.hello?.();
    follow();
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

  // The key was withdrawn, or another tab has logged out: the form takes the place of the page.
  const watchDoor = () => setInterval(async () => {
    if (document.visibilityState !== "visible") return;
    try {
      const { status } = await fetch("login", { method: "HEAD", redirect: "manual" });
      if (status === 401) location.reload();
    } catch { /* the server does not answer now */ }
  }, LOOK);
  acts.logout = async () => {
    await fetch("logout", { method: "POST" });
    sessionStorage.clear(); // what was typed and not sent
    location.replace(location.pathname);
  };

  const tabs = () => [...document.querySelectorAll("#tabs [role=tab]")];
  const titleOf = (element) => element.textContent.trim();
  const tab = (name) => tabs().find((each) => titleOf(each) === name);
  // Each tab and each conversation has an address, so that Back leads to the one before.
  let chat = ""; // the conversation's
  const there = () => location.hash.slice(1);
  const named = () => tabs().find((each) => titleOf(each).toLowerCase() === there());
  const go = (address, how = "pushState") => {
    if (address !== there()) history[how]({ chat }, "", address ? `#${address}` : location.pathname + location.search);
  };
  const visit = (conversation, how) => {
    chat = conversation;
    go(named() ? there() : chat, how);
  };
  const conversation = () => (named() ? history.state?.chat ?? "" : there());
  const follow = () => {
    const wanted = named() ?? tab("Chat");
    chat = conversation();
    if (wanted?.getAttribute("aria-selected") === "false") wanted.click();
  };
  addEventListener("popstate", () => {
    follow();
    if (!named()) acts.visit(chat);
  });
  document.addEventListener("click", ({ target }) => {
    const chosen = target.closest?.("#tabs [role=tab]");
    if (chosen) go(titleOf(chosen) === "Chat" ? chat : titleOf(chosen).toLowerCase());
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-do]");
    if (!button) return;
    const { do: name, id = "", text = "" } = button.dataset;
    if (acts[name]) acts[name](button);
    else send({ command: name, id, text });
  });

  document.addEventListener("keydown", (event) => {
    if (composing(event) || !event.key) return; // filling in a form by itself, a browser tells no key
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
    const ready = () => EVERYWHERE.has(name) || byId("chat").checkVisibility();
    if (!ready() && name === "escape") return;
    event.preventDefault();
    if (!ready()) tab("Chat").click();
    const act = () => (ready() ? acts[name]() : requestAnimationFrame(act));
    act();
  });

  // When the page is left, Gradio aborts its connection and logs that as an error. The browser closes
  // the connection anyway.
  const { abort } = AbortController.prototype;
  AbortController.prototype.abort = function (...why) {
    if (window.event?.type !== "beforeunload") abort.apply(this, why);
  };

  return { acts, byId, command, composing, connect, conversation, formFields, send, store, stored, tab, visit };
})();
