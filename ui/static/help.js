// The help panel: topics are loaded when it is first opened, and searched in the page.
(() => {
  const { acts, byId } = slipstream;
  let loading = null;
  const load = async () => {
    const answer = await fetch("help");
    if (!answer.ok) throw new Error(`the help did not load: ${answer.status}`);
    byId("help-topics").innerHTML = await answer.text();
    filter();
  };
  const topics = () => [...byId("help-list").querySelectorAll(".topic")];
  const words = () => byId("help-search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const filter = () => {
    let found = 0;
    for (const topic of topics()) {
      const text = topic.textContent.toLowerCase();
      topic.hidden = !words().every((word) => text.includes(word));
      found += !topic.hidden;
    }
    byId("help-none").hidden = found > 0;
  };
  const show = (key) => {
    byId("help-search").value = "";
    filter();
    for (const topic of topics()) topic.open = topic.dataset.topic === key;
    const chosen = topics().find((topic) => topic.open);
    chosen?.scrollIntoView({ block: "start" });
    chosen?.querySelector("summary").focus();
  };
  acts.help = () => {
    if (byId("help").open) return byId("help").close();
    byId("help").showModal();
    byId("help-search").focus();
    loading ??= load().catch((error) => {
      loading = null; // or a second try would not load again
      byId("help-topics").textContent = error.message;
    });
  };
  document.addEventListener("input", ({ target }) => {
    if (target.id === "help-search") filter();
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("#help a");
    if (event.target.id === "help") byId("help").close(); // the backdrop
    if (!link) return;
    event.preventDefault();
    if (link.dataset.topic) show(link.dataset.topic);
    else window.open(link.href, "_blank", "noopener");
  });
})();
