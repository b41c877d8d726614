// The kernels that are registered.

import { pages } from "./api.js";
import { COMMANDS } from "./commands.js";
import { h, link, note, put, when } from "./dom.js";
import { plural, shortDigest } from "./format.js";
import { table } from "./table.js";

export const title = () => "Kernels";

export async function show({ main, signal }) {
  const list = table({
    label: "Kernels",
    key: (row) => row.kernel,
    empty: `No kernel is registered: ${COMMANDS.push()}, or ${COMMANDS.submit()}.`,
    sort: { name: "name", down: false },
    columns: [
      { name: "name", label: "kernel", value: (row) => row.name, cell: (row) => link(["kernel", row.kernel], row.name) },
      { name: "language", label: "language", value: (row) => row.language },
      { name: "hash", label: "hash", value: (row) => row.kernel, className: "code", cell: (row) => shortDigest(row.kernel) },
      { name: "signed", label: "signatures", number: true, wide: true, value: (row) => row.signatures?.length || 0 },
      { name: "by", label: "registered by", wide: true, value: (row) => row.made_by || "–" },
      { name: "age", label: "registered", number: true, value: (row) => -Date.parse(row.created_at), cell: (row) => when(row.created_at) },
    ],
  });
  const count = note("Reading…");
  put(main, h("h1", {}, "Kernels"), count, list.element);
  const rows = [];
  for await (const items of pages("v1/kernels", { limit: 1000 }, signal)) {
    rows.push(...items);
    list.set(rows);
    count.textContent = plural(rows.length, "kernel");
  }
}
