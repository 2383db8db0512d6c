// What a page does without the server: times as they are here or in UTC, copying, questions in a dialog, and
// arrows that move within tables.
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
  // What was copied a moment ago, or could not be. The page changes each second: its
  // buttons go on saying so.
  let copied = null;
  const label = (button) => {
    button.firstChild.textContent = copied && copied.text === button.dataset.copy ? copied.says : "Copy";
  };
  const show = (root) => {
    for (const button of root.querySelectorAll("[data-copy]")) label(button);
    for (const time of root.querySelectorAll("time, [data-time]")) {
      const mark = time.dataset.time; // of a chart's axis, which has no seconds
      const text = mark || time.dateTime;
      const at = new Date(text);
      const here = `${two(at.getHours())}:${two(at.getMinutes())}${mark ? "" : `:${two(at.getSeconds())}`}`;
      time.textContent = local ? here : mark ? text.slice(11, 16) : `${text.slice(11, 19)} UTC`;
      if (!mark) time.title = local ? text : at.toLocaleString();
    }
    for (const control of root.querySelectorAll("tr :is(a, button, summary)")) {
      if (!control.closest("thead") && !control.hasAttribute("tabindex")) control.tabIndex = -1;
    }
    return root;
  };
  const sayTimes = () => (button.lastChild.textContent = local ? "local" : "UTC");

  // A table is one stop of the Tab key. Arrows move within it.
  const controls = (row) => [...row.querySelectorAll("a, button, summary")].filter((c) => c.checkVisibility());
  const settle = (body, to) => {
    for (const control of body.querySelectorAll("a, button, summary")) control.tabIndex = -1;
    if (to) to.tabIndex = 0;
  };
  const rove = () => {
    for (const body of document.querySelectorAll("tbody")) {
      if (!body.querySelector('[tabindex="0"]')) settle(body, controls(body)[0]);
    }
  };
  document.addEventListener("focusin", (event) => {
    const body = event.target.closest("tbody");
    if (body) settle(body, event.target);
  });
  document.addEventListener("keydown", (event) => {
    const at = document.activeElement;
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "/" && !at.matches("input, textarea, select") && !document.querySelector("dialog[open]")) {
      const find = document.getElementById("q");
      if (!find) return;
      event.preventDefault();
      find.focus();
      find.select();
      return;
    }
    if (event.key === "Escape" && at.closest(".menu[open]")) {
      at.closest(".menu").open = false;
      return;
    }
    const row = at.closest("tbody tr");
    const step = { ArrowUp: -1, ArrowDown: 1, ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (!row || !step) return;
    event.preventDefault();
    const mine = controls(row);
    let to;
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      to = mine[mine.indexOf(at) + step];
    } else {
      const rows = [...row.parentElement.children].map(controls).filter((list) => list.length > 0);
      const now = rows.findIndex((list) => list.includes(at));
      const list = rows[Math.min(rows.length - 1, Math.max(0, now + step))];
      to = list[Math.min(mine.indexOf(at), list.length - 1)];
    }
    if (to) to.focus();
  });

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
  rove();

  // A question is a page of its own. Here it is a dialog: Enter confirms, Esc closes.
  const dialog = document.createElement("dialog");
  dialog.className = "ask";
  dialog.setAttribute("aria-labelledby", "asked");
  document.body.append(dialog);
  const ask = async (link) => {
    let question = null;
    try {
      const answer = await fetch(link.href);
      question = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-dialog]");
    } catch {
      // The page itself says what is wrong.
    }
    if (!question) {
      location.href = link.href;
      return;
    }
    dialog.replaceChildren(...question.childNodes);
    if (!dialog.open) dialog.showModal();
    const first = dialog.querySelector("[autofocus]");
    if (first) first.focus();
    if (first && first.select) first.select();
  };
  document.addEventListener("click", (event) => {
    if (event.target.closest("dialog [data-close]") || event.target === dialog) {
      event.preventDefault();
      dialog.close();
    }
    const menu = document.querySelector(".menu[open]");
    if (menu && !event.target.closest(".menu")) menu.open = false;
    const link = event.target.closest("a[data-ask]");
    if (!link || event.ctrlKey || event.shiftKey || event.metaKey) return;
    event.preventDefault();
    if (menu) menu.open = false;
    ask(link);
  });

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
  return { show, rove };
})();
