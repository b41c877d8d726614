// A table that sorts by a click on a column's head, shows a part of many rows, and changes only the
// rows that are different from before.

import { h, put } from "./dom.js";
import { integer } from "./format.js";

const STEP = 200;

// columns: [{name, label, number?, wide?, value: (row) => what to sort by, cell?: (row) => what to show}]
// wide: left out on narrow screens. key: (row) => its identity. A column without `value` does not sort.
export function table({ label, columns, key, sort = null, empty = "There is nothing yet.", className = "" }) {
  let rows = [],
    shown = STEP,
    order = sort;
  const known = new Map();
  const body = h("tbody"),
    foot = h("div", { class: "foot" }),
    heads = new Map();
  const head = h(
    "tr",
    {},
    columns.map((column) => {
      const cell = h(
        "th",
        { scope: "col", class: classes(column) },
        column.value ? h("button", { type: "button", on: { click: () => sortBy(column) } }, column.label) : column.label,
      );
      heads.set(column.name, cell);
      return cell;
    }),
  );
  const scroll = h(
    "div",
    { class: "scroll", role: "region", tabindex: 0, "aria-label": label },
    h("table", { class: className }, h("caption", { class: "hidden" }, label), h("thead", {}, head), body),
  );
  const element = h("div", { class: "table" }, scroll, foot);

  function classes(column) {
    return [column.number ? "number" : null, column.wide ? "wide" : null, column.className].filter(Boolean).join(" ") || null;
  }

  function sortBy(column) {
    const same = order?.name === column.name;
    order = { name: column.name, down: same ? !order.down : Boolean(column.number) };
    draw();
  }

  function sorted() {
    const column = columns.find((each) => each.name === order?.name);
    if (!column) return rows;
    const sign = order.down ? -1 : 1;
    const rank = (v) => (v === null || v === undefined || Number.isNaN(v) ? null : v);
    return rows
      .map((row, i) => [rank(column.value(row)), i, row])
      .sort((a, b) => {
        if (a[0] === null || b[0] === null) return (a[0] === null) - (b[0] === null) || a[1] - b[1];
        return (a[0] < b[0] ? -sign : a[0] > b[0] ? sign : 0) || a[1] - b[1];
      })
      .map((each) => each[2]);
  }

  function rowOf(row) {
    const id = key(row),
      text = JSON.stringify(row);
    const old = known.get(id);
    if (old?.text === text) return old.element;
    const element = h(
      "tr",
      {},
      columns.map((column, i) =>
        h(
          i === 0 ? "th" : "td",
          { class: classes(column), scope: i === 0 ? "row" : null },
          column.cell ? column.cell(row) : column.value(row),
        ),
      ),
    );
    known.set(id, { text, element });
    return element;
  }

  function draw() {
    for (const [name, cell] of heads) {
      if (name === order?.name) cell.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    const elements = sorted().slice(0, shown).map(rowOf);
    if (elements.length) replace(body, elements);
    else put(body, h("tr", {}, h("td", { colspan: columns.length, class: "empty" }, empty)));
    put(
      foot,
      rows.length > shown && [
        h("span", {}, `${integer(shown)} of ${integer(rows.length)} `),
        h(
          "button",
          {
            type: "button",
            class: "small",
            on: {
              click: () => {
                shown += STEP;
                draw();
              },
            },
          },
          `Show ${STEP} more`,
        ),
      ],
    );
  }

  // Moves only what is not in its place, so that focus and selection stay where they are.
  function replace(parent, elements) {
    elements.forEach((element, i) => {
      if (parent.children[i] !== element) parent.insertBefore(element, parent.children[i] || null);
    });
    while (parent.children.length > elements.length) parent.lastChild.remove();
  }

  draw();
  return {
    element,
    set(next) {
      rows = next;
      draw();
    },
  };
}
