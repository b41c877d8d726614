// Charts as SVG: points with intervals, lines, steps, bands, bars and a heatmap.
//
// A chart is an image with a name and a description, its text can be selected, and the same data
// are below it as a table. It is drawn again when its width changes.

import { h, put, s, uniqueId } from "./dom.js";

const LEFT = 68,
  RIGHT = 14,
  TOP = 10,
  BOTTOM = 40,
  CHARACTER = 6.6;

// Round values from `low` to `high`, about `n` of them, at least `least` apart.
function ticks(low, high, n, least = 0) {
  const span = high - low || Math.abs(high) || 1;
  const raw = span / Math.max(1, n),
    power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((f) => f * power).find((each) => each >= raw * 0.999 && each >= least) ?? least;
  const made = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) made.push(Number((i * step).toPrecision(12)));
  return made;
}

// 1, 2 and 5 of each decade, or only 1 where the range is wide.
function logTicks(low, high) {
  const of = high / low > 1000 ? [1] : high / low > 20 ? [1, 3] : [1, 1.5, 2, 3, 5, 7];
  const made = [];
  for (let decade = Math.floor(Math.log10(low)); 10 ** decade <= high; decade++)
    for (const f of of) if (f * 10 ** decade >= low && f * 10 ** decade <= high) made.push(f * 10 ** decade);
  return made.length > 1 ? made : ticks(low, high, 4);
}

// From values to positions. log: the logarithm, for positive values.
function scale({ low, high, log }, from, to) {
  const f = log ? Math.log : (v) => v;
  const a = f(low),
    b = f(high);
  return (value) => from + ((f(value) - a) / (b - a || 1)) * (to - from);
}

// An axis that holds the values with a margin; from zero where that is asked for.
export function range(values, { log = false, zero = false, margin = 0.05 } = {}) {
  const known = values.filter((v) => Number.isFinite(v) && (!log || v > 0));
  let low = known.reduce((a, b) => Math.min(a, b), Infinity),
    high = known.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!known.length) return { low: log ? 1 : 0, high: log ? 10 : 1, log };
  if (log) return { low: low / (1 + margin), high: high * (1 + margin), log };
  if (zero) return { low: Math.min(0, low), high: high > 0 ? high * (1 + margin) : 1, log };
  const pad = (high - low || Math.abs(high) || 1) * margin;
  return { low: low - pad, high: high + pad, log };
}

// The frame of every chart: figure, image, table of its data. draw(width, readout) returns
// {height, children}.
function figure({ title, description, table, draw, legend }) {
  const place = h("div", { class: "plot" }),
    readout = h("p", { class: "readout", "aria-hidden": "true" }, "\u00a0");
  let width = 0;

  function redraw() {
    const now = Math.floor(place.clientWidth);
    if (!now) return;
    width = now;
    const titleId = uniqueId("title"),
      descriptionId = uniqueId("desc"),
      { height, children, pick } = draw(width);
    const image = s(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-labelledby": titleId, "aria-describedby": descriptionId },
      s("title", { id: titleId }, title),
      s("desc", { id: descriptionId }, description),
      children,
    );
    if (pick) {
      const at = (event) => {
        const box = image.getBoundingClientRect();
        return pick(event.clientX - box.left, event.clientY - box.top);
      };
      image.addEventListener("pointermove", (event) => {
        readout.textContent = at(event)?.label || "\u00a0";
      });
      image.addEventListener("pointerleave", () => {
        readout.textContent = "\u00a0";
      });
      image.addEventListener("click", (event) => at(event)?.choose?.());
    }
    put(place, image);
  }

  new ResizeObserver(() => {
    if (Math.floor(place.clientWidth) !== width) redraw();
  }).observe(place);
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", {}, title),
    legend && h("p", { class: "legend" }, legend),
    place,
    readout,
    table && h("details", { class: "data" }, h("summary", {}, "The data as a table"), dataTable(title, table)),
  );
}

const TABLE_MOST = 1000;
function dataTable(title, { columns, rows }) {
  return h(
    "div",
    { class: "scroll", role: "region", tabindex: 0, "aria-label": `Data: ${title}` },
    h(
      "table",
      {},
      h("caption", { class: "hidden" }, title),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          columns.map((each) => h("th", { scope: "col" }, each)),
        ),
      ),
      h(
        "tbody",
        {},
        rows.slice(0, TABLE_MOST).map((row) =>
          h(
            "tr",
            {},
            row.map((cell) => h("td", {}, cell)),
          ),
        ),
      ),
      rows.length > TABLE_MOST &&
        h("tfoot", {}, h("tr", {}, h("td", { colspan: columns.length }, `${rows.length - TABLE_MOST} more are left out`))),
    ),
  );
}

// A sample of a mark for a legend.
export function mark(className, shape = "point") {
  const shapes = {
    point: () => s("circle", { cx: 7, cy: 6, r: 3.5, class: className }),
    line: () => s("path", { d: "M0 6H14", class: className }),
    area: () => s("rect", { x: 0, y: 1, width: 14, height: 10, rx: 2, class: className }),
  };
  return s("svg", { width: 14, height: 12, viewBox: "0 0 14 12", "aria-hidden": "true", class: "mark" }, shapes[shape]());
}

// Axes, grid and names. x, y: {low, high, log, name, format, ticks?, whole?}; whole: of integers.
function axes(width, height, x, y, toX, toY) {
  const room = width - LEFT - RIGHT;
  const widest = Math.max(...[x.low, x.high].map((v) => x.format(v).length), 3) * CHARACTER + 14;
  const xs = x.ticks || (x.log ? logTicks(x.low, x.high) : ticks(x.low, x.high, Math.max(2, Math.min(10, room / widest)), x.whole ? 1 : 0));
  const ys = y.ticks || (y.log ? logTicks(y.low, y.high) : ticks(y.low, y.high, Math.max(2, (height - TOP - BOTTOM) / 42)));
  const every = Math.ceil((xs.length * widest) / Math.max(room, 1));
  const bottom = height - BOTTOM;
  return s(
    "g",
    { class: "axes" },
    ys.map((v) => s("path", { class: "grid", d: `M${LEFT} ${toY(v)}H${width - RIGHT}` })),
    ys.map((v) => s("text", { x: LEFT - 7, y: toY(v) + 4, "text-anchor": "end" }, y.format(v))),
    xs.filter((_, i) => i % every === 0).map((v) => s("text", { x: toX(v), y: bottom + 16, "text-anchor": "middle" }, x.format(v))),
    s("path", { class: "axis", d: `M${LEFT} ${bottom}H${width - RIGHT}` }),
    s("text", { class: "name", x: LEFT + room / 2, y: height - 5, "text-anchor": "middle" }, x.name),
    s(
      "text",
      {
        class: "name",
        x: 11,
        y: TOP + (bottom - TOP) / 2,
        "text-anchor": "middle",
        transform: `rotate(-90 11 ${TOP + (bottom - TOP) / 2})`,
      },
      y.name,
    ),
  );
}

// layers, in the order in which they are drawn:
//   {type: "band", from, to, class}             a stripe over the whole width, in values of y
//   {type: "line" | "steps", at: [{x, y}], class}
//   {type: "level", y, class, text}             a horizontal line with its name
//   {type: "points", at: [{x, y, low?, high?, class, label, choose?}]}
//   {type: "bars", at: [{x, y0, y1, class, label}]}
export function plot({ title, description, legend, height = 300, x, y, layers, table }) {
  return figure({
    title,
    description,
    legend,
    table,
    draw(width) {
      const toX = scale(x, LEFT + 6, width - RIGHT - 6),
        toY = scale(y, height - BOTTOM, TOP);
      const inside = (v) => Math.max(TOP, Math.min(height - BOTTOM, toY(v)));
      const spots = [];
      const kinds = {
        band: (layer) =>
          s("rect", {
            class: layer.class,
            x: LEFT,
            width: width - LEFT - RIGHT,
            y: inside(layer.to),
            height: Math.max(1, inside(layer.from) - inside(layer.to)),
          }),
        line: (layer) =>
          layer.at.length &&
          s("path", { class: layer.class, d: `M${layer.at.map((p) => `${toX(p.x).toFixed(1)} ${toY(p.y).toFixed(1)}`).join("L")}` }),
        steps: (layer) =>
          layer.at.length &&
          s("path", {
            class: layer.class,
            d: layer.at
              .map((p, i) => (i ? `H${toX(p.x).toFixed(1)}V${toY(p.y).toFixed(1)}` : `M${toX(p.x).toFixed(1)} ${toY(p.y).toFixed(1)}`))
              .join(""),
          }),
        level: (layer) => [
          s("path", { class: layer.class, d: `M${LEFT} ${toY(layer.y)}H${width - RIGHT}` }),
          layer.text && s("text", { class: "note", x: width - RIGHT - 2, y: toY(layer.y) - 5, "text-anchor": "end" }, layer.text),
        ],
        points: (layer) =>
          layer.at.map((p) => {
            const px = toX(p.x),
              py = inside(p.y);
            spots.push({ px, py, label: p.label, choose: p.choose });
            return [
              Number.isFinite(p.low) &&
                Number.isFinite(p.high) &&
                s("path", {
                  class: `interval ${p.class}`,
                  d: `M${px.toFixed(1)} ${inside(p.low).toFixed(1)}V${inside(p.high).toFixed(1)}`,
                }),
              s("circle", { class: `point ${p.class}`, cx: px.toFixed(1), cy: py.toFixed(1), r: p.r || 3 }),
            ];
          }),
        bars: (layer) =>
          layer.at.map((p) => {
            const px = toX(p.x),
              wide = Math.max(2, Math.min(64, ((width - LEFT - RIGHT) / layer.at.length) * 0.5));
            spots.push({ px, py: (toY(p.y0) + toY(p.y1)) / 2, label: p.label, choose: p.choose });
            return s("rect", {
              class: p.class,
              x: (px - wide / 2).toFixed(1),
              width: wide.toFixed(1),
              y: toY(p.y1).toFixed(1),
              height: Math.max(0, toY(p.y0) - toY(p.y1)).toFixed(1),
            });
          }),
      };
      return {
        height,
        children: [axes(width, height, x, y, toX, toY), layers.map((layer) => layer && kinds[layer.type](layer))],
        pick(px, py) {
          let best = null,
            least = 30 ** 2;
          for (const spot of spots) {
            const distance = (spot.px - px) ** 2 + (spot.py - py) ** 2;
            if (distance < least) [best, least] = [spot, distance];
          }
          return best;
        },
      };
    },
  });
}

// A heatmap: value(column, row) is a number, or null where there is none. Smaller is darker.
export function heatmap({ title, description, xName, yName, xs, ys, value, format, label }) {
  const values = xs.flatMap((x) => ys.map((y) => value(x, y))).filter((v) => v !== null);
  const low = Math.min(...values),
    high = Math.max(...values);
  const share = (v) => (high > low ? Math.log(v / low) / Math.log(high / low) : 0);
  const names = Math.max(...ys.map((y) => String(y).length)) * CHARACTER;
  return figure({
    title,
    description,
    table: {
      columns: [`${yName} \\ ${xName}`, ...xs.map(String)],
      rows: ys.map((y) => [String(y), ...xs.map((x) => (value(x, y) === null ? "–" : format(value(x, y))))]),
    },
    draw(width) {
      const left = Math.min(width / 3, Math.max(40, names + 28)),
        cell = Math.max(14, Math.min(130, (width - left - 8) / xs.length));
      const tall = Math.max(22, Math.min(34, 300 / ys.length)),
        height = TOP + ys.length * tall + BOTTOM;
      const spots = [];
      const cells = ys.flatMap((y, row) =>
        xs.map((x, column) => {
          const v = value(x, y),
            px = left + column * cell,
            py = TOP + row * tall;
          if (v === null) return s("rect", { class: "heat none", x: px, y: py, width: cell - 2, height: tall - 2, rx: 2 });
          const level = Math.round((1 - share(v)) * 6);
          spots.push({ px, py, label: label(x, y, v) });
          return [
            s("rect", { class: `heat heat${level}`, x: px, y: py, width: cell - 2, height: tall - 2, rx: 2 }),
            format(v).length * CHARACTER < cell - 4 &&
              s(
                "text",
                { class: `heat-text heat-text${level}`, x: px + cell / 2 - 1, y: py + tall / 2 + 3, "text-anchor": "middle" },
                format(v),
              ),
          ];
        }),
      );
      const every = Math.ceil((Math.max(...xs.map((x) => String(x).length)) * CHARACTER + 6) / cell);
      return {
        height,
        children: [
          s(
            "g",
            { class: "axes" },
            ys.map((y, row) => s("text", { x: left - 8, y: TOP + row * tall + tall / 2 + 3, "text-anchor": "end" }, String(y))),
            xs.map(
              (x, column) =>
                column % every === 0 &&
                s("text", { x: left + column * cell + cell / 2 - 1, y: TOP + ys.length * tall + 14, "text-anchor": "middle" }, String(x)),
            ),
            s("text", { class: "name", x: left + (xs.length * cell) / 2, y: height - 5, "text-anchor": "middle" }, xName),
            s(
              "text",
              {
                class: "name",
                x: 11,
                y: TOP + (ys.length * tall) / 2,
                "text-anchor": "middle",
                transform: `rotate(-90 11 ${TOP + (ys.length * tall) / 2})`,
              },
              yName,
            ),
          ),
          cells,
        ],
        pick: (px, py) => spots.find((spot) => px >= spot.px && px < spot.px + cell && py >= spot.py && py < spot.py + tall),
      };
    },
  });
}
