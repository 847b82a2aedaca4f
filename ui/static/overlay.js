// Colours drafted words in answers. The CSS Highlight API does not change the document, so Markdown,
// code and formulas stay intact, and a redrawn answer is simply coloured again.
(() => {
  const WORDS = /[\p{L}\p{N}]+|[^\p{L}\p{N}\s]/gu;
  const FAR = 400; // the most characters of Markdown between two words

  const drafted = (source, spans) => {
    const marks = new Uint8Array(source.length);
    // Spans count code points, JavaScript strings count UTF-16 units.
    const places = [0];
    for (const character of source) places.push(places.at(-1) + character.length);
    for (const span of spans.split(" ").filter(Boolean)) {
      const [start, end] = span.split("-").map((place) => places[place]);
      marks.fill(1, start, end);
    }
    return marks;
  };

  const texts = (root) => {
    const nodes = [];
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT, (node) =>
      node.parentElement.closest("button, [role=button], .katex") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
    while (walker.nextNode()) nodes.push(walker.currentNode);
    return nodes;
  };

  // The rows of one answer, above its caption: reasoning has its own rows.
  const above = (caption) => {
    const roots = [];
    let row = caption.closest(".message-row")?.previousElementSibling;
    while (row?.classList.contains("bot-row") && !row.querySelector(".caption, .earlier")) {
      roots.unshift(row);
      row = row.previousElementSibling;
    }
    return roots;
  };

  // Each visible word is searched for in the source, in order; characters that Markdown removes are skipped.
  const ranges = (roots, source, marks) => {
    const found = [[], []];
    let at = 0;
    const reasoned = /^\s*<think>/.test(source) ? source.indexOf("</think>") : -1; // folded reasoning is not in the document
    for (const node of roots.flatMap(texts)) {
      if (roots.at(-1).contains(node)) at = Math.max(at, reasoned);
      for (const match of node.data.matchAll(WORDS)) {
        const place = source.indexOf(match[0], at);
        if (place < 0 || place - at > FAR) continue;
        at = place + match[0].length;
        let start = 0;
        for (let end = 1; end <= match[0].length; end += 1) {
          if (end < match[0].length && marks[place + end] === marks[place + start]) continue;
          const range = new StaticRange({
            startContainer: node, startOffset: match.index + start,
            endContainer: node, endOffset: match.index + end,
          });
          found[marks[place + start]].push(range);
          start = end;
        }
      }
    }
    return found;
  };

  const draw = () => {
    const own = [], taken = [];
    if (document.getElementById("page").classList.contains("overlaid")) {
      for (const caption of document.querySelectorAll("#rows .caption[data-spans]")) {
        const { source, spans } = caption.dataset;
        const [plain, fast] = ranges(above(caption), source, drafted(source, spans));
        own.push(...plain);
        taken.push(...fast);
      }
    }
    CSS.highlights.set("own", new Highlight(...own));
    CSS.highlights.set("drafted", new Highlight(...taken));
  };

  let waiting = false;
  const soon = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  };
  const watch = () => {
    const rows = document.getElementById("rows");
    if (!rows) return;
    observer.disconnect();
    new MutationObserver(soon).observe(rows, { childList: true, subtree: true, characterData: true });
    new MutationObserver(soon).observe(document.getElementById("page"), { attributes: true, attributeFilter: ["class"] });
    soon();
  };
  const observer = new MutationObserver(watch);
  if (!CSS.highlights) return; // an older browser: no colours
  observer.observe(document.documentElement, { childList: true, subtree: true });
})();
