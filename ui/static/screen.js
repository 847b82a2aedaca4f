// What all tabs but the chat share: a control with ``data-command`` sends that to the server, with its
// name or value, and rests until it is drawn again. The focus returns to a control that was redrawn.
(() => {
  const { command, formFields } = slipstream;
  let last = null; // the control that was used last
  const drawn = (region) => region.querySelector(".sheet")?.dataset.drawn;

  const post = (control, name) => {
    const { command: what, name: about } = control.dataset, region = control.closest(".block");
    const same = `[data-command="${CSS.escape(what)}"]`;
    const selector = about ? `${same}[data-name="${CSS.escape(about)}"]` : same;
    last = { region, selector, drawn: drawn(region) };
    command(control.closest(".screen").id, { command: what, name, ...formFields[what]?.() });
  };
  const rest = (button) => {
    if (button) button.disabled = true;
  };
  document.addEventListener("click", ({ target }) => {
    const button = target.closest(".screen button[data-command]");
    if (!button) return;
    for (const open of document.querySelectorAll(".screen [popover]:popover-open")) open.hidePopover();
    rest(button);
    post(button, button.dataset.name ?? "");
  });
  document.addEventListener("change", ({ target }) => {
    if (target.matches(".screen select[data-command]")) post(target, target.value);
  });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.closest(".screen")) return;
    event.preventDefault();
    if (!form.dataset.command) return;
    const field = form.querySelector("input, select");
    rest(form.querySelector("button"));
    post(form, field.value);
    if (field.type === "password") field.value = "";
  });
  new MutationObserver(() => {
    if (!last || drawn(last.region) === last.drawn) return;
    if (document.activeElement === document.body) last.region.querySelector(last.selector)?.focus();
    last = null;
  }).observe(document.documentElement, { childList: true, subtree: true });
})();
