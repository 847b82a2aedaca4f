// The sliders of the Hardware tab: each step is one of its sizes. Open plans stay open.
(() => {
  const SLIDER = '#hardware input[type="range"]';
  const sliders = () => [...document.querySelectorAll(SLIDER)];
  const show = (slider) => {
    const label = JSON.parse(slider.dataset.labels)[slider.value];
    slider.setAttribute("aria-valuetext", label);
    slider.closest("label").querySelector(".value").textContent = label;
  };
  const plan = () => {
    const open = [...document.querySelectorAll("#hardware details[open]")].map((row) => row.dataset.key);
    const memory = sliders().map((slider) => [slider.name, JSON.parse(slider.dataset.sizes)[slider.value]]);
    slipstream.command("hardware", { command: "plan", open, ...Object.fromEntries(memory) });
  };
  document.addEventListener("input", ({ target }) => target.matches(SLIDER) && show(target));
  document.addEventListener("change", ({ target }) => target.matches(SLIDER) && plan());
  document.addEventListener("click", ({ target }) => {
    if (!target.closest("#hardware [data-here]")) return;
    for (const slider of sliders()) {
      slider.value = slider.dataset.here;
      show(slider);
    }
    plan();
  });
})();
