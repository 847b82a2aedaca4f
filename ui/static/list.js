// The list of conversations: search, and one menu for all of them, which is never redrawn.
(() => {
  const { acts, byId, composing, send } = slipstream;
  const menu = () => byId("menu");
  let chosen = { id: "", text: "" };

  let searching = 0;
  document.addEventListener("input", ({ target }) => {
    if (target.id !== "search") return;
    clearTimeout(searching);
    searching = setTimeout(() => send({ command: "search", text: target.value }), 150);
  });
  acts.search = () => {
    byId("page").classList.add("side-open");
    byId("search").select();
  };
  acts.side = () => byId("page").classList.toggle("side-open");
  acts.open = (button) => {
    byId("page").classList.remove("side-open");
    acts["edit-cancel"]();
    send({ command: "open", id: button.dataset.id });
  };

  // --- The menu of one conversation
  acts.menu = (button) => {
    chosen = { ...button.dataset };
    const pinned = "pinned" in chosen;
    const pin = menu().querySelector("[data-list=pin], [data-list=unpin]");
    pin.dataset.list = pinned ? "unpin" : "pin";
    pin.textContent = pinned ? "Unpin" : "Pin";
    const remove = menu().querySelector("[data-list=delete]");
    remove.textContent = "Delete";
    delete remove.dataset.sure;
    byId("renaming").hidden = true;
    byId("menu-acts").hidden = false;
    menu().showPopover();
    const place = button.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = menu();
    menu().style.left = `${Math.max(8, place.right - width)}px`;
    menu().style.top = `${Math.max(8, Math.min(place.bottom + 4, innerHeight - height - 8))}px`;
    menu().querySelector("button").focus();
  };
  const menuActs = {
    rename: () => {
      byId("menu-acts").hidden = true;
      byId("renaming").hidden = false;
      byId("new-title").value = chosen.text;
      byId("new-title").select();
    },
    save: () => {
      menu().hidePopover();
      send({ command: "rename", id: chosen.id, text: byId("new-title").value });
    },
    delete: (button) => {
      if (button.dataset.sure) {
        menu().hidePopover();
        send({ command: "delete", id: chosen.id });
      } else {
        button.dataset.sure = "yes";
        button.textContent = "Really delete?";
      }
    },
  };
  document.addEventListener("click", ({ target }) => {
    const button = target.closest("button[data-list]");
    if (!button) return;
    const name = button.dataset.list;
    if (menuActs[name]) return menuActs[name](button);
    menu().hidePopover();
    send({ command: name, id: chosen.id });
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.id === "new-title" && event.key === "Enter" && !composing(event)) {
      event.preventDefault(); // the focus goes back to a button, which Enter would press
      menuActs.save();
    }
    if (!event.target.closest?.("#menu-acts") || !["ArrowDown", "ArrowUp"].includes(event.key)) return;
    const all = [...byId("menu-acts").children];
    const step = event.key === "ArrowDown" ? 1 : all.length - 1;
    all[(all.indexOf(event.target) + step) % all.length].focus();
    event.preventDefault();
  });

  // A redrawn list gives the focus back to the conversation that had it.
  let focused = null;
  document.addEventListener("focusin", ({ target }) => {
    focused = target.closest("#side-list button[data-id]")?.dataset ?? null;
  });
  acts.refocus = () => {
    if (!focused || document.activeElement !== document.body) return;
    byId("side-list").querySelector(`[data-do="${focused.do}"][data-id="${focused.id}"]`)?.focus();
  };
})();
