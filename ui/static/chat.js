// The Chat tab: settings, the input, the keyboard, and the state that the server sends.
(() => {
  const { acts, byId, composing, conversation: conversationThere, send, store, stored, visit } = slipstream;
  const DEFAULTS = {
    mode: "auto", temperature: null, top_p: null, min_p: null, top_k: null, repeat: null, // null: the model's own
    max_tokens: null, seed: null, look: "auto", overlay: false, captions: true, thinking: "",
  };
  const OFF = { temperature: 0, top_p: 1, min_p: 0, top_k: 0, repeat: 1 };
  const MOST = { attach: 2, import: 5 }; // MiB of a file; the server takes no larger request
  let settings = { ...DEFAULTS, ...stored("settings", {}) };
  let state = { serial: 0, taken: undefined };
  let editing = "", draft = ""; // draft: what was in the input before the edit
  slipstream.settings = () => settings;

  // --- Settings: kept in this browser, sent with every command
  const controls = () => document.querySelectorAll("[data-setting]");
  const showSettings = () => {
    for (const control of controls()) {
      const name = control.dataset.setting, chosen = settings[name];
      const value = chosen ?? state.own?.[name] ?? OFF[name];
      if (control.type === "checkbox") control.checked = value;
      else if (control.value !== String(value ?? "")) control.value = value ?? "";
      if (control.selectedIndex === -1) control.value = DEFAULTS[control.dataset.setting]; // this model lacks the mode
      const output = control.closest("label")?.querySelector(".out");
      if (output) output.textContent = Number(value).toFixed(2) + (chosen == null ? " (default)" : "");
    }
    byId("page").classList.toggle("overlaid", settings.overlay);
    byId("page").classList.toggle("uncaptioned", !settings.captions);
  };
  const changeSettings = (changes) => {
    settings = { ...settings, ...changes };
    store("settings", settings);
    showSettings();
    send({ command: "settings" });
  };
  const valueOf = (control) => {
    if (control.type === "checkbox") return control.checked;
    if (control.tagName === "SELECT") return control.value;
    return control.value === "" ? DEFAULTS[control.dataset.setting] : Number(control.value);
  };
  document.addEventListener("input", ({ target }) => {
    if (target.type === "range" && target.dataset.setting)
      target.closest("label").querySelector(".out").textContent = Number(target.value).toFixed(2);
    if (target.id === "box") {
      grow();
      keepBox();
    }
  });
  document.addEventListener("change", ({ target }) => {
    if (target.dataset.setting) changeSettings({ [target.dataset.setting]: valueOf(target) });
    else if (target.id === "system") send({ command: "instruct", text: target.value });
    else if (target.id === "model") send({ command: "model", name: target.value });
    else if (target.id === "template") send({ command: "template", name: target.value });
    else if (target.id === "preset") send({ command: "preset-use", name: target.value });
    else if (target.id === "attach-file") sendFiles(target.files, "attach", target);
    else if (target.id === "import-file") sendFiles(target.files, "import", target);
  });
  acts.overlay = () => changeSettings({ overlay: !settings.overlay });
  acts.captions = () => changeSettings({ captions: !settings.captions });
  acts.defaults = () => changeSettings(DEFAULTS);
  acts["preset-save"] = () => {
    send({ command: "preset-save", name: byId("preset-name").value, text: byId("system").value });
    byId("preset-name").value = "";
  };
  acts["preset-delete"] = () => send({ command: "preset-delete", name: byId("preset").value });

  // --- The input
  const grow = () => {
    const box = byId("box");
    box.style.height = "auto";
    box.style.height = `${Math.min(box.scrollHeight, 240)}px`;
  };
  const setBox = (text) => {
    byId("box").value = text;
    grow();
    keepBox();
  };
  // The unsent text survives a reload of this browser tab.
  const keepBox = () => store("unsent", byId("box").value, sessionStorage);
  const setEditing = (id) => {
    editing = id;
    byId("editing").hidden = !id;
  };
  // One question at a time; its text stays in the input until the server has accepted it.
  const PATIENCE = 10000;
  let asked = 0, written = null; // written: the text of the input, if it was sent
  const ask = (command, text = null) => {
    if (state.busy || state.loading || (asked && byId("lost").hidden)) return;
    const number = send(command);
    [asked, written] = [number, text];
    byId("box").readOnly = text !== null;
    setTimeout(() => {
      if (asked !== number) return;
      byId("box").readOnly = false; // it may still be taken
      byId("lost").hidden = false;
    }, PATIENCE);
  };
  const answered = (refused) => {
    if (written !== null && !refused) {
      if (byId("box").value === written) setBox(editing ? draft : "");
      setEditing("");
    }
    asked = 0;
    byId("box").readOnly = false;
  };
  acts.send = () => {
    const text = byId("box").value;
    ask(editing ? { command: "edit", id: editing, text } : { command: "send", text }, text);
  };
  acts.suggest = ({ dataset }) => ask({ command: "suggest", text: dataset.text });
  acts.again = ({ dataset }) => ask({ command: "again", id: dataset.id ?? "" });
  acts.continue = () => ask({ command: "continue" });
  acts.models = () => slipstream.tab("Models")?.click();
  acts.dismiss = (button) => {
    store("dismissed", button.closest(".offer").dataset.name);
    showOffer();
  };
  const showOffer = () => {
    const offer = document.querySelector(".offer");
    if (offer) offer.hidden = offer.dataset.name === stored("dismissed", "");
  };
  acts.edit = (button) => {
    if (!editing) draft = byId("box").value;
    setEditing(button.dataset.id);
    setBox(button.dataset.text ?? "");
    byId("box").focus();
  };
  acts["edit-cancel"] = () => {
    if (editing) setBox(draft);
    setEditing("");
  };
  const copyOld = (text) => {
    const area = Object.assign(document.createElement("textarea"), { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  };
  acts.copy = async (button) => {
    try {
      await navigator.clipboard.writeText(button.dataset.text);
    } catch { // plain http from another machine has no clipboard
      copyOld(button.dataset.text);
      button.focus();
    }
    button.classList.add("done");
    setTimeout(() => button.classList.remove("done"), 1500);
  };
  acts.attach = () => byId("attach-file").click();
  acts.import = () => byId("import-file").click();
  const sendFiles = async (files, name, input) => {
    for (const [place, file] of [...files].entries()) {
      const about = { command: name, name: file.name, more: place > 0 };
      if (file.size > MOST[name] * 2 ** 20) {
        send({ ...about, text: `has ${(file.size / 2 ** 20).toFixed(1)} MiB; choose one of at most ${MOST[name]} MiB` });
        continue;
      }
      const url = await new Promise((resolve) => {
        const reader = new FileReader();
        reader.onload = () => resolve(reader.result);
        reader.onerror = () => resolve(null); // a folder, say
        reader.readAsDataURL(file);
      });
      if (url === null) send({ ...about, text: "cannot be read; choose files, not folders" });
      else send({ ...about, data: url.slice(url.indexOf(",") + 1) });
    }
    if (input) input.value = "";
  };
  // Files that are dropped on the chat, or pasted into the input, are attached. A picture that comes with
  // text, as cells of a spreadsheet do, is only another form of it.
  const filesOf = (transfer) => (transfer?.types.includes("Files") ? transfer.files : null);
  const isText = (transfer, files) =>
    [...files].every(({ type, name }) => type.startsWith("image/") && name !== transfer.getData("text").trim()) &&
    transfer.getData("text").trim() !== "";
  document.addEventListener("dragover", (event) => {
    if (filesOf(event.dataTransfer)) event.preventDefault();
  });
  document.addEventListener("drop", (event) => {
    const files = filesOf(event.dataTransfer);
    if (!files) return;
    event.preventDefault(); // or the browser leaves this page for the file
    if (byId("chat").checkVisibility()) sendFiles(files, "attach");
  });
  document.addEventListener("paste", (event) => {
    const transfer = event.clipboardData, files = filesOf(transfer);
    if (!files?.length || !event.target.closest("#talk") || isText(transfer, files)) return;
    event.preventDefault();
    sendFiles(files, "attach");
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.id !== "box" || event.key !== "Enter" || composing(event)) return;
    if (event.shiftKey || event.altKey) return;
    event.preventDefault();
    acts.send();
  });

  // --- The panel, and an empty page
  acts.panel = () => {
    const open = byId("page").classList.toggle("panel-open");
    if (open) byId("preset").focus();
  };
  acts.new = () => {
    byId("page").classList.remove("side-open");
    acts["edit-cancel"]();
    send({ command: "new" });
    byId("box").focus();
  };

  // --- The keyboard
  const last = (selector) => [...document.querySelectorAll(`#rows ${selector}`)].at(-1)?.click();
  acts.focus = () => byId("box").focus();
  acts["edit-last"] = () => last(".user-row [data-do=edit]");
  acts["again-last"] = () => last("[data-do=again]");
  acts["continue-last"] = () => last("[data-do=continue]");
  acts["earlier-last"] = () => last(".caption [aria-label='Earlier version']");
  acts["later-last"] = () => last(".caption [aria-label='Later version']");
  acts.escape = () => {
    const { classList } = byId("page");
    if (byId("menu").matches(":popover-open")) byId("menu").hidePopover();
    else if (editing) acts["edit-cancel"]();
    else if (classList.contains("side-open") || classList.contains("panel-open"))
      classList.remove("side-open", "panel-open");
    else if (state.busy) send({ command: "stop" });
  };

  // --- State from the server
  acts.visit = (id) => {
    if (id === state.conversation) return;
    acts["edit-cancel"]();
    send(id ? { command: "open", id } : { command: "new" });
  };
  // The server finds the attached files of a browser tab again by this name after a reload.
  const tab = () => {
    if (!stored("tab", "", sessionStorage)) store("tab", `${Date.now()}-${Math.random()}`, sessionStorage);
    return stored("tab", "", sessionStorage);
  };
  acts.hello = () => {
    asked = 0; // of the server before
    if (byId("box")) byId("box").readOnly = false;
    send({ command: "hello", id: conversationThere(), name: tab() });
  };
  const once = ({ box, file, name, system, settings: chosen }) => {
    if (box && !byId("box").value) setBox(box);
    if (system !== undefined) byId("system").value = system;
    if (chosen) {
      settings = { ...settings, ...JSON.parse(chosen) };
      store("settings", settings);
    }
    if (file !== undefined) {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([file]));
      link.download = name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }
  };
  const showState = (element) => {
    const before = state;
    state = JSON.parse(element.dataset.state);
    const { conversation, title, busy, tokens, serial, system } = state;
    byId("page").classList.add("ready");
    if (before.taken === undefined && !byId("box").value) setBox(stored("unsent", "", sessionStorage));
    byId("send").hidden = busy;
    byId("stop").hidden = !busy;
    byId("title").textContent = title;
    if (byId("model")) byId("model").value = state.model;
    document.title = busy ? `● ${tokens} tokens · ${title || "Slipstream"}` : title ? `${title} · Slipstream` : "Slipstream";
    if (conversation !== before.conversation || (busy && !before.busy)) {
      follow = true;
      height = 0;
      requestAnimationFrame(scroll);
    }
    if (conversation !== before.conversation) visit(conversation, before.taken === undefined ? "replaceState" : "pushState");
    if (system !== before.system && byId("system") !== document.activeElement) byId("system").value = system;
    const toDo = serial !== before.serial && serial ? state.once : {};
    if (asked && state.taken >= asked) answered(toDo.box !== undefined);
    if (!asked) byId("lost").hidden = true;
    once(toDo);
    showSettings();
  };
  // The end stays visible unless the person scrolled away from it.
  let follow = true, height = 0;
  const scroller = () => document.querySelector("#rows .panel-wrap");
  document.addEventListener("scroll", ({ target }) => {
    if (target === scroller()) follow = target.scrollHeight - target.scrollTop - target.clientHeight < 48;
  }, true);
  addEventListener("resize", () => {
    height = 0;
    scroll();
  });
  // Visible messages keep their place when earlier ones are added above.
  let below = 0;
  acts.earlier = () => {
    below = scroller().scrollHeight - scroller().scrollTop;
    follow = false;
    setTimeout(() => { below = 0; }, 1000);
    send({ command: "earlier" });
  };
  // Paper has the whole conversation; the browser's own menu prints what is shown.
  const MOST_WAITS = 100;
  const printAll = (waits = 0) => {
    if (!document.querySelector("#rows .earlier") || waits > MOST_WAITS) return print();
    acts.earlier();
    setTimeout(printAll, 200, waits + 1);
  };
  document.addEventListener("keydown", (event) => {
    const wanted = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "p" && !event.shiftKey && !event.altKey;
    if (!wanted || !byId("chat").checkVisibility() || !document.querySelector("#rows .earlier")) return;
    event.preventDefault();
    printAll();
  });
  const scroll = () => {
    const wrap = scroller();
    if (wrap && below && wrap.scrollHeight !== height) wrap.scrollTop = wrap.scrollHeight - below;
    if (wrap && follow && wrap.scrollHeight !== height) wrap.scrollTop = wrap.scrollHeight;
    height = wrap?.scrollHeight;
  };

  // What is unfolded at the end of the conversation would be below the edge.
  document.addEventListener("toggle", ({ target }) => {
    if (target.open && target.closest("#rows")) target.scrollIntoView({ block: "nearest" });
  }, true); // it does not bubble

  // Lists and tables begin on the side of their language, and long numbers get their room.
  const direct = () => {
    for (const block of document.querySelectorAll("#rows .md > :not([dir], .code_wrap)")) block.dir = "auto";
    for (const list of document.querySelectorAll("#rows .md ol[start]"))
      list.style.setProperty("--digits", String(list.start + list.children.length - 1).length);
  };

  let seen = null;
  new MutationObserver(() => {
    direct();
    scroll();
    acts.refocus();
    showOffer();
    const element = document.querySelector("#state [data-state]");
    if (element && element.dataset.state !== seen) {
      seen = element.dataset.state;
      showState(element);
    }
    if (document.querySelector("[data-setting]:not([data-ready])")) {
      for (const control of controls()) control.dataset.ready = "yes";
      showSettings();
    }
  }).observe(document.documentElement, { childList: true, subtree: true, attributes: true, attributeFilter: ["data-state"] });
})();
