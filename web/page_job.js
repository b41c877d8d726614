// One job: what it found and how sure that is, its configs as charts, the samples of a config, and
// the lines that reproduce it. Live while it runs.

import { call, get, may, pages, Problem, repeat } from "./api.js";
import { heatmap, mark, plot, range } from "./chart.js";
import { codePanel } from "./code_panel.js";
import { COMMANDS } from "./commands.js";
import { commands, confirm, facts, h, link, note, panel, path, put, state, uniqueId, when } from "./dom.js";
import {
  clock,
  deviceTime,
  digits,
  environment,
  integer,
  members,
  micros,
  percent,
  plural,
  shortDigest,
  times,
} from "./format.js";
import { bestByPair, EQUIVALENCE, median, parameterNames, summarise, valuesOf } from "./job_data.js";
import { table } from "./table.js";

export const title = ([job]) => `Job ${job}`;

const LOG_FROM = 6; // times that differ by more than this factor get a logarithmic axis
const isOpen = (job) => job.state === "queued" || job.state === "running";
const FROM = { incumbent: "the served config", imported: "the imported config", default: "the default", first: "the first config" };
const AGREEMENT = {
  bitwise: "Its outputs equal those of the program's default config, bit by bit.",
  interpreted: "Its outputs agree with Triton's interpreter.",
  agrees: "Its outputs agree with those of the program's default config.",
  disagrees: "Its outputs do not agree with those of the program's default config.",
};

// The verdict as sentences.
function inWords(job) {
  const { winner } = job,
    verdict = winner?.verdict;
  if (!verdict) {
    const tried = `${integer(job.measured)} of ${plural(job.configs, "config")} ${job.measured === 1 ? "is" : "are"} measured`;
    const handed = job.handed_back ? `An agent handed a part of it back: ${job.handed_back}.` : "";
    if (job.state === "queued") return [`It waits in the queue. ${job.waiting ? `${job.waiting}.` : ""}`, handed];
    if (job.state === "running")
      return [`It is in the stage ${job.stage}; ${tried}.`, job.waiting ? `Its open leases are not granted: ${job.waiting}.` : "", handed];
    return [
      `It ${job.state === "done" ? "ended without a winner" : job.state === "failed" ? "failed" : "was cancelled"}${job.reason ? `: ${job.reason}` : ""}.`,
      `${tried}.`,
    ];
  }

  const than = FROM[job.baseline_from] || "the baseline",
    gain = 1 / verdict.baseline_ratio;
  const interval = `(95 % interval ${times(1 / verdict.baseline_upper)} to ${times(1 / verdict.baseline_lower)})`;
  const first =
    {
      FASTER: `Config ${winner.config} is ${times(gain)} times as fast as ${than} ${interval}: ${micros(verdict.winner_us)} instead of ${micros(verdict.baseline_us)}.`,
      SAME:
        winner.config === job.baseline
          ? `Nothing is faster than ${than}, config ${winner.config} with ${micros(verdict.winner_us)}.`
          : `Config ${winner.config} is as fast as ${than}: ${times(gain)} times ${interval}.`,
      SLOWER: `The best that was found, config ${winner.config}, is slower than ${than}: ${times(gain)} times as fast ${interval}.`,
      AMBIGUOUS: `It is not decided whether config ${winner.config} is faster than ${than}: ${times(gain)} times as fast ${interval}.`,
    }[verdict.verdict] || `Config ${winner.config} won.`;
  const others = verdict.equivalence_set.length - 1;
  return [
    first,
    others > 0
      ? `${plural(others, "other config")} ${others === 1 ? "is" : "are"} as good within 2 %; of these the one with the least resources was chosen.`
      : "No other config is as good within 2 %.",
    `With 95 % confidence no other finalist is ${verdict.regret_bound < 5e-5 ? "" : `more than ${percent(verdict.regret_bound, 2)} `}faster.`,
    `Decided from ${plural(verdict.samples, "pair")} of samples in ${plural(verdict.processes, "process", "processes")} on ${plural(verdict.devices, "device")}.`,
    AGREEMENT[winner.agreement] || "",
  ];
}

function head(job) {
  return facts([
    ["Kernel", link(["kernel", job.kernel], job.name)],
    ["Key", h("span", { class: "code" }, members(job.key))],
    ["Environment", environment(job.environment)],
    ["Tag", link(["jobs"], job.tag, { tag: job.tag, run: job.run, by: "campaign" })],
    ["Run", job.run],
    ["Regime", job.regime],
    ["Submitted", [when(job.created_at), job.submitted_by && ` by ${job.submitted_by}`]],
    ["Ended", job.finished_at && [when(job.finished_at), job.cancelled_by && `, cancelled by ${job.cancelled_by}`]],
    [
      "Device time",
      `${deviceTime(job.spent_device_seconds)}${job.budget ? ` of a budget of ${deviceTime(job.budget.device_seconds)}` : ""}`,
    ],
    ["Configs", `${integer(job.measured)} of ${integer(job.configs)} measured${job.search ? ` (search: ${job.search.strategy})` : ""}`],
  ]);
}

// How the configs ended, as a strip and a list.
function outcomes(job) {
  const counts = Object.entries(job.outcomes || {}),
    measured = counts.reduce((n, [, each]) => n + each, 0);
  const parts = [...counts, ["not measured", Math.max(0, job.configs - measured)]].filter(([, n]) => n > 0);
  return [
    h(
      "div",
      { class: "strip", role: "img", "aria-label": parts.map(([name, n]) => `${n} ${name}`).join(", ") || "nothing measured" },
      parts.map(([name, n]) => {
        const part = h("span", { class: `outcome-${name.replace(" ", "-")}` });
        part.style.flexGrow = n;
        return part;
      }),
    ),
    h(
      "ul",
      { class: "legend" },
      parts.map(([name, n]) =>
        h(
          "li",
          {},
          h("span", { class: `square outcome-${name.replace(" ", "-")}`, "aria-hidden": "true" }),
          ` ${name} `,
          h("b", {}, integer(n)),
        ),
      ),
    ),
  ];
}

function timesChart(job, data, choose) {
  const { timed, best } = data;
  const log = timed.at(-1).us / best.us > LOG_FROM;
  const y = {
    ...range(
      timed.flatMap((each) => [each.low, each.high, each.us]),
      { log, margin: 0.06 },
    ),
    name: "time",
    format: micros,
  };
  const points = timed.map((each) => ({
    x: each.rank,
    y: each.us,
    low: each.low,
    high: each.high,
    r: each.isWinner ? 5 : timed.length > 300 ? 2 : 3,
    class: each.isWinner ? "winner" : each.equivalent ? "equivalent" : each.isBaseline ? "baseline" : each.finalist ? "finalist" : "config",
    label: `config ${each.config}: ${micros(each.us)} (${micros(each.low)} to ${micros(each.high)}), ${each.stage}; ${members(each.values)}`,
    choose: () => choose(each.config),
  }));
  return plot({
    title: "Time of each config, the fastest first",
    description: `${plural(timed.length, "config")} from ${micros(best.us)} to ${micros(timed.at(-1).us)}. The stripe is what is within 2 % of the best.`,
    legend: [
      [job.winner && "winner", "winner"],
      [job.winner && "equivalent", "equivalent"],
      [job.winner && "finalist", "other finalist"],
      ["baseline", "baseline"],
      ["config", "measured"],
    ]
      .filter(([name]) => name)
      .map(([name, text]) => h("span", {}, mark(`point ${name}`), ` ${text} `))
      .concat(h("span", {}, mark("band", "area"), " within 2 % of the best")),
    x: { low: 0.5, high: Math.max(timed.length + 0.5, 2), name: "rank", format: integer, whole: true },
    y,
    layers: [
      { type: "band", class: "band", from: best.us, to: best.us * EQUIVALENCE },
      { type: "points", at: points.toReversed() },
    ],
    table: {
      columns: ["rank", "config", "time", "from", "to", "stage", "values"],
      rows: timed.map((each) => [
        each.rank,
        each.config,
        micros(each.us),
        micros(each.low),
        micros(each.high),
        each.stage,
        members(each.values),
      ]),
    },
  });
}

function trialsChart(data) {
  const { trials } = data,
    known = trials.filter((each) => Number.isFinite(each.best));
  const all = trials.filter((each) => Number.isFinite(each.us)),
    least = known.at(-1).best;
  const log = Math.max(...all.map((each) => each.us)) / least > LOG_FROM;
  return plot({
    title: "Best so far against trials",
    description: `After ${plural(trials.length, "trial")} the best first measurement is ${micros(least)}.`,
    legend: [
      h("span", {}, mark("line best", "line"), " best so far "),
      h("span", {}, mark("point faint"), " a config's first measurement"),
    ],
    x: { low: 0, high: Math.max(trials.length, 2), name: "trials", format: integer, whole: true },
    y: {
      ...range(
        all.map((each) => each.us),
        { log },
      ),
      name: "time",
      format: micros,
    },
    layers: [
      {
        type: "points",
        at: all.map((each) => ({
          x: each.trial,
          y: each.us,
          class: "faint",
          r: 2,
          label: `trial ${each.trial}, config ${each.config}: ${micros(each.us)}`,
        })),
      },
      {
        type: "steps",
        class: "line best",
        at: known.map((each) => ({ x: each.trial, y: each.best })).concat({ x: trials.length, y: least }),
      },
    ],
    table: {
      columns: ["trial", "config", "time", "best so far"],
      rows: trials.map((each) => [each.trial, each.config, micros(each.us), micros(each.best)]),
    },
  });
}

// The heatmap with the choice of its parameters.
function pairsPanel(job) {
  const names = parameterNames(job.space),
    place = h("div");
  if (names.length < 2) return { element: null, set() {} };
  const chooser = (label, chosen) => {
    const id = uniqueId("parameter");
    const select = h(
      "select",
      { id, on: { change: () => redraw() } },
      names.map((name) => h("option", { value: name, selected: name === chosen }, name)),
    );
    return { select, element: [h("label", { for: id }, label), select] };
  };
  const x = chooser("Across", names[0]),
    y = chooser("Down", names[1]);
  let data = null;
  function redraw() {
    if (!data) return;
    const at = bestByPair(data.configs, x.select.value, y.select.value);
    const xs = valuesOf(job.space, data.configs, x.select.value),
      ys = valuesOf(job.space, data.configs, y.select.value);
    if (x.select.value === y.select.value || !xs.length || !ys.length) return void put(place, note("Choose two different parameters."));
    put(
      place,
      heatmap({
        title: `Best time by ${x.select.value} and ${y.select.value}`,
        description: "The least time over all other parameters; darker is faster.",
        xName: x.select.value,
        yName: y.select.value,
        xs,
        ys,
        value: (a, b) => at(a, b)?.us ?? null,
        format: micros,
        label: (a, b, us) => `${x.select.value}=${a} ${y.select.value}=${b}: ${micros(us)}, config ${at(a, b).config}`,
      }),
    );
  }
  return {
    element: panel("Two parameters", h("div", { class: "filter" }, x.element, y.element), place),
    set(next) {
      data = next;
      redraw();
    },
  };
}

// The samples of one config, by process, with the device of each.
function samplesPanel(job, data, config, names) {
  const rows = (data.byConfig.get(config) || []).filter((row) => row.samples_us.length),
    each = data.configs.find((c) => c.config === config);
  const title = `Config ${config}`;
  if (!each) return panel(title, note("It was not measured."));
  const devices = [...new Set(rows.map((row) => `${row.agent}/${row.device}`))];
  const deviceName = (row) => `${names.get(row.agent) || row.agent.slice(0, 8)} ${row.device}`;
  const final = rows.filter((row) => row.stage === each.stage),
    spread = (row, i) => (row.samples_us.length > 1 ? (i / (row.samples_us.length - 1) - 0.5) * 0.6 : 0);
  return panel(
    title,
    facts([
      ["Values", h("span", { class: "code" }, members(each.values))],
      ["Outcome", each.outcome],
      ["Why", each.detail && h("span", { class: "code" }, each.detail)],
      ["Time", micros(each.us)],
      [
        "To the best",
        each.verdict &&
          `${digits(each.verdict.ratio, 5)}${Number.isFinite(each.verdict.upper) && each.verdict.upper > each.verdict.lower ? ` (${digits(each.verdict.lower, 5)} to ${digits(each.verdict.upper, 5)})` : ""}`,
      ],
      ["Registers", each.vgprs !== null && each.vgprs !== undefined && `${each.vgprs}${each.spills ? `, ${each.spills} spilled` : ""}`],
      ["LDS", each.lds_bytes && `${integer(each.lds_bytes)} bytes`],
    ]),
    final.length > 0 &&
      plot({
        title: `Samples of config ${config} in its ${each.stage}, by process`,
        description: `${plural(final.length, "process", "processes")} on ${plural(devices.length, "device")}; each point is a sample, the line its process's median.`,
        height: 240,
        x: {
          low: 0.5,
          high: final.length + 0.5,
          name: "process",
          ticks: final.map((_, i) => i + 1),
          format: (v) => (Number.isInteger(v) ? String(v) : ""),
        },
        y: { ...range(final.flatMap((row) => row.samples_us)), name: "time", format: micros },
        layers: [
          {
            type: "points",
            at: final.flatMap((row, i) =>
              row.samples_us.map((us, k) => ({
                x: i + 1 + spread(row, k),
                y: us,
                r: 2,
                class: `device${devices.indexOf(`${row.agent}/${row.device}`) % 4}`,
                label: `process ${row.process} on ${deviceName(row)}: ${micros(us)}`,
              })),
            ),
          },
          ...final.map((row, i) => ({
            type: "line",
            class: "line median",
            at: [
              { x: i + 0.65, y: median(row.samples_us) },
              { x: i + 1.35, y: median(row.samples_us) },
            ],
          })),
        ],
        table: {
          columns: ["process", "device", "samples", "median", "baseline's median"],
          rows: final.map((row) => [
            row.process,
            deviceName(row),
            row.samples_us.length,
            micros(median(row.samples_us)),
            micros(median(row.baseline_us)),
          ]),
        },
      }),
  );
}

function configColumns(job, select) {
  const number = (name, label, of, show, more = {}) => ({ name, label, number: true, value: of, cell: (row) => show(of(row)), ...more });
  return [
    {
      name: "config",
      label: "config",
      value: (row) => row.config,
      cell: (row) => [
        h(
          "a",
          {
            href: path(["job", job.job], { config: row.config }),
            on: {
              click: (event) => {
                event.preventDefault();
                select(row.config);
              },
            },
          },
          row.config,
        ),
        row.isWinner && h("b", { class: "tag" }, "winner"),
        row.isBaseline && h("span", { class: "tag" }, "baseline"),
        row.equivalent && !row.isWinner && h("span", { class: "tag" }, "equivalent"),
      ],
    },
    {
      name: "outcome",
      label: "outcome",
      value: (row) => row.outcome,
      cell: (row) => h("span", { title: row.detail, class: row.outcome === "correct" ? null : "bad" }, row.outcome),
    },
    number(
      "us",
      "time",
      (row) => (Number.isFinite(row.us) ? row.us : null),
      (us) => (us === null ? "–" : micros(us)),
    ),
    {
      name: "interval",
      label: "from – to",
      number: true,
      wide: true,
      cell: (row) => (Number.isFinite(row.us) ? `${micros(row.low)} – ${micros(row.high)}` : "–"),
    },
    { name: "stage", label: "stage", value: (row) => row.stage, wide: true },
    number("n", "samples", (row) => row.n, integer, { wide: true }),
    {
      name: "values",
      label: "values",
      value: (row) => members(row.values),
      className: "code",
      cell: (row) =>
        row.outcome === "correct" || !row.detail
          ? members(row.values)
          : [members(row.values), h("span", { class: "quiet block" }, row.detail.slice(0, 200))],
    },
  ];
}

function reproduce(job) {
  const { recompute, devices, assembly, ttgir, submitAgain } = COMMANDS;
  const hasCode = job.build || job.winner?.resources?.some((each) => each.object && each.config === job.winner.config);
  const printed = [recompute, job.winner && devices, job.winner && hasCode && assembly, job.winner && job.build && ttgir, submitAgain];
  return panel(
    "Reproduce it",
    note(
      "Decides again from the stored samples, shows the winner on each device and its code, and tunes the key once more in a run of its own:",
    ),
    commands(printed.filter(Boolean).map((command) => command(job))),
    note(
      "space ",
      h("span", { class: "code" }, shortDigest(job.space_digest)),
      job.build && [", build ", h("span", { class: "code" }, shortDigest(job.build))],
      `, seed ${job.seed}`,
    ),
  );
}

export async function show({ main, segments: [id], query, signal }) {
  let job = await get(`v1/jobs/${encodeURIComponent(id)}`, {}, signal),
    chosen = query.has("config") ? Number(query.get("config")) : null,
    data = null;
  const names = new Map(),
    measurements = [];
  let after = null,
    drawnState = null;

  const top = h("div"),
    charts = h("div", { class: "charts" }),
    samples = h("div"),
    outcomePlace = h("div"),
    pairs = pairsPanel(job),
    words = h("div", { class: "words", role: "status" }),
    code = h("div"),
    reproducePlace = h("div");
  const list = table({
    label: "Configs",
    key: (row) => row.config,
    columns: configColumns(job, select),
    sort: { name: "us", down: false },
    empty: "Nothing is measured yet.",
  });
  const heading = h("h1"),
    listed = panel("Configs", list.element),
    events = panel("Events", h("ol", { class: "events" }));
  put(
    main,
    heading,
    words,
    top,
    panel("Outcomes", outcomePlace),
    charts,
    h("div", { class: "beside" }, pairs.element, samples),
    listed,
    code,
    reproducePlace,
    events,
  );
  if (pairs.element) pairs.element.hidden = true;

  function select(config) {
    chosen = config;
    history.replaceState(null, "", path(["job", id], { config }));
    put(samples, samplesPanel(job, data, config, names));
    samples.scrollIntoView({ block: "nearest" });
  }

  async function cancel(button) {
    if (!(await confirm(`Cancel job ${id}?`, [`${job.name}, ${members(job.key)}. What was measured stays.`], "Cancel the job", "Keep the job"))) return;
    button.disabled = true;
    try {
      ({ json: job } = await call("DELETE", `v1/jobs/${id}${may("agent_drain") ? "?any=true" : ""}`));
    } catch (error) {
      put(words, h("p", { class: "problem" }, error.message));
      return;
    }
    draw();
  }

  function draw() {
    const cancelButton =
      isOpen(job) &&
      may("job_delete") &&
      h("button", { type: "button", class: "small danger", on: { click: (event) => cancel(event.target) } }, "Cancel");
    put(heading, `Job ${job.job} `, state(job.state), " ", cancelButton);
    const sentences = inWords(job)
      .filter((text) => text.trim())
      .join("\n");
    if (words.dataset.text !== sentences) {
      const [first, ...others] = sentences.split("\n");
      put(words, h("p", { class: "lead" }, first), note(others.join(" ")));
    }
    words.dataset.text = sentences;
    put(
      top,
      job.winner?.config_values && h("p", { class: "code winner-values" }, members(job.winner.config_values)),
      head(job),
      job.flagged &&
        h(
          "p",
          { class: "problem" },
          `Flagged: job ${job.flagged.job} measured this winner slower than the default, by a factor of ${digits(job.flagged.ratio, 4)}.`,
        ),
      job.quarantined && h("p", { class: "problem" }, `Quarantined: ${job.quarantined}`),
      job.measurements_removed_at &&
        note("Its measurements were removed ", when(job.measurements_removed_at), ", but for the final of a served winner."),
    );
    put(outcomePlace, outcomes(job));
    if (drawnState !== job.state) {
      put(code, codePanel(job, signal));
      put(reproducePlace, reproduce(job));
    }
    drawnState = job.state;
    if (!measurements.length) return;

    data = summarise(job, measurements);
    list.set(data.configs);
    // Leave the charts alone while a reader has a data table open.
    if (data.timed.length && !charts.querySelector("details[open]")) {
      put(charts, timesChart(job, data, select), trialsChart(data));
      pairs.set(data);
      if (pairs.element) pairs.element.hidden = false;
      put(samples, samplesPanel(job, data, chosen ?? job.winner?.config ?? data.best.config, names));
    }
  }

  async function readMeasurements() {
    const before = measurements.length;
    for await (const items of pages(`v1/jobs/${id}/measurements`, { limit: 1000, after }, signal)) {
      measurements.push(...items);
      if (items.length) after = items.at(-1).id;
    }
    return measurements.length > before;
  }

  let lastEvent = 0;
  async function readEvents(wait) {
    const page = await get(`v1/jobs/${id}/events`, { after: lastEvent, wait, limit: 1000 }, signal);
    const place = events.querySelector("ol");
    for (const event of page.items) {
      place.append(
        h(
          "li",
          {},
          h("span", { class: "quiet", title: clock(event.at) }, clock(event.at).slice(11, 16), " "),
          h("b", {}, event.kind),
          " ",
          h("span", { class: "code" }, members(event.detail)),
        ),
      );
      lastEvent = event.event;
    }
    return page.items.length > 0;
  }

  // Names of the nodes that measured it, for the samples; ids do without them.
  async function readNames() {
    for await (const items of pages("v1/agents", { limit: 1000, all: true }, signal)) items.forEach((agent) => names.set(agent.agent, agent.name));
  }

  await Promise.all([readMeasurements(), readEvents(0), readNames().catch(() => {})]);
  draw();
  if (!isOpen(job)) return;

  // Events come by a long poll; measurements between two events are asked for.
  const isLive = () => isOpen(job) && !signal.aborted;
  const follow = async () => {
    while (isLive()) {
      try {
        if (!(await readEvents(30))) continue;
        job = await get(`v1/jobs/${id}`, {}, signal);
        if (job.handed_back) draw();
      } catch (error) {
        if (signal.aborted || (error instanceof Problem && error.status < 500)) return;
        await new Promise((resolve) => {
          setTimeout(resolve, 2000);
        });
      }
    }
  };
  const ended = new AbortController();
  signal.addEventListener("abort", () => ended.abort());
  follow();
  await repeat(2500, ended.signal, async () => {
    const hasNew = await readMeasurements(),
      was = job.measured;
    if (isOpen(job)) job = await get(`v1/jobs/${id}`, {}, signal);
    if (hasNew || job.measured !== was || !isOpen(job)) draw();
    if (!isOpen(job)) ended.abort();
  });
}
