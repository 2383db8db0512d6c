// What a page does without the server: times as they are here or in UTC, and copying.
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
  return { show };
})();
