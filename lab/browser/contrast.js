// Finds text whose contrast against its background is below what WCAG 2 AA
// asks for: 4.5, or 3 for large text. The colours are the computed ones.
(() => {
  const parse = (c) => {
    const m = c.match(/[\d.]+/g).map(Number);
    return { r: m[0], g: m[1], b: m[2], a: m.length > 3 ? m[3] : 1 };
  };
  const over = (top, under) => ({
    r: top.r * top.a + under.r * (1 - top.a),
    g: top.g * top.a + under.g * (1 - top.a),
    b: top.b * top.a + under.b * (1 - top.a),
    a: 1,
  });
  const behind = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
    let colour = { r: 255, g: 255, b: 255, a: 1 };
    for (const layer of layers.reverse()) colour = over(layer, colour);
    return colour;
  };
  const luminance = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((v) => {
      v /= 255;
      return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ratio = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const seen = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (walker.currentNode.textContent.trim() && !["SCRIPT", "STYLE", "NOSCRIPT"].includes(e.tagName)) seen.add(e);
  }
  for (const e of document.querySelectorAll("input:not([type=hidden]), button")) seen.add(e);
  const poor = [];
  for (const e of seen) {
    const style = getComputedStyle(e);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const found = ratio(over(parse(style.color), behind(e)), behind(e));
    if (found < (large ? 3 : 4.5)) poor.push(`${found.toFixed(2)}: ${e.outerHTML.slice(0, 100)}`);
    if (["INPUT", "BUTTON"].includes(e.tagName)) {
      const edge = ratio(parse(style.borderTopColor), behind(e.parentElement));
      if (edge < 3) poor.push(`${edge.toFixed(2)}: the edge of ${e.outerHTML.slice(0, 100)}`);
    }
  }
  for (const mark of document.querySelectorAll(".fill, .spark .used, .spark .limit, .spark .queue")) {
    const style = getComputedStyle(mark);
    const found = ratio(parse(style.fill === "none" ? style.stroke : style.fill), behind(mark));
    if (found < 3) poor.push(`${found.toFixed(2)}: ${mark.outerHTML.slice(0, 100)}`);
  }
  return { texts: seen.size, poor };
})()
