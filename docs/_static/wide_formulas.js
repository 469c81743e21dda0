/* A formula in a line that is wider than the text gets a line of its own, which scrolls. */
window.addEventListener("load", () => {
  const set = () => {
    for (const formula of document.querySelectorAll("article span.math")) {
      formula.classList.remove("wide");
      const text = formula.closest("p, li, dd, td, th");
      if (!text || formula.closest("table")) continue;
      formula.classList.toggle("wide", formula.getBoundingClientRect().width > text.clientWidth);
    }
  };
  if (!window.MathJax || !window.MathJax.startup) return;
  window.MathJax.startup.promise.then(set);
  window.addEventListener("resize", set);
});
