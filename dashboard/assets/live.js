// Keeps an open page up to date: it asks for the page again, and changes what differs. So what is shown is always HTML that
// the server made, escaped there.
"use strict";
(() => {
  const every = Number(document.body.dataset.live);
  const main = document.getElementById("main");
  const status = document.getElementById("status");
  const button = document.getElementById("pause");
  let held = false;
  let next = 0;
  let asking = null;

  const say = (text) => {
    if (status.textContent !== text) status.textContent = text;
  };

  // morph makes an element like a fresh one. What is there stays the same element: a click that began on
  // a link would be lost if the link were another when it ends. What somebody opened stays open, and the stop
  // of the Tab key stays where it is.
  const ours = ["open", "tabindex"];
  const morph = (old, fresh) => {
    for (const { name, value } of [...fresh.attributes]) {
      if (old.getAttribute(name) !== value && !ours.includes(name)) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && !ours.includes(name)) old.removeAttribute(name);
    }
    const nodes = [...fresh.childNodes];
    if (old.dataset.list) {
      rows(old, nodes);
      return;
    }
    nodes.forEach((node, i) => {
      const now = old.childNodes[i];
      if (!now) old.append(node);
      else if (now.nodeName !== node.nodeName) now.replaceWith(node);
      else if (node.nodeType === Node.ELEMENT_NODE) morph(now, node);
      else if (now.data !== node.data) now.data = node.data;
    });
    while (old.childNodes.length > nodes.length) old.lastChild.remove();
  };

  // rows does so for a list, whose rows come and go, and have keys.
  const rows = (body, nodes) => {
    const old = new Map([...body.children].map((row) => [row.dataset.key, row]));
    const wanted = nodes.filter((node) => node.nodeType === Node.ELEMENT_NODE);
    const keys = new Set(wanted.map((row) => row.dataset.key));
    for (const [key, row] of old) if (!keys.has(key)) row.remove();
    let place = body.firstElementChild;
    for (const fresh of wanted) {
      const row = old.get(fresh.dataset.key) || fresh;
      if (row !== fresh) morph(row, fresh);
      if (row === place) place = place.nextElementSibling;
      else body.insertBefore(row, place);
    }
  };

  const show = (fresh) => {
    const focused = document.activeElement;
    const home = focused.closest("section[tabindex]") || main;
    morph(main, page.show(fresh).getElementById("main"));
    page.rove();
    const to = focused.isConnected ? focused : home; // a row that moves loses the focus
    if (to !== document.activeElement) to.focus({ preventScroll: true });
    say("Live");
  };

  // fail says that what is shown is old, and why.
  const fail = (text) => {
    const note = document.createElement("p");
    note.className = "note";
    note.textContent = text;
    document.getElementById("notice").replaceChildren(note);
    say("Not up to date");
  };

  const ask = async () => {
    const mine = (asking = new AbortController());
    try {
      const answer = await fetch(location.href, { headers: { "Sema-Live": "1" }, signal: AbortSignal.any([mine.signal, AbortSignal.timeout(10000)]) });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (answer.redirected) location.reload(); // to the login
      if (mine !== asking) return;
      const text = fresh.getElementById("text");
      if (fresh.body.dataset.live) show(fresh);
      else fail(text ? text.textContent : "The server answers with an error.");
    } catch {
      if (mine !== asking) return;
      fail("The server does not answer.");
    }
    next = setTimeout(ask, every);
  };

  const close = () => {
    clearTimeout(next);
    if (asking) asking.abort();
    asking = null;
  };

  const open = () => {
    close();
    if (!held && !document.hidden) ask(); // nobody sees a hidden page
  };

  button.hidden = false;
  button.addEventListener("click", () => {
    held = !held;
    button.setAttribute("aria-pressed", String(held));
    if (held) {
      close();
      say("Updates paused");
    } else {
      open();
    }
  });
  document.addEventListener("visibilitychange", open);
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => {
    if (event.persisted) open();
  });
  open();
})();
