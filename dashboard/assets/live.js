// Keeps an open page up to date. The server sends what has changed: parts,
// which replace what is in an element, and rows of lists, by their keys. All of
// it is the same HTML that the server makes for the page, escaped there.
"use strict";
(() => {
  const address = document.body.dataset.live;
  const status = document.getElementById("status");
  const button = document.getElementById("pause");
  let source = null;
  let held = false;
  let again = 0;

  const say = (text) => {
    if (status.textContent !== text) status.textContent = text;
  };

  // Where the focus is within an element: the number of the link or button.
  const focusable = (element) => [...element.querySelectorAll("a, button, input, summary")];
  const focusIn = (element) => focusable(element).indexOf(document.activeElement);
  const refocus = (element, at) => {
    if (at < 0) return;
    const list = focusable(element);
    const next = list[Math.min(at, list.length - 1)] || element.closest("section[tabindex], main");
    if (next !== document.activeElement) next.focus({ preventScroll: true });
  };

  const parse = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    return page.show(template.content);
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
    nodes.forEach((node, i) => {
      const now = old.childNodes[i];
      if (!now) old.append(node);
      else if (now.nodeName !== node.nodeName) now.replaceWith(node);
      else if (node.nodeType === Node.ELEMENT_NODE) morph(now, node);
      else if (now.data !== node.data) now.data = node.data;
    });
    while (old.childNodes.length > nodes.length) old.lastChild.remove();
  };

  const showPart = (key, html) => {
    const element = document.querySelector(`[data-part="${CSS.escape(key)}"]`);
    if (!element) return;
    const fresh = element.cloneNode(false);
    fresh.append(parse(html));
    const at = focusIn(element);
    morph(element, fresh);
    if (at >= 0 && focusIn(element) < 0) refocus(element, at);
  };

  const showList = (name, list) => {
    const body = document.querySelector(`[data-list="${CSS.escape(name)}"]`);
    if (!body) return;
    const old = new Map([...body.children].map((row) => [row.dataset.key, row]));
    const focused = document.activeElement && document.activeElement.closest(`[data-list="${CSS.escape(name)}"] > *`);
    const key = focused ? focused.dataset.key : null;
    const at = focused ? focusIn(focused) : -1;
    let place = body.firstElementChild;
    for (const k of list.order) {
      let row = old.get(k);
      if (list.rows[k] !== undefined) {
        const fresh = parse(list.rows[k]).firstElementChild;
        if (row) morph(row, fresh);
        else row = fresh;
      }
      if (!row) continue;
      old.delete(k);
      if (row === place) place = place.nextElementSibling;
      else body.insertBefore(row, place);
    }
    for (const row of old.values()) row.remove();
    if (key !== null) {
      const row = [...body.children].find((r) => r.dataset.key === key);
      refocus(row || body, row ? at : 0);
    }
    page.rove();
  };

  const close = () => {
    clearTimeout(again);
    if (source) source.close();
    source = null;
  };

  const open = () => {
    close();
    if (held || document.hidden) return;
    source = new EventSource(address);
    source.onmessage = (event) => {
      const message = JSON.parse(event.data);
      for (const [key, html] of Object.entries(message.parts)) showPart(key, html);
      for (const [name, list] of Object.entries(message.lists)) showList(name, list);
      const old = document.querySelector('[data-part="notice"]').textContent.trim() !== "";
      say(old ? "Not up to date" : "Live");
    };
    source.onerror = () => {
      say("Not live: trying again");
      if (source.readyState === EventSource.CLOSED) again = setTimeout(open, 5000);
    };
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

  // A browser has few connections for one server: a page that nobody sees lets
  // its own go.
  document.addEventListener("visibilitychange", open);
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => {
    if (event.persisted) open();
  });
  open();
})();
