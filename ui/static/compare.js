// The compare tab: forms go up, lanes are replayed side by side, a benchmark is saved as a file.
slipstream.compare = (() => {
  const { acts, byId } = slipstream;
  let post = null;

  const connect = (how) => {
    post = how;
    byId("compare-status")?.setAttribute("role", "status");
  };
  const fields = (id) => {
    const form = byId(id), data = form ? new FormData(form) : new FormData();
    const found = Object.fromEntries(data);
    if (id === "race") Object.assign(found, { drafters: data.getAll("drafters"), repeats: +found.repeats, max_tokens: +found.max_tokens });
    return found;
  };
  document.addEventListener("click", ({ target }) => {
    const button = target.closest("#compare button[data-ask]");
    if (!button) return;
    const { ask, name = "" } = button.dataset;
    for (const open of document.querySelectorAll("#compare [popover]:popover-open")) open.hidePopover();
    button.disabled = true;
    const form = { race: "race", benchmark: "bench" }[ask];
    post(JSON.stringify({ ask, name, ...(form ? fields(form) : {}) }));
  });
  document.addEventListener("submit", (event) => {
    if (event.target.closest("#compare")) event.preventDefault();
  });
  acts["race-prompt"] = ({ dataset }) => {
    byId("race").elements.prompt.value = dataset.text;
  };

  // A replay: every lane starts at once and is as fast against the others as it was.
  const replay = (stage) => {
    const slow = +stage.dataset.slow, started = performance.now();
    const lanes = JSON.parse(stage.dataset.replay).map((passes, at) => {
      const lane = stage.children[at];
      return {
        passes, shown: 0, tokens: 0, text: "",
        all: passes.reduce((sum, pass) => sum + pass[1], 0),
        written: lane.querySelector(".written"), reach: lane.querySelector(".reach"),
      };
    });
    const most = Math.max(...lanes.map((lane) => lane.all));
    const frame = () => {
      const seconds = (performance.now() - started) / 1000 / slow;
      for (const lane of lanes) {
        while (lane.shown < lane.passes.length && lane.passes[lane.shown][0] <= seconds) {
          const [, tokens, text] = lane.passes[lane.shown++];
          lane.tokens += tokens;
          lane.text += text;
        }
        lane.written.textContent = lane.text;
        lane.written.scrollTop = lane.written.scrollHeight;
        lane.reach.setAttribute("width", (100 * lane.tokens) / most);
      }
      const going = stage.isConnected && lanes.some((lane) => lane.shown < lane.passes.length);
      stage.classList.toggle("replaying", going);
      if (going) requestAnimationFrame(frame);
    };
    frame();
  };
  acts.replay = () => {
    const stage = document.querySelector("#compare .lanes:not(.replaying)");
    if (stage) replay(stage);
  };

  const download = (name, file) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(file);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  acts["save-record"] = (button) => {
    const { record } = button.closest("[data-record]").dataset;
    download(`${button.dataset.text}.json`, new Blob([record], { type: "application/json" }));
  };
  // A picture knows nothing of the page, so it takes the colours along.
  const COLOURS = ["--paper", "--ink", "--ink-2", "--accent", "--line"];
  acts["save-picture"] = async (button) => {
    const drawn = button.closest("[data-record]").querySelector("svg.card-picture").cloneNode(true);
    const style = getComputedStyle(document.body);
    for (const name of COLOURS) drawn.style.setProperty(name, style.getPropertyValue(name));
    const source = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(drawn)], { type: "image/svg+xml" }));
    const picture = new Image();
    picture.src = source;
    await picture.decode();
    const canvas = document.createElement("canvas");
    canvas.width = 2 * picture.naturalWidth;
    canvas.height = 2 * picture.naturalHeight;
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(source);
    canvas.toBlob((file) => download(`${button.dataset.text}.png`, file), "image/png");
  };

  // A race that ends while somebody looks is replayed once; running lanes stay at their end.
  let before = "";
  new MutationObserver(() => {
    const stage = document.querySelector("#compare .lanes");
    if (!stage) return;
    const now = stage.dataset.state;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (before === "running" && now === "over" && !still) replay(stage);
    if (now === "running")
      for (const written of stage.querySelectorAll(".written")) written.scrollTop = written.scrollHeight;
    before = now;
  }).observe(document.documentElement, { childList: true, subtree: true });

  return { connect };
})();
