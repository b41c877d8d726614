// One device: its baseline over time with the limits beyond which it is drained, its work and its
// errors.

import { get, may, pages } from "./api.js";
import { mark, plot, range } from "./chart.js";
import { facts, h, link, note, panel, put, state } from "./dom.js";
import { ago, by, clock, deviceTime, digits, environment, integer, members, micros, percent, plural } from "./format.js";
import { median } from "./job_data.js";
import { table } from "./table.js";

export const title = ([, device]) => `Device ${device}`;

const SIGMA_OF_MAD = 1.4826,
  MOST = 1000;

// For each lease, oldest first: its median by what came before it, and how far it may be from that,
// both as a share (the rule of server/measurement/drift.h). A subject's first leases have no history.
function judged(items, rule) {
  const histories = new Map(),
    made = [];
  for (const item of items.toReversed()) {
    if (!histories.has(item.subject)) histories.set(item.subject, []);
    const history = histories.get(item.subject),
      before = history.slice(-rule.history_max);
    let ratio = null,
      limit = null;
    if (item.counts && before.length >= rule.history_min) {
      const middle = median(before);
      ratio = item.median_us / middle;
      limit = Math.max(rule.share, (rule.spreads * SIGMA_OF_MAD * median(before.map((us) => Math.abs(us - middle)))) / middle);
    }
    made.push({ ...item, ratio, limit, at_ms: Date.parse(item.at) });
    if (item.counts) history.push(item.median_us);
  }
  return made;
}

function baselineChart(rows) {
  const known = rows.filter((row) => row.ratio !== null),
    from = known[0].at_ms,
    to = known.at(-1).at_ms,
    hours = (ms) => (ms - to) / 3600000;
  const isDays = to - from > 3 * 86400000,
    f = isDays ? 1 / 24 : 1;
  const beyond = known.filter((row) => Math.abs(row.ratio - 1) > row.limit);
  const y = {
    ...range(known.flatMap((row) => [row.ratio, 1 - row.limit, 1 + row.limit])),
    name: "time to its own history",
    format: (v) => digits(v, 4),
  };
  const x = {
    low: Math.min(hours(from) * f, -0.1),
    high: 0,
    name: isDays ? "days before the newest" : "hours before the newest",
    format: (v) => digits(Math.abs(v), 3),
  };
  return plot({
    title: "Each lease's baseline by the median of those before it",
    height: 300,
    description: `${plural(known.length, "lease")}; ${beyond.length ? `${beyond.length} beyond the limits` : "none is beyond the limits"}. Two in a row beyond the same limit drain the device.`,
    legend: [
      h("span", {}, mark("point config"), " a lease "),
      h("span", {}, mark("point bad"), " beyond the limits "),
      h("span", {}, mark("line limit", "line"), " the limits of each"),
    ],
    x,
    y,
    layers: [
      { type: "level", y: 1, class: "level" },
      { type: "line", class: "line limit", at: known.map((row) => ({ x: hours(row.at_ms) * f, y: 1 + row.limit })) },
      { type: "line", class: "line limit", at: known.map((row) => ({ x: hours(row.at_ms) * f, y: 1 - row.limit })) },
      {
        type: "points",
        at: known.map((row) => ({
          x: hours(row.at_ms) * f,
          y: row.ratio,
          class: Math.abs(row.ratio - 1) > row.limit ? "bad" : "config",
          label: `${clock(row.at)}: ${digits(row.ratio, 4)} of its history, ${micros(row.median_us)}, ${row.name || ""} ${members(row.key)}`,
          choose: () => {
            if (row.job) location.hash = `#/job/${row.job}`;
          },
        })),
      },
    ],
    table: {
      columns: ["time", "kernel", "key", "median", "to its history", "limit"],
      rows: known.map((row) => [
        clock(row.at),
        row.name || "–",
        members(row.key),
        micros(row.median_us),
        digits(row.ratio, 4),
        `± ${percent(row.limit, 1)}`,
      ]),
    },
  });
}

// The agent with this id: the list is by id, and begins behind what is asked for.
async function agentOf(id, signal) {
  const { items } = await get("v1/agents", { after: id.slice(0, -1), limit: 20, all: true }, signal);
  return items.find((each) => each.agent === id) || null;
}

export async function show({ main, segments: [id, name], signal }) {
  const agent = await agentOf(id, signal),
    device = agent?.devices.find((each) => each.device === name);
  if (!device) return void put(main, h("h1", {}, "Device"), note(`There is no device ${name} of an agent ${id}.`));
  document.title = `${agent.name} ${name} – wavetune`;
  const reason = agent.drain_reason || device.drain_reason,
    author = agent.drain_reason ? agent.drained_by : device.drained_by;
  const now = h("span"),
    chart = h("div"),
    work = h("div");
  const kernels = table({
    label: "Work by kernel",
    key: (row) => row.name,
    sort: { name: "device", down: true },
    empty: "It has measured no baseline yet.",
    columns: [
      { name: "name", label: "kernel", value: (row) => row.name },
      { name: "leases", label: "leases", number: true, value: (row) => row.leases, cell: (row) => integer(row.leases) },
      {
        name: "device",
        label: "device time",
        number: true,
        value: (row) => row.device_seconds,
        cell: (row) => deviceTime(row.device_seconds),
      },
      { name: "configs", label: "configs", number: true, value: (row) => row.configs, cell: (row) => integer(row.configs) },
      {
        name: "errors",
        label: "errors",
        number: true,
        value: (row) => row.errors,
        cell: (row) => (row.errors ? h("b", { class: "bad" }, integer(row.errors)) : "0"),
      },
    ],
  });
  put(
    main,
    h("h1", {}, agent.name, " ", h("span", { class: "code" }, name), " ", now),
    reason && h("p", { class: "problem" }, `${reason}${by(author)}`),
    facts([
      ["Environment", environment(device.environment)],
      ["Compute units", device.environment.compute_units],
      ["Agent", h("span", { class: "code" }, id)],
      ["Version", agent.version],
      ["Seen", ago(agent.last_seen)],
      ["State of the agent", state(agent.state)],
    ]),
    panel("Its baselines", chart),
    panel("Work and errors", work, kernels.element),
  );
  if (may("fleet_nodes"))
    for await (const nodes of pages("v1/fleet/nodes", { q: agent.name, limit: 1000 }, signal)) {
      const found = nodes.find((node) => node.agent === id)?.devices.find((each) => each.device === name);
      if (found)
        put(
          now,
          state(found.state),
          found.job &&
            h("span", { class: "quiet" }, " ", link(["job", found.job], `${found.kernel} ${members(found.key)}`), ` ${found.stage}`),
        );
    }

  const { items, rule } = await get(
    `v1/agents/${encodeURIComponent(id)}/devices/${encodeURIComponent(name)}/baselines`,
    { limit: MOST },
    signal,
  );
  const rows = judged(items, rule),
    byKernel = new Map(),
    outcomes = new Map();
  if (rows.filter((row) => row.ratio !== null).length > 1) put(chart, baselineChart(rows));
  else put(chart, note(`A lease is judged by at least ${rule.history_min} before it of the same baseline; there are not so many yet.`));
  for (const row of rows) {
    const kernel = row.name || "not stored any more",
      sum = byKernel.get(kernel) || { name: kernel, leases: 0, device_seconds: 0, configs: 0, errors: 0 };
    sum.leases++;
    sum.device_seconds += row.device_seconds || 0;
    for (const [outcome, n] of Object.entries(row.outcomes || {})) {
      outcomes.set(outcome, (outcomes.get(outcome) || 0) + (n || 0));
      sum.configs += n || 0;
      if (!["correct", "constraints"].includes(outcome)) sum.errors += n || 0;
    }
    byKernel.set(kernel, sum);
  }
  kernels.set([...byKernel.values()]);
  put(
    work,
    rows.length > 0 &&
      note(
        `${rows.length < MOST ? "" : "Only the newest "}${plural(rows.length, "lease")}, since ${clock(rows[0].at)}${rows.length < MOST ? "" : "; what is older is neither in the chart nor in the sums"}. Outcomes of their configs: ${
          [...outcomes]
            .filter(([, n]) => n)
            .map(([outcome, n]) => `${integer(n)} ${outcome}`)
            .join(", ") || "not stored"
        }.`,
      ),
  );
}
