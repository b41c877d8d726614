// Captures and demand: what programs launched, how far it has come on its way from seen to served,
// and what deployments miss.

import { get, may, pages } from "./api.js";
import { COMMANDS } from "./commands.js";
import { breakable, h, link, note, panel, put, when } from "./dom.js";
import { deviceTime, environment, integer, members, percent, plural } from "./format.js";
import { table } from "./table.js";

export const title = () => "Captures and demand";

// Of a capture's keys, by how far they have come.
const WAY = [
  ["waiting", "wait for a builder"],
  ["building", "are being built"],
  ["refused", "cannot be built"],
  ["without_job", "are built, without a job"],
  ["queued", "are queued"],
  ["tuning", "are measured"],
  ["undecided", "have no winner"],
  ["failed", "failed"],
  ["tuned", "are tuned"],
  ["served", "are served"],
];
// `tuned` holds those that are released and served, `built` all that have a build.
const steps = (row) => WAY.map(([name, words]) => [name, words, name === "tuned" ? Math.max(0, row.tuned - row.served) : row[name] || 0]);

function wayCell(row) {
  const parts = steps(row).filter(([, , n]) => n > 0);
  const strip = h(
    "span",
    { class: "progress", role: "img", "aria-label": parts.map(([, words, n]) => `${n} ${words}`).join(", ") || "no keys" },
    parts.map(([name, words, n]) => {
      const part = h("span", { class: `way-${name}`, title: `${n} ${words}` });
      part.style.width = `${(100 * n) / Math.max(1, row.keys)}%`;
      return part;
    }),
  );
  return h("span", { class: "progress-cell" }, strip, h("span", {}, `${integer(row.served)} of ${integer(row.keys)} served`));
}

// What the colours mean: each step that has keys, with how many.
const legend = (rows) =>
  WAY.map(([name, words], i) => {
    const n = rows.reduce((sum, row) => sum + steps(row)[i][2], 0);
    return n > 0 && h("li", {}, h("span", { class: `square way-${name}`, "aria-hidden": "true" }), " ", h("b", {}, integer(n)), ` ${words}`);
  });

export async function show({ main, signal }) {
  const captures = table({
    label: "Captured functions",
    className: "captures",
    key: (row) => row.id,
    empty: `No program has posted launches: ${COMMANDS.capture()}.`,
    columns: [
      { name: "name", label: "function", value: (row) => row.name, cell: (row) => breakable(row.name), className: "code" },
      { name: "way", label: "from seen to served", value: (row) => row.served / Math.max(1, row.keys), cell: wayCell },
      { name: "keys", label: "keys", number: true, wide: true, value: (row) => row.keys, cell: (row) => integer(row.keys) },
      { name: "tuned", label: "tuned", number: true, wide: true, value: (row) => row.tuned, cell: (row) => integer(row.tuned) },
      {
        name: "refused",
        label: "refused",
        number: true,
        wide: true,
        value: (row) => row.refused,
        cell: (row) => (row.refused ? h("b", { class: "bad", title: row.why }, integer(row.refused)) : "0"),
      },
      {
        name: "waits",
        label: "waits for",
        className: "waits",
        value: (row) => [row.move, row.waits_for].join(" "),
        cell: (row) => [
          row.move && h("b", {}, `${row.move}: `),
          h("span", { class: row.waits_for ? null : "quiet" }, row.waits_for || "nothing"),
          row.job && [" ", link(["job", row.job], `job ${row.job}`)],
        ],
      },
      { name: "owner", label: "posted by", wide: true, value: (row) => row.owner || "–" },
      {
        name: "seen",
        label: "last seen",
        number: true,
        wide: true,
        value: (row) => -Date.parse(row.seen_at),
        cell: (row) => when(row.seen_at),
      },
    ],
  });
  const demand = table({
    label: "Untuned keys that deployments request",
    key: (row) => JSON.stringify([row.kernel, row.key, row.environment, row.tag, row.regime]),
    empty: "No deployment misses a key of a registered kernel.",
    columns: [
      { name: "kernel", label: "kernel", value: (row) => row.name, cell: (row) => link(["kernel", row.kernel], row.name) },
      { name: "key", label: "key", value: (row) => members(row.key), className: "code" },
      { name: "misses", label: "misses", number: true, value: (row) => row.misses, cell: (row) => integer(row.misses) },
      { name: "saved", label: "tuning saves", number: true, value: (row) => row.saved_ms, cell: (row) => deviceTime(row.saved_ms / 1000) },
      { name: "gain", label: "of its time", number: true, wide: true, value: (row) => row.gain, cell: (row) => percent(row.gain) },
      { name: "tag", label: "tag", wide: true, value: (row) => row.tag },
      { name: "environment", label: "environment", wide: true, value: (row) => environment(row.environment) },
      { name: "last", label: "last", number: true, value: (row) => -Date.parse(row.last_at), cell: (row) => when(row.last_at) },
    ],
  });
  const missed = table({
    label: "Keys for which programs that start tuned had no config",
    key: (row) => JSON.stringify([row.function, row.key, row.environment, row.tag, row.regime]),
    empty: "No program that starts tuned misses a key.",
    columns: [
      { name: "function", label: "function", value: (row) => row.name, cell: (row) => breakable(row.name), className: "code" },
      { name: "key", label: "key", value: (row) => row.key.join(", "), className: "code" },
      { name: "misses", label: "misses", number: true, value: (row) => row.misses, cell: (row) => integer(row.misses) },
      { name: "saved", label: "tuning saves", number: true, wide: true, value: (row) => row.saved_ms || 0, cell: (row) => (row.saved_ms ? deviceTime(row.saved_ms / 1000) : "–") },
      { name: "why", label: "why", className: "waits", value: (row) => row.why },
      { name: "captured", label: "captured", value: (row) => (row.capture ? 1 : 0), cell: (row) => (row.capture ? `as ${row.capture}` : "no") },
      { name: "environment", label: "environment", wide: true, value: (row) => environment(row.environment) },
      { name: "last", label: "last", number: true, value: (row) => -Date.parse(row.last_at), cell: (row) => when(row.last_at) },
    ],
  });
  const count = note("Reading…"),
    colours = h("ul", { class: "legend" }),
    policy = note();
  put(
    main,
    h("h1", {}, "Captures and demand"),
    panel("Captured functions", count, colours, captures.element),
    may("demand_get") && panel("Demand", policy, demand.element, missed.element),
  );
  const rows = [];
  for await (const items of pages("v1/captures", { limit: 1000 }, signal)) {
    rows.push(...items);
    captures.set(rows);
  }
  const sum = (name) => rows.reduce((n, row) => n + (row[name] || 0), 0);
  count.textContent = rows.length
    ? `${plural(rows.length, "function")} with ${plural(sum("keys"), "key")}: ${integer(sum("built"))} built, ${integer(sum("tuned"))} tuned, ${integer(sum("served"))} served. A bar is all keys of a function:`
    : "";
  put(colours, legend(rows));
  if (!may("demand_get")) return;
  const wanted = await get("v1/demand", { limit: 1000 }, signal);
  demand.set(wanted.items);
  missed.set(wanted.missed);
  policy.textContent =
    {
      off: "The server makes no jobs of demand.",
      suggest: `The server suggests jobs for these keys; ${COMMANDS.queueDemand()} queues the first N.`,
    }[wanted.policy] || "";
}
