// What tuning took: device time by week, day, kernel, tag, run or person.

import { get } from "./api.js";
import { plot, range } from "./chart.js";
import { h, link, note, panel, path, put } from "./dom.js";
import { deviceTime, digits, integer, percent, plural } from "./format.js";
import { table } from "./table.js";

export const title = () => "Cost";

const BY = [
  ["week", "week"],
  ["day", "day"],
  ["kernel", "kernel"],
  ["tag", "tag"],
  ["run", "run"],
  ["owner", "person"],
];
const DAY_MS = 86400000;
const PERIODS = [
  ["", "all time"],
  ["7", "7 days"],
  ["30", "30 days"],
  ["90", "90 days"],
];
const isTime = (by) => by === "week" || by === "day";

function timeChart(cost) {
  const rows = cost.items.toReversed(),
    hours = rows.map((row) => row.device_seconds / 3600);
  const small = Math.max(...hours) < 1,
    of = (row) => (small ? row.device_seconds / 60 : row.device_seconds / 3600);
  return plot({
    title: `Device time by ${cost.by}`,
    description: `${plural(rows.length, cost.by)}, ${deviceTime(cost.device_seconds)} in all.`,
    height: 240,
    x: {
      low: -0.5,
      high: rows.length - 0.5,
      name: cost.by === "week" ? "week that begins on" : "day",
      ticks: rows.map((_, i) => i),
      format: (v) => rows[v]?.name.slice(5) ?? "",
    },
    y: { ...range(rows.map(of), { zero: true }), name: small ? "device minutes" : "device hours", format: (v) => digits(v, 3) },
    layers: [
      {
        type: "bars",
        at: rows.map((row, i) => ({
          x: i,
          y0: 0,
          y1: of(row),
          class: "bar",
          label: `${row.name}: ${deviceTime(row.device_seconds)}, ${plural(row.jobs, "job")}`,
        })),
      },
    ],
    table: {
      columns: [cost.by, "device time", "jobs", "measurements"],
      rows: rows.map((row) => [row.name, deviceTime(row.device_seconds), integer(row.jobs), integer(row.measurements)]),
    },
  });
}

export async function show({ main, query, signal }) {
  const by = BY.some(([name]) => name === query.get("by")) ? query.get("by") : "week",
    days = query.get("days") || "";
  const word = BY.find(([name]) => name === by)[1],
    chart = h("div"),
    lead = h("p", { class: "lead" });
  const select = h(
    "select",
    {
      id: "days",
      on: {
        change: () => {
          location.hash = path(["cost"], { by, days: select.value });
        },
      },
    },
    PERIODS.map(([value, label]) => h("option", { value, selected: value === days }, label)),
  );
  let total = 1;
  const name = (row) => {
    if (row.name === "") return h("span", { class: "quiet" }, by === "owner" ? "not known" : "no run");
    return by === "tag"
      ? link(["jobs"], row.name, { tag: row.name })
      : by === "owner"
        ? link(["jobs"], row.name, { q: row.name })
        : by === "kernel"
          ? link(["jobs"], row.name, { q: row.name })
          : row.name;
  };
  const list = table({
    label: `Device time by ${word}`,
    key: (row) => row.name,
    sort: isTime(by) ? { name: "name", down: true } : { name: "device", down: true },
    empty: "No job has ended in this time.",
    columns: [
      { name: "name", label: word, value: (row) => row.name, cell: name },
      {
        name: "device",
        label: "device time",
        number: true,
        value: (row) => row.device_seconds,
        cell: (row) => deviceTime(row.device_seconds),
      },
      {
        name: "share",
        label: "share",
        number: true,
        value: (row) => row.device_seconds,
        cell: (row) => percent(row.device_seconds / total, 1),
      },
      { name: "jobs", label: "jobs", number: true, value: (row) => row.jobs, cell: (row) => integer(row.jobs) },
      {
        name: "per",
        label: "per job",
        number: true,
        wide: true,
        value: (row) => row.device_seconds / Math.max(1, row.jobs),
        cell: (row) => deviceTime(row.device_seconds / Math.max(1, row.jobs)),
      },
      {
        name: "measurements",
        label: "measurements",
        number: true,
        wide: true,
        value: (row) => row.measurements,
        cell: (row) => integer(row.measurements),
      },
    ],
  });
  put(
    main,
    h("h1", {}, "Cost"),
    lead,
    h(
      "form",
      { class: "filter" },
      h(
        "span",
        { class: "tabs", role: "group", "aria-label": "By" },
        BY.map(([value, label]) =>
          h("a", { href: path(["cost"], { by: value, days }), "aria-current": value === by ? "true" : null }, label),
        ),
      ),
      h("label", { for: "days" }, "In the last"),
      select,
    ),
    h("section", { class: "panel", "aria-label": `By ${word}` }, chart, list.element),
    note("A job counts on the day (UTC) on which it ended; what open jobs used so far counts today."),
  );
  const cost = await get("v1/cost", { by, from_ms: days ? Date.now() - days * DAY_MS : null }, signal);
  total = cost.device_seconds || 1;
  lead.textContent = `${deviceTime(cost.device_seconds)} of device time for ${plural(cost.jobs, "job")} and ${plural(cost.measurements, "measurement")}.`;
  list.set(cost.items);
  if (isTime(by) && cost.items.length) put(chart, timeChart(cost));
}
