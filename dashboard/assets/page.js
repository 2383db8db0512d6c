// What a page does without the server: times as they are here or in UTC, copying,
// and the figures under the pointer.
"use strict";
const page = (() => {
  // Pages come with times in UTC. They are shown as they are here once somebody wants that.
  const button = document.getElementById("times");
  let local = false;
  try {
    local = localStorage.getItem("times") === "local";
  } catch {
    // Nothing is kept then.
  }
  const two = (n) => String(n).padStart(2, "0");
  // What was copied a moment ago, or could not be. A live page makes its buttons anew
  // with each second: the new one says so as well.
  let copied = null;
  const label = (button) => {
    button.firstChild.textContent = copied && copied.text === button.dataset.copy ? copied.says : "Copy";
  };
  const show = (root) => {
    for (const button of root.querySelectorAll("[data-copy]")) label(button);
    for (const time of root.querySelectorAll("time")) {
      const at = new Date(time.dateTime);
      const named = time.closest(".times") ? "" : " UTC";
      const here = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
      const utc = `${time.dateTime.slice(11, 19)}${named}`;
      time.textContent = local ? here : utc;
      time.title = local ? time.dateTime : at.toLocaleString();
    }
    return root;
  };
  const sayTimes = () => (button.textContent = local ? "Times: local" : "Times: UTC");
  button.hidden = false;
  button.addEventListener("click", () => {
    local = !local;
    try {
      localStorage.setItem("times", local ? "local" : "utc");
    } catch {
      // It is forgotten with the page.
    }
    sayTimes();
    show(document);
  });
  sayTimes();
  show(document);

  // Copying: the button says that it is done.
  document.documentElement.classList.add("scripted");
  const copy = async (text) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = document.createElement("textarea"); // without TLS there is no other way
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const mine = { text: button.dataset.copy, says: "Copied" };
    try {
      await copy(mine.text);
    } catch {
      mine.says = "Not copied";
    }
    copied = mine;
    show(document);
    if (button.isConnected) button.focus(); // else the new one has the focus
    setTimeout(() => {
      if (copied === mine) copied = null;
      show(document);
    }, 2000);
  });

  // The figures at the pointer are those of the table below the charts.
  let at = null; // a part of the charts' width
  const point = () => {
    const table = document.querySelector("table.figures");
    const hover = document.getElementById("hover");
    if (!table || !hover) return;
    const svgs = document.querySelectorAll("svg.chart");
    for (const svg of svgs) {
      const cursor = svg.querySelector(".cursor");
      const x = at === null ? -9 : at * svg.viewBox.baseVal.width;
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
    }
    hover.dataset.plain ??= hover.innerHTML;
    if (at === null) {
      hover.innerHTML = hover.dataset.plain; // as the server made it
      return;
    }
    const from = Date.parse(table.dataset.from);
    const moment = from + at * (Date.parse(table.dataset.to) - from);
    // The newest comes first: it is the first row that began by then.
    const row = [...table.tBodies[0].rows].find((r) => Date.parse(r.querySelector("time").dateTime) <= moment);
    const cells = row ? [...row.cells].slice(1).map((cell) => `${cell.dataset.label} ${cell.textContent}`) : ["nobody looked"];
    hover.textContent = `${row ? row.cells[0].textContent : ""}: ${cells.join(", ")}`;
  };
  document.addEventListener("pointermove", (event) => {
    const svg = event.target.closest("svg.chart");
    if (!svg && at === null) return;
    const box = svg && svg.getBoundingClientRect();
    at = svg ? Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) : null;
    point();
  });
  return { show, point };
})();
