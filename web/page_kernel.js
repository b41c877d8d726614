// One kernel: its keys with what tuning gained, the winners' parameters, and the same keys across
// releases.

import { get, immutable, may, pages } from "./api.js";
import { mark, plot, range } from "./chart.js";
import { facts, h, link, note, panel, put } from "./dom.js";
import { ago, digits, environment, integer, members, micros, plural, shortDigest, times } from "./format.js";
import { winnersOf } from "./release_data.js";
import { table } from "./table.js";

export const title = () => "Kernel";

const AT_ONCE = 6,
  STEP = 48,
  RELEASES = 5;

// Runs `step` for every item, a few at a time.
async function several(items, signal, step) {
  const queue = [...items];
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      while (queue.length && !signal.aborted) await step(queue.shift());
    }),
  );
}

function gainChart(rows) {
  const known = rows.filter((row) => row.verdict).sort((a, b) => b.gain - a.gain);
  const of = (row) => ({ y: row.gain, low: 1 / row.verdict.baseline_upper, high: 1 / row.verdict.baseline_lower });
  const y = {
    ...range(
      known.flatMap((row) => [of(row).low, of(row).high, 1]),
      { log: Math.max(...known.map((row) => row.gain)) > 6 },
    ),
    name: "times as fast as the baseline",
    format: (v) => digits(v, 3),
  };
  return plot({
    title: "Gain of each key, the largest first",
    height: 260,
    description: `${plural(known.length, "key")}: from ${times(known.at(-1).gain)} to ${times(known[0].gain)} times as fast as the baseline.`,
    legend: [
      ["winner", "faster"],
      ["config", "as fast"],
      ["baseline", "not decided, or slower"],
    ].map(([name, text]) => h("span", {}, mark(`point ${name}`), ` ${text} `)),
    x: { low: 0.5, high: Math.max(known.length + 0.5, 2), name: "keys", format: integer, whole: true },
    y,
    layers: [
      { type: "level", y: 1, class: "level", text: "the baseline" },
      {
        type: "points",
        at: known.map((row, i) => ({
          x: i + 1,
          ...of(row),
          class: { FASTER: "winner", SAME: "config" }[row.verdict.verdict] || "baseline",
          label: `${members(row.key)}: ${times(row.gain)} times as fast; ${members(row.winner.config_values)}`,
          choose: () => {
            location.hash = `#/job/${row.job}`;
          },
        })),
      },
    ],
    table: {
      columns: ["key", "gain", "from", "to", "winner"],
      rows: known.map((row) => [
        members(row.key),
        times(row.gain),
        times(of(row).low),
        times(of(row).high),
        members(row.winner.config_values),
      ]),
    },
  });
}

export async function show({ main, segments: [hash], signal }) {
  const kernel = await get(`v1/kernels/${encodeURIComponent(hash)}`, {}, signal);
  document.title = `${kernel.manifest.name} – wavetune`;
  const chart = h("div"),
    count = note("Reading the jobs…"),
    more = h("button", { type: "button", hidden: true }, `Read the gain of ${STEP} more keys`);
  const keys = table({
    label: "Keys",
    key: (row) => row.job,
    sort: { name: "gain", down: true },
    empty: "No job of this kernel has a winner yet.",
    columns: [
      {
        name: "key",
        label: "key",
        value: (row) => members(row.key),
        className: "code",
        cell: (row) => link(["job", row.job], members(row.key)),
      },
      {
        name: "gain",
        label: "gain",
        number: true,
        value: (row) => row.gain,
        cell: (row) => (row.gain ? `${times(row.gain)} ×` : h("span", { class: "quiet" }, "…")),
      },
      {
        name: "interval",
        label: "95 % interval",
        number: true,
        wide: true,
        cell: (row) => (row.verdict ? `${times(1 / row.verdict.baseline_upper)} – ${times(1 / row.verdict.baseline_lower)}` : ""),
      },
      {
        name: "us",
        label: "time",
        number: true,
        value: (row) => row.verdict?.winner_us,
        cell: (row) => (row.verdict ? micros(row.verdict.winner_us) : ""),
      },
      { name: "winner", label: "winner", value: (row) => members(row.winner?.config_values), className: "code" },
      {
        name: "verdict",
        label: "verdict",
        wide: true,
        value: (row) => row.verdict?.verdict,
        cell: (row) => row.verdict?.verdict.toLowerCase() || "",
      },
      { name: "tag", label: "tag", wide: true, value: (row) => row.tag },
      { name: "environment", label: "environment", wide: true, value: (row) => environment(row.environment) },
    ],
  });
  const { manifest } = kernel,
    releases = h("div");
  put(
    main,
    h("h1", {}, manifest.name, " ", h("span", { class: "code quiet" }, shortDigest(hash))),
    facts([
      ["Language", manifest.language],
      ["Entry", manifest.entry && h("span", { class: "code" }, manifest.entry)],
      ["Key", h("span", { class: "code" }, manifest.key.join(" "))],
      ["Reference", manifest.reference ? `checked, relative tolerance ${manifest.reference.rtol ?? 0}` : manifest.entry ? "none" : null],
      ["Registered", `${ago(kernel.created_at)}${kernel.made_by ? ` by ${kernel.made_by}` : ""}`],
      ["Signatures", kernel.signatures?.length ? kernel.signatures.map((each) => shortDigest(each.key)).join(", ") : "none"],
      ["Jobs", link(["jobs"], "all of this kernel", { kernel: hash })],
    ]),
    panel("Keys", count, chart, keys.element, h("p", {}, more)),
    panel("Across releases", releases),
  );

  // The newest job that has a winner, for each key, tag, regime and environment.
  const newest = new Map();
  for await (const items of pages("v1/jobs", { kernel: hash, state: "done", limit: 1000 }, signal)) {
    for (const job of items) {
      const identity = JSON.stringify([job.key, job.tag, job.regime, job.environment]);
      if (job.winner && !newest.has(identity)) newest.set(identity, { ...job, gain: null, verdict: null });
    }
    keys.set([...newest.values()]);
  }

  const rows = [...newest.values()];
  let read = 0;
  async function readGains() {
    more.hidden = true;
    await several(rows.slice(read, read + STEP), signal, async (row) => {
      const job = await get(`v1/jobs/${row.job}`, {}, signal);
      row.verdict = job.winner.verdict;
      row.gain = 1 / row.verdict.baseline_ratio;
      read++;
    });
    if (signal.aborted) return;
    keys.set(rows);
    const done = rows.filter((row) => row.verdict);
    if (done.length) put(chart, gainChart(done));
    more.hidden = read >= rows.length;
    count.textContent = `${plural(rows.length, "key")} with a winner${read < rows.length ? `, the gain of ${integer(read)} is shown` : ""}.`;
  }
  more.addEventListener("click", readGains);
  await readGains();

  if (!may("release_list")) return;
  const columns = [],
    byKey = new Map();
  for await (const items of pages("v1/releases", { limit: 50 }, signal)) {
    for (const item of items.toSorted((a, b) => Date.parse(b.created_at) - Date.parse(a.created_at))) {
      if (columns.length === RELEASES) break;
      const release = await immutable(`v1/releases/${item.release}`, signal),
        found = winnersOf(release).filter((each) => each.kernel === hash);
      if (!found.length) continue;
      columns.push(item);
      for (const each of found) {
        const name = members(each.key);
        if (!byKey.has(name)) byKey.set(name, new Map());
        byKey.get(name).set(item.release, each);
      }
    }
    if (columns.length === RELEASES) break;
  }
  if (!columns.length) return void put(releases, note("No release has a winner of this kernel."));
  const across = table({
    label: "Winners across releases",
    key: (row) => row.name,
    columns: [
      { name: "key", label: "key", value: (row) => row.name, className: "code" },
      ...columns.map((item) => ({
        name: item.release,
        label: shortDigest(item.release).slice(0, 8),
        cell: (row) =>
          row.cells[item.release] && [
            h("span", { class: "code" }, row.cells[item.release].config),
            " ",
            h("span", { class: "quiet" }, row.cells[item.release].ms),
          ],
      })),
    ],
  });
  across.set(
    [...byKey].map(([name, found]) => ({
      name,
      cells: Object.fromEntries(
        [...found].map(([release, each]) => [
          release,
          { config: members(each.config), ms: each.ms.length ? micros(each.ms[0] * 1000) : "" },
        ]),
      ),
    })),
  );
  put(
    releases,
    h(
      "ul",
      { class: "plain" },
      columns.map((item) =>
        h(
          "li",
          {},
          link(["release", item.release], shortDigest(item.release)),
          ` ${item.tag}, ${environment(item.environment)}, ${ago(item.created_at)}`,
        ),
      ),
    ),
    across.element,
  );
}
