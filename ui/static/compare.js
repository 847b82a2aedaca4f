// The Compare tab: its forms, the replay of a race, and saving a benchmark as a file.
(() => {
  const { acts, byId, formFields } = slipstream;

  const fields = (id) => new FormData(byId(id));
  formFields.race = () => {
    const race = fields("race");
    return { ...Object.fromEntries(race), drafters: race.getAll("drafters"), repeats: +race.get("repeats"), max_tokens: +race.get("max_tokens") };
  };
  formFields.benchmark = () => Object.fromEntries(fields("bench"));
  acts["race-prompt"] = ({ dataset }) => {
    byId("race").elements.prompt.value = dataset.text;
  };

  // A replay: all lanes start together, each at its measured speed.
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
  // A saved picture needs the page's colours in itself.
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

  // A race that ends while it is visible is replayed once; running lanes scroll to their end.
  let before = "";
  new MutationObserver(() => {
    byId("compare-status")?.setAttribute("role", "status");
    const stage = document.querySelector("#compare .lanes");
    if (!stage) return;
    const now = stage.dataset.state;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (before === "running" && now === "over" && !still) replay(stage);
    if (now === "running")
      for (const written of stage.querySelectorAll(".written")) written.scrollTop = written.scrollHeight;
    before = now;
  }).observe(document.documentElement, { childList: true, subtree: true });
})();
