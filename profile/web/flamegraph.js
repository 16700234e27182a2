"use strict";
// The flame graph: a tree in flat arrays (flamegraph.c tells the format), drawn on one canvas of the size of the
// window, so that what is drawn depends on what can be seen and not on how many frames there are.
(() => {
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const USER = 0, KERNEL = 1, PROCESS = 2, UNNAMED = 3;
  const ROW = 18, MIN_WIDTH = 0.4, TEXT_WIDTH = 24;
  const compared = "valueBefore" in data;

  // -- the tree ------------------------------------------------------------------------------------------------
  // A node: symbol, inlined, value and before, parent, level, children by size. The callers' tree has the same shape,
  // its children made when first drawn.

  const nodes = [];
  function buildTree() {
    const path = [];
    for (let i = 0; i < data.level.length; i++) {
      const level = data.level[i], code = data.symbol[i];
      const node = {
        symbol: i ? code >> 1 : -1, inlined: (code & 1) === 1, value: data.value[i],
        before: compared ? data.valueBefore[i] : 0, parent: level ? path[level - 1] : null, level, children: [],
      };
      if (node.parent) node.parent.children.push(node);
      path[level] = node;
      nodes.push(node);
    }
    for (let i = nodes.length - 1; i >= 0; i--) {
      const n = nodes[i];
      n.self = n.value;
      n.selfBefore = n.before;
      for (const c of n.children) { n.self -= c.value; n.selfBefore -= c.before; }
    }
    for (let i = 0; i < data.rest.length; i += 3) {
      nodes[data.rest[i]].self -= data.rest[i + 1];
      nodes[data.rest[i]].selfBefore -= data.rest[i + 2];
    }
    return nodes[0];
  }
  const tree = buildTree();
  let callerTree = null;

  // A node of the callers' tree stands for the places `at` in the tree, of which `value` is what they were the way to:
  // the own time of every function, or with a symbol all time of that one, recursion counted once.
  function makeCallerTree(symbol) {
    const inItself = (n) => {
      for (let up = n.parent; up; up = up.parent) if (up.symbol === symbol) return true;
      return false;
    };
    const at = symbol === null
      ? nodes.filter((n) => n.level > 0 && (n.self > 0 || n.selfBefore > 0)).map((n) => ({ node: n, value: n.self, before: n.selfBefore }))
      : nodes.filter((n) => n.symbol === symbol && !inItself(n)).map((n) => ({ node: n, value: n.value, before: n.before }));
    return { symbol: -1, inlined: false, value: tree.value, before: tree.before, parent: null, level: 0, at, whole: true };
  }

  function childrenOf(node) {
    if (node.children) return node.children;
    const groups = new Map();
    for (const { node: place, value, before } of node.at) {
      const from = node.whole ? place : place.parent;
      if (!from || from.level === 0) continue;
      const key = from.symbol * 2 + (from.inlined ? 1 : 0);
      let child = groups.get(key);
      if (!child) {
        child = { symbol: from.symbol, inlined: from.inlined, value: 0, before: 0, parent: node, level: node.level + 1, at: [] };
        groups.set(key, child);
      }
      child.value += value;
      child.before += before;
      child.at.push({ node: from, value, before });
    }
    node.children = [...groups.values()].sort((a, b) => b.value + b.before - a.value - a.before);
    return node.children;
  }

  // -- names and numbers ---------------------------------------------------------------------------------------

  const symbolName = (s) => s < 0 ? "all" : data.symbols[s][0];
  const objectOf = (s) => s < 0 ? "" : data.texts[data.symbols[s][1]];
  const fileOf = (s) => s < 0 ? "" : data.texts[data.symbols[s][2]];
  const kindOf = (s) => s < 0 ? PROCESS : data.symbols[s][3];
  const baseName = (path) => path.startsWith("[") ? path : path.slice(path.lastIndexOf("/") + 1);

  function amount(v) {
    if (data.unit !== "nanoseconds") return `${v.toLocaleString("en")} ${data.unit === "count" ? data.type : data.unit}`;
    const s = v / 1e9;
    if (s >= 7200) return `${(s / 3600).toFixed(1)} h CPU`;
    if (s >= 120) return `${(s / 60).toFixed(1)} min CPU`;
    return s >= 1 ? `${s.toFixed(2)} s CPU` : `${(s * 1e3).toFixed(s >= 0.1 ? 0 : 1)} ms CPU`;
  }
  const percent = (x, digits = 2) => `${(100 * x).toFixed(digits)} %`;
  const share = (v, total) => total > 0 ? v / total : 0;

  // Wilson's interval of a share at 95 %, as in the tables of profctl.
  function interval(p, n) {
    const z = 1.96, z2 = z * z;
    if (!(n > 0)) return [0, 1];
    const mid = p + z2 / (2 * n), ext = z * Math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)), scale = 1 + z2 / n;
    return [Math.max(0, (mid - ext) / scale), Math.min(1, (mid + ext) / scale)];
  }

  // The change of a frame's share, and how many standard errors that is.
  function change(node) {
    const a = share(node.before, tree.before), b = share(node.value, tree.value);
    const na = data.before.effective, nb = data.after.effective;
    const p = na + nb > 0 ? (a * na + b * nb) / (na + nb) : 0;
    const error = Math.sqrt(p * (1 - p) * (1 / Math.max(na, 1) + 1 / Math.max(nb, 1)));
    return { a, b, by: b - a, z: error > 0 ? (b - a) / error : 0 };
  }
  // One frame in a thousand is coloured by chance.
  const NOISE_Z = 3.29;

  // -- colours -------------------------------------------------------------------------------------------------

  const root = document.documentElement;
  let dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const hash = (text) => {
    let h = 2166136261;
    for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16777619);
    return h >>> 0;
  };
  const shade = (hue, saturation, text) => {
    const spread = hash(text) % 11;
    return `hsl(${hue} ${saturation}% ${(dark ? 33 : 70) + spread}%)`;
  };
  const KINDS = { user: [32, 78], inlined: [52, 74], kernel: [208, 62], process: [130, 22], unnamed: [0, 0] };
  function byKind(node) {
    const kind = kindOf(node.symbol), name = symbolName(node.symbol);
    const key = kind === KERNEL ? "kernel" : kind === PROCESS ? "process" : kind === UNNAMED ? "unnamed" : node.inlined ? "inlined" : "user";
    return shade(...KINDS[key], name);
  }
  function byObject(node) {
    const kind = kindOf(node.symbol), object = objectOf(node.symbol);
    if (kind === PROCESS) return shade(...KINDS.process, symbolName(node.symbol));
    if (!object) return shade(0, 0, symbolName(node.symbol));
    return shade(hash(object) * 137 % 360, 52, symbolName(node.symbol));
  }
  function byName(node) {
    return shade(hash(symbolName(node.symbol)) % 360, 50, symbolName(node.symbol));
  }
  function byChange(node) {
    const c = change(node);
    if (Math.abs(c.z) < NOISE_Z || node.level === 0) return dark ? "hsl(0 0% 32%)" : "hsl(0 0% 84%)";
    // From the share's relative change: twice as much is full colour.
    const strength = Math.min(1, 0.25 + 0.75 * Math.min(1, Math.abs(c.by) / Math.max(c.a, c.b) * 1.5));
    const light = dark ? 38 - 6 * strength : 88 - 30 * strength;
    return `hsl(${c.by > 0 ? 8 : 216} ${Math.round(30 + 55 * strength)}% ${light}%)`;
  }
  const colourings = { kind: ["kind", byKind], object: ["object", byObject], name: ["function", byName] };
  if (compared) colourings.change = ["change", byChange];

  function legend() {
    const box = (style, text) => `<span><i style="background:${style}"></i>${text}</span>`;
    const items = [];
    if (state.colour === "change") {
      items.push(box(dark ? "hsl(8 85% 34%)" : "hsl(8 85% 62%)", "more than before"),
        box(dark ? "hsl(216 85% 34%)" : "hsl(216 85% 62%)", "less"), box(dark ? "hsl(0 0% 32%)" : "hsl(0 0% 84%)", "within noise"));
    } else if (state.colour === "kind") {
      for (const k of ["user", "inlined", "kernel", "process", "unnamed"])
        items.push(box(shade(...KINDS[k], ""), k === "unnamed" ? "no name" : k));
    }
    $("legend").innerHTML = items.join("");
  }

  // -- state ---------------------------------------------------------------------------------------------------

  const state = { view: "flame", colour: compared ? "change" : "kind", size: "after", zoom: tree, selected: null, hovered: null, query: "", matcher: null, callersOf: null };
  const current = () => state.view === "callers" ? callerTree : tree;
  const sized = (node) => state.size === "before" ? node.before : node.value;

  // -- drawing -------------------------------------------------------------------------------------------------

  const canvas = $("canvas"), scroll = $("scroll"), spacer = $("spacer"), ctx = canvas.getContext("2d");
  let width = 0, height = 0, boxes = [], deepest = 0, charWidth = 7, drawn = new Map();
  const colourCache = new Map();

  function colourOf(node) {
    if (state.colour === "change") return byChange(node);
    const key = node.symbol * 2 + (node.inlined ? 1 : 0);
    let c = colourCache.get(key);
    if (!c) colourCache.set(key, c = colourings[state.colour][1](node));
    return c;
  }

  // Places the visible frames: [node, x, width, level]. The zoomed frame and those it came by are as wide as the
  // window. An own stack of work: trees are deeper than the script's.
  function layout() {
    boxes = [];
    drawn = new Map();
    deepest = 0;
    const put = (node, x, w) => {
      const box = { node, x, w, level: node.level };
      boxes.push(box);
      drawn.set(node, box);
      if (node.level > deepest) deepest = node.level;
    };
    for (let n = state.zoom.parent; n; n = n.parent) put(n, 0, width);
    const scale = sized(state.zoom) > 0 ? width / sized(state.zoom) : 0;
    const work = [[state.zoom, 0, width]];
    while (work.length) {
      const [node, x, w] = work.pop();
      put(node, x, w);
      let at = x;
      for (const child of childrenOf(node)) {
        const cw = sized(child) * scale;
        if (cw >= MIN_WIDTH) work.push([child, at, cw]);
        else if (state.size === "after" && !compared) break; // by size: the others are no wider
        at += cw;
      }
    }
  }

  const rowTop = (level) => state.view === "flame" ? (deepest - level) * ROW : level * ROW;

  function fit(text, w) {
    const chars = Math.floor((w - 6) / charWidth);
    if (text.length <= chars) return text;
    return chars < 3 ? "" : `${text.slice(0, chars - 1)}…`;
  }

  function draw() {
    const ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, height);
    ctx.font = "12px ui-monospace, 'Liberation Mono', 'DejaVu Sans Mono', monospace";
    ctx.textBaseline = "middle";
    charWidth = ctx.measureText("mmmmmmmmmm").width / 10;
    const ink = dark ? "#f4f2ee" : "#191817", offset = scroll.scrollTop;
    for (const box of boxes) {
      const y = rowTop(box.level) - offset;
      if (y < -ROW || y > height) continue;
      const { node, x, w } = box, faded = node.level < state.zoom.level || (state.matcher && !isMatch(node));
      ctx.globalAlpha = faded ? 0.35 : 1;
      ctx.fillStyle = state.matcher && isMatch(node) ? (dark ? "#a03ac0" : "#e48bff") : colourOf(node);
      ctx.fillRect(x, y, w > 2 ? w - 0.6 : w, ROW - 1);
      if (w >= TEXT_WIDTH) {
        const text = fit(node.level === 0 ? `all: ${amount(sized(node))}` : symbolName(node.symbol), w);
        ctx.globalAlpha = faded ? 0.6 : 1;
        ctx.fillStyle = ink;
        if (text) ctx.fillText(text, x + 3, y + ROW / 2);
      }
    }
    ctx.globalAlpha = 1;
    for (const [node, lineWidth] of [[state.hovered, 1], [state.selected, 2]]) {
      const box = drawn.get(node);
      if (!box) continue;
      ctx.strokeStyle = ink;
      ctx.lineWidth = lineWidth;
      ctx.strokeRect(box.x + 0.5, rowTop(box.level) - offset + 0.5, Math.max(box.w - 1.6, 1), ROW - 2);
    }
  }

  let pending = false;
  function redraw() {
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => { pending = false; draw(); });
  }

  function refresh(keepScroll) {
    width = scroll.clientWidth;
    height = scroll.clientHeight;
    layout();
    const tall = Math.max((deepest + 1) * ROW, height);
    // The canvas sticks to the top and takes its own height of the scrolled one.
    spacer.style.height = `${tall - height}px`;
    if (!keepScroll) scroll.scrollTop = state.view === "flame" ? tall : 0;
    if (state.view === "flame") flameOffset();
    draw();
  }
  // A flame graph that is lower than the window stands on its bottom.
  function flameOffset() {
    const rows = Math.floor(height / ROW);
    if (deepest + 1 < rows) deepest = rows - 1;
  }

  // -- search --------------------------------------------------------------------------------------------------

  let matchOfSymbol = null;
  function isMatch(node) {
    return node.symbol >= 0 && matchOfSymbol[node.symbol];
  }

  function search(text) {
    state.query = text;
    state.matcher = null;
    $("search").classList.remove("bad");
    if (text) {
      const pattern = /^\/(.+)\/$/.exec(text);
      try {
        const re = pattern ? new RegExp(pattern[1], "i") : null, lower = text.toLowerCase();
        state.matcher = (name) => re ? re.test(name) : name.toLowerCase().includes(lower);
      } catch {
        $("search").classList.add("bad");
      }
    }
    matchOfSymbol = state.matcher && data.symbols.map((s) => state.matcher(s[0]) || state.matcher(data.texts[s[1]]));
    showMatched();
    redraw();
    remember();
    if (!$("list").hidden) listFunctions();
  }

  // The share of the samples that have a match anywhere in their stack: a match below a match adds nothing.
  function matchedValue(side) {
    let sum = 0;
    const work = [tree];
    while (work.length) {
      const node = work.pop();
      if (isMatch(node)) sum += node[side];
      else for (const c of node.children) work.push(c);
    }
    return sum;
  }

  function showMatched() {
    if (!state.matcher) {
      $("matched").textContent = "";
      return;
    }
    const after = share(matchedValue("value"), tree.value);
    $("matched").textContent = compared
      ? `${percent(share(matchedValue("before"), tree.before), 1)} → ${percent(after, 1)}` : `matched ${percent(after)}`;
    $("matched").title = amount(matchedValue("value"));
  }

  function nextMatch() {
    if (!state.matcher) return;
    const inView = boxes.filter((b) => isMatch(b.node) && b.w >= 1).sort((a, b) => a.level - b.level || a.x - b.x);
    if (!inView.length) return;
    const at = inView.findIndex((b) => b.node === state.selected);
    select(inView[(at + 1) % inView.length].node);
  }

  // -- what is said about a frame ------------------------------------------------------------------------------

  const escape = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

  function facts(node) {
    const rows = [], all = share(node.value, tree.value);
    const [low, high] = interval(all, data.after.effective);
    if (compared) {
      const c = change(node);
      rows.push(["before", amount(node.before), percent(c.a)], ["after", amount(node.value), percent(c.b)]);
      rows.push(["change", `${c.by >= 0 ? "+" : "−"}${(100 * Math.abs(c.by)).toFixed(2)} points`,
        Math.abs(c.z) < NOISE_Z ? "within the noise" : c.a > 0 ? `× ${(c.b / c.a).toFixed(2)}` : "new"]);
    } else {
      rows.push(["total", amount(node.value), `${percent(all)} (${percent(low, 1)} to ${percent(high, 1)})`]);
    }
    if (node.self !== undefined && node.level > 0) rows.push(["own", amount(node.self), percent(share(node.self, tree.value))]);
    if (node.parent && node.parent.level > 0) rows.push([state.view === "callers" ? "of callee" : "of caller", "", percent(share(node.value, node.parent.value), 1)]);
    if (state.zoom.level > 0 && node !== state.zoom && node.level > state.zoom.level) rows.push(["of zoomed", "", percent(share(node.value, state.zoom.value), 1)]);
    return rows;
  }

  function where(node) {
    const kind = kindOf(node.symbol);
    if (node.level === 0) return "all samples";
    if (kind === PROCESS) return "process";
    return [objectOf(node.symbol), fileOf(node.symbol), kind === KERNEL ? "kernel" : "", node.inlined ? "inlined" : ""].filter(Boolean).join(" · ");
  }

  function tip(node, x, y) {
    const box = $("tip");
    if (!node) {
      box.hidden = true;
      return;
    }
    box.innerHTML = `<b>${escape(symbolName(node.symbol))}</b><span class="where">${escape(where(node))}</span><table>` +
      facts(node).map((r) => `<tr>${r.map((c) => `<td>${escape(c)}</td>`).join("")}</tr>`).join("") + "</table>";
    box.hidden = false;
    const w = box.offsetWidth, h = box.offsetHeight;
    box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - w - 6))}px`;
    box.style.top = `${y + 18 + h > innerHeight ? Math.max(4, y - h - 10) : y + 18}px`;
  }

  function details(node) {
    $("details").textContent = node ? `${symbolName(node.symbol)} — ${where(node)} — ${facts(node).map((r) => r.filter(Boolean).join(" ")).join(", ")}` : "";
  }

  // -- moving about --------------------------------------------------------------------------------------------

  function zoom(node) {
    state.zoom = node;
    if (state.selected && !isBelow(state.selected, node)) state.selected = node.level ? node : null;
    refresh();
    reveal(state.selected || node);
    details(state.selected);
    remember();
  }

  function isBelow(node, ancestor) {
    for (let n = node; n; n = n.parent) if (n === ancestor) return true;
    return false;
  }

  function select(node) {
    state.selected = node;
    reveal(node);
    details(node);
    redraw();
  }

  function reveal(node) {
    if (!node) return;
    const top = rowTop(node.level);
    if (top < scroll.scrollTop) scroll.scrollTop = Math.max(0, top - 2 * ROW);
    else if (top + ROW > scroll.scrollTop + height) scroll.scrollTop = top + 3 * ROW - height;
  }

  function setView(view, symbol = null) {
    const treeChanges = (view === "callers") !== (state.view === "callers") || symbol !== state.callersOf;
    if (view === "callers" && (treeChanges || !callerTree)) callerTree = makeCallerTree(symbol);
    state.view = view;
    state.callersOf = symbol;
    if (treeChanges) {
      state.zoom = current();
      state.selected = state.hovered = null;
      details(null);
    }
    for (const b of document.querySelectorAll("[data-view]")) b.setAttribute("aria-pressed", String(b.dataset.view === view));
    refresh();
    remember();
  }

  function showCallers(symbol) {
    setView("callers", symbol);
    const [found] = childrenOf(callerTree);
    if (!found) return;
    zoom(found);
    select(found);
  }

  function setColour(name) {
    state.colour = name;
    $("colour").value = name;
    colourCache.clear();
    legend();
    redraw();
    remember();
  }

  function setTheme(isDark) {
    dark = isDark;
    root.dataset.theme = dark ? "dark" : "light";
    colourCache.clear();
    legend();
    redraw();
  }

  function move(key) {
    const from = state.selected;
    if (!from || !drawn.has(from)) return select(state.zoom);
    const towardsChild = state.view === "flame" ? "ArrowUp" : "ArrowDown";
    const visible = (n) => drawn.has(n);
    if (key === towardsChild) {
      const child = childrenOf(from).find(visible);
      if (child) select(child);
    } else if (key === "ArrowUp" || key === "ArrowDown") {
      if (from.parent) select(from.parent);
    } else {
      const row = boxes.filter((b) => b.level === from.level).sort((a, b) => a.x - b.x);
      const at = row.findIndex((b) => b.node === from) + (key === "ArrowRight" ? 1 : -1);
      if (row[at]) select(row[at].node);
    }
  }

  function frameAt(event) {
    const r = canvas.getBoundingClientRect(), x = event.clientX - r.left, y = event.clientY - r.top + scroll.scrollTop;
    const row = Math.floor(y / ROW), level = state.view === "flame" ? deepest - row : row;
    const box = boxes.find((b) => b.level === level && x >= b.x && x < b.x + Math.max(b.w, 1));
    return box ? box.node : null;
  }

  // -- the list of functions -----------------------------------------------------------------------------------

  // Own and total value by symbol; recursion counts once: only the outermost frame of a symbol adds to its total.
  function sumFunctions() {
    const own = new Float64Array(data.symbols.length), total = new Float64Array(data.symbols.length);
    const open = new Uint32Array(data.symbols.length), path = [];
    for (const n of nodes) {
      while (path.length && path[path.length - 1].level >= n.level) open[path.pop().symbol]--;
      if (n.level === 0) continue;
      own[n.symbol] += n.self;
      if (!open[n.symbol]) total[n.symbol] += n.value;
      open[n.symbol]++;
      path.push(n);
    }
    return { own, total };
  }

  let sums = null;
  function listFunctions() {
    sums = sums || sumFunctions();
    const rows = [];
    for (let s = 0; s < data.symbols.length; s++)
      if (kindOf(s) !== PROCESS && sums.total[s] > 0 && (!matchOfSymbol || matchOfSymbol[s])) rows.push(s);
    rows.sort((a, b) => sums.own[b] - sums.own[a] || sums.total[b] - sums.total[a]);
    $("list").querySelector("tbody").innerHTML = rows.slice(0, 300).map((s) =>
      `<tr tabindex="0" data-symbol="${s}"><td>${percent(share(sums.own[s], tree.value))}</td><td>${percent(share(sums.total[s], tree.value))}</td>` +
      `<td>${escape(symbolName(s))} <small>${escape(baseName(objectOf(s)))}</small></td></tr>`).join("");
  }

  function toggleList() {
    const list = $("list");
    list.hidden = !list.hidden;
    $("functions").setAttribute("aria-pressed", String(!list.hidden));
    if (!list.hidden) listFunctions();
    refresh(true);
  }

  // -- the address keeps what is shown, to be sent to others ---------------------------------------------------

  function remember() {
    const parts = [`view=${state.view}`, `colour=${state.colour}`];
    if (state.callersOf !== null) parts.push(`of=${state.callersOf}`);
    if (state.query) parts.push(`q=${encodeURIComponent(state.query)}`);
    if (state.zoom.level > 0) {
      const path = [];
      for (let n = state.zoom; n.parent; n = n.parent) path.unshift(childrenOf(n.parent).indexOf(n));
      parts.push(`zoom=${path.join(".")}`);
    }
    try {
      history.replaceState(null, "", `#${parts.join("&")}`);
    } catch {
      // A page from a sandboxed frame has no address of its own.
    }
  }

  function recall() {
    const wanted = new URLSearchParams(location.hash.slice(1)), path = wanted.get("zoom"), query = wanted.get("q");
    if (colourings[wanted.get("colour")]) setColour(wanted.get("colour"));
    const of = wanted.get("of");
    setView(["flame", "icicle", "callers"].includes(wanted.get("view")) ? wanted.get("view") : "flame",
      of !== null && Number(of) < data.symbols.length ? Number(of) : null);
    if (path) {
      let node = current();
      for (const i of path.split(".")) node = childrenOf(node)[Number(i)] || node;
      zoom(node);
    }
    if (query) {
      $("search").value = query;
      search(query);
    }
  }

  // -- wiring --------------------------------------------------------------------------------------------------

  function describe() {
    const f = data.after, when = (t) => new Date(t * 1000).toISOString().replace("T", " ").replace(/\.\d+Z/, " UTC");
    const title = data.title || (compared ? "What changed" : `Flame graph${f.host ? ` of ${f.host}` : ""}`);
    const span = f.duration >= 120 ? `${(f.duration / 60).toFixed(0)} min` : `${f.duration.toFixed(f.duration < 10 ? 1 : 0)} s`;
    document.title = title;
    $("title").textContent = title;
    const one = (g) => `${g.samples.toLocaleString("en")} samples`;
    const parts = compared ? [`before: ${one(data.before)}`, `after: ${one(f)}`] : [one(f)];
    if (f.start > 0) parts.push(when(f.start), span);
    parts.push(data.type);
    if (data.leftOut) parts.push(`${data.leftOut.toLocaleString("en")} frames too small to see left out`);
    $("subtitle").textContent = parts.join(" · ");
    $("ledger").textContent = [...(compared ? ["before:", ...data.before.ledger, "", "after:"] : []), ...f.ledger].join("\n");
  }

  for (const [name, [text]] of Object.entries(colourings)) $("colour").add(new Option(text, name));
  $("colour").value = state.colour;
  $("sizechoice").hidden = !compared;
  $("colour").onchange = (e) => setColour(e.target.value);
  $("size").onchange = (e) => { state.size = e.target.value; refresh(); };
  $("search").oninput = (e) => search(e.target.value.trim());
  $("functions").onclick = toggleList;
  $("reset").onclick = () => zoom(current());
  $("theme").onclick = () => setTheme(!dark);
  $("help").onclick = () => $("keys").showModal();
  for (const b of document.querySelectorAll("[data-view]")) b.onclick = () => setView(b.dataset.view);
  $("list").onclick = (e) => {
    const row = e.target.closest("tr[data-symbol]");
    if (row) showCallers(Number(row.dataset.symbol));
  };
  $("list").onkeydown = (e) => { if (e.key === "Enter") $("list").onclick(e); };

  canvas.onmousemove = (e) => {
    const node = frameAt(e);
    if (node !== state.hovered) {
      state.hovered = node;
      redraw();
    }
    canvas.style.cursor = node ? "pointer" : "default";
    tip(node, e.clientX, e.clientY);
  };
  canvas.onmouseleave = () => { state.hovered = null; tip(null); redraw(); };
  canvas.onclick = (e) => {
    const node = frameAt(e);
    if (!node) return;
    state.selected = node;
    zoom(node);
    scroll.focus({ preventScroll: true });
    tip(null);
  };
  scroll.onscroll = redraw;
  new ResizeObserver(() => refresh(true)).observe(scroll);
  matchMedia("(prefers-color-scheme: dark)").onchange = (e) => setTheme(e.matches);

  const keys = {
    Enter: () => state.selected && zoom(state.selected), Backspace: () => state.zoom.parent && zoom(state.zoom.parent),
    u: () => state.zoom.parent && zoom(state.zoom.parent), 0: () => zoom(current()),
    "/": () => $("search").focus(), n: nextMatch, f: () => setView("flame"), i: () => setView("icicle"), c: () => setView("callers"),
    s: () => state.selected && state.selected.symbol >= 0 && showCallers(state.selected.symbol), l: toggleList, t: () => setTheme(!dark),
    o: () => { const names = Object.keys(colourings); setColour(names[(names.indexOf(state.colour) + 1) % names.length]); },
    "?": () => $("keys").showModal(),
    Escape: () => { $("search").value = ""; search(""); zoom(current()); },
  };
  document.onkeydown = (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || $("keys").open) return;
    if (e.target === $("search")) {
      if (e.key === "Enter") nextMatch();
      else if (e.key === "Escape") { keys.Escape(); scroll.focus(); }
      else return;
    } else if (e.target.tagName === "SELECT" || (e.target.closest("#list") && e.key === "Enter")) {
      return;
    } else if (e.key.startsWith("Arrow")) {
      move(e.key);
    } else if (e.key === "Enter" && e.target.tagName === "BUTTON") {
      return;
    } else if (Object.hasOwn(keys, e.key)) {
      keys[e.key]();
    } else {
      return;
    }
    e.preventDefault();
  };

  describe();
  setTheme(dark);
  recall();
})();
