// Jobs: campaigns with their progress, and the list of jobs with filters, newest first, read in
// pages.

import { all, call, get, may, repeat } from "./api.js";
import { confirm, h, link, note, panel, path, put, state, when } from "./dom.js";
import { deviceTime, duration, integer, members, plural, shortDigest } from "./format.js";
import { table } from "./table.js";

export const title = () => "Jobs";

const STATES = ["queued", "running", "done", "failed", "cancelled"];
const PAGE = 200,
  NEWEST = 20,
  RETRIES = 10000, // jobs that one request may name
  EMPTY_PAGES = 5; // of a search, before it waits for a click

// The share of jobs that ended, by how they ended.
function progress(row, total) {
  const ended = row.done + row.failed + row.cancelled;
  const parts = h(
    "span",
    { class: "progress", role: "img", "aria-label": `${ended} of ${total} ended` },
    ["done", "failed", "cancelled", "running"].map((name) => {
      if (!row[name]) return null;
      const part = h("span", { class: `state-${name}` });
      part.style.width = `${(100 * row[name]) / Math.max(1, total)}%`;
      return part;
    }),
  );
  return h("span", { class: "progress-cell" }, parts, h("span", {}, `${integer(ended)} of ${integer(total)}`));
}

function campaignColumns() {
  const number = (name, label, of, show = integer, more = {}) => ({
    name,
    label,
    number: true,
    value: of,
    cell: (row) => show(of(row)),
    ...more,
  });
  return [
    {
      name: "tag",
      label: "tag",
      value: (row) => row.tag,
      cell: (row) => link(["jobs"], row.tag, { tag: row.tag, run: row.run, by: "campaign" }),
    },
    { name: "run", label: "run", value: (row) => row.run, cell: (row) => row.run || h("span", { class: "quiet" }, "–") },
    {
      name: "progress",
      label: "ended",
      value: (row) => (row.done + row.failed + row.cancelled) / Math.max(1, row.jobs),
      cell: (row) => progress(row, row.jobs),
    },
    number(
      "failed",
      "failed",
      (row) => row.failed,
      (n) => (n ? h("b", { class: "bad" }, integer(n)) : "0"),
    ),
    number("to_go", "time to go", (row) => row.to_go_s, duration),
    number("device", "device time", (row) => row.device_seconds, deviceTime),
    number("measurements", "configs measured", (row) => row.measurements, integer, { wide: true }),
    {
      name: "owners",
      label: "submitted by",
      wide: true,
      value: (row) => row.owners.join(", "),
      cell: (row) => row.owners.join(", ") || "–",
    },
    {
      name: "kernels",
      label: "kernels",
      wide: true,
      value: (row) => row.kernels.join(", "),
      cell: (row) => row.kernels.slice(0, 3).join(", ") + (row.kernels.length > 3 ? `, ${row.kernels.length - 3} more` : ""),
    },
    { name: "began", label: "began", number: true, wide: true, value: (row) => row.first_ms, cell: (row) => when(row.first_ms) },
  ];
}

function jobColumns() {
  return [
    { name: "job", label: "job", value: (row) => Number(row.job), cell: (row) => link(["job", row.job], row.job) },
    {
      name: "state",
      label: "state",
      value: (row) => row.state,
      cell: (row) => [state(row.state), row.state === "running" && h("span", { class: "quiet" }, ` ${row.stage}`)],
    },
    { name: "name", label: "kernel", value: (row) => row.name, cell: (row) => link(["kernel", row.kernel], row.name) },
    { name: "key", label: "key", value: (row) => members(row.key), className: "code" },
    {
      name: "measured",
      label: "configs",
      number: true,
      value: (row) => row.measured / Math.max(1, row.configs),
      cell: (row) => `${integer(row.measured)} of ${integer(row.configs)}`,
    },
    {
      name: "winner",
      label: "winner",
      wide: true,
      value: (row) => row.winner?.config,
      className: "code",
      cell: (row) => (row.winner ? members(row.winner.config_values) : row.reason || ""),
    },
    {
      name: "device",
      label: "device time",
      number: true,
      value: (row) => row.spent_device_seconds,
      cell: (row) => deviceTime(row.spent_device_seconds),
    },
    { name: "tag", label: "tag", wide: true, value: (row) => row.tag },
    { name: "run", label: "run", wide: true, value: (row) => row.run },
    { name: "by", label: "by", wide: true, value: (row) => row.submitted_by, cell: (row) => row.submitted_by || "–" },
    {
      name: "age",
      label: "submitted",
      number: true,
      wide: true,
      value: (row) => -Date.parse(row.created_at),
      cell: (row) => when(row.created_at),
    },
  ];
}

export async function show({ main, query, signal }) {
  const run = query.get("run"),
    text = query.get("q") || "";
  // A campaign is a tag and a run, which may be empty: "run=" alone would not say so.
  const isCampaign = query.get("by") === "campaign";
  const filter = {
    state: query.get("state") || null,
    tag: query.get("tag") || null,
    kernel: query.get("kernel") || null,
    run: isCampaign ? run || "" : run || null,
    contains: text || null,
  };

  const list = table({ label: "Jobs", key: (row) => row.job, columns: jobColumns(), empty: "No job fits." });
  const count = h("p", { class: "note", role: "status" }),
    said = h("p", { class: "note", role: "status" }), // what came of a button; it stays
    more = h("button", { type: "button", hidden: true }, `Read ${PAGE} more`);
  const everything = h("button", { type: "button", hidden: true }, "Read all");
  const field = (name, label, value, hint) => [
    h("label", { for: name }, label),
    h("input", { id: name, name, value: value || "", placeholder: hint, autocomplete: "off" }),
  ];
  const form = h(
    "form",
    {
      class: "filter",
      role: "search",
      on: {
        submit(event) {
          event.preventDefault();
          const given = new FormData(form);
          location.hash = path(["jobs"], {
            state: given.get("state"),
            tag: given.get("tag").trim(),
            run: given.get("run").trim(),
            q: given.get("q").trim(),
            kernel: filter.kernel,
          });
        },
      },
    },
    h("label", { for: "state" }, "State"),
    h(
      "select",
      { id: "state", name: "state" },
      h("option", { value: "" }, "all"),
      STATES.map((each) => h("option", { value: each, selected: each === filter.state }, each)),
    ),
    field("tag", "Tag", filter.tag, "any"),
    field("run", "Run", run, "any"),
    field("q", "Contains", text, "kernel, key, person"),
    h("button", { type: "submit" }, "Show"),
    [...query.keys()].length > 0 && h("a", { href: "#/jobs", class: "clear" }, "Show all"),
  );

  const campaigns =
    may("campaign_list") &&
    table({ label: "Campaigns", key: (row) => `${row.tag}\n${row.run}`, columns: campaignColumns(), empty: "No campaign fits." });
  const button = (operation, look, text) => isCampaign && may(operation) && h("button", { type: "button", class: look, hidden: true }, text);
  const end = button("job_cancel", "small danger", "Cancel what is open"),
    retry = button("job_retry", "small", "Retry what failed");
  put(
    main,
    h("h1", {}, isCampaign ? ["Campaign ", h("span", { class: "code" }, filter.tag, run && ` / ${run}`)] : "Jobs"),
    campaigns &&
      panel(
        "Campaigns",
        note("A campaign is what was submitted with one tag and one run."),
        campaigns.element,
        h("p", { class: "actions" }, retry, end),
        said,
      ),
    panel(
      "List",
      form,
      filter.kernel && note("Only of the kernel ", link(["kernel", filter.kernel], shortDigest(filter.kernel)), "."),
      count,
      list.element,
      h("p", { class: "actions" }, more, " ", everything),
    ),
  );

  const known = new Map();
  let next = null, // where the pages that were read end
    turnsTo = null, // where the next turn reads again what is shown
    isReading = false;
  function draw() {
    const rows = [...known.values()].sort((a, b) => b.job - a.job);
    list.set(rows);
    more.hidden = everything.hidden = next === null;
    count.textContent = `${plural(rows.length, "job")}${next === null ? "" : ", the newest; there are more"}`;
  }

  const read = (values) => get("v1/jobs", { ...filter, ...values }, signal);
  const keep = (page) => page.items.forEach((job) => known.set(job.job, job));

  // A page of a search may have no job where older ones have the text.
  async function readMore(pages) {
    if (isReading) return;
    isReading = true;
    try {
      for (let left = pages, empty = 0; left > 0 && empty < EMPTY_PAGES && next !== null && !signal.aborted; ) {
        const page = await read({ limit: pages > 1 ? 1000 : PAGE, after: next });
        keep(page);
        next = page.next;
        if (page.items.length > 0) left--;
        else if (pages === 1) empty++;
        draw();
      }
    } finally {
      isReading = false;
    }
  }

  // New jobs and running ones in each turn, and a page of the others, in which jobs that do not fit
  // any more, such as queued ones that were cancelled, leave the list or get their new state.
  async function follow() {
    const from = turnsTo === null ? Infinity : Number(turnsTo),
      page = await read({ limit: PAGE, after: turnsTo }),
      to = Number(page.next ?? 0),
      still = new Set(page.items.map((job) => job.job));
    for (const id of known.keys()) if (Number(id) < from && Number(id) >= to && !still.has(id)) known.delete(id);
    keep(page);
    let oldest = Infinity;
    for (const id of known.keys()) oldest = Math.min(oldest, Number(id));
    if (turnsTo !== null) keep(await read({ limit: NEWEST }));
    turnsTo = page.next !== null && oldest < to ? page.next : null;
    if (!filter.state || filter.state === "running") {
      const running = await read({ state: "running", limit: PAGE });
      keep(running);
      const runs = new Set(running.items.map((job) => job.job));
      const gone = [...known.values()].filter((job) => job.state === "running" && !runs.has(job.job));
      for (const { job } of running.next === null ? gone.slice(0, NEWEST) : []) {
        const now = await get(`v1/jobs/${job}`, {}, signal);
        if (filter.state && now.state !== filter.state) known.delete(job);
        else known.set(job, now);
      }
    }
  }

  more.addEventListener("click", () => readMore(1));
  everything.addEventListener("click", () => readMore(Infinity));
  // Runs what a button does; while it runs nobody presses the button again.
  async function act(pressed, step) {
    pressed.disabled = true;
    said.textContent = "";
    try {
      await step();
    } catch (error) {
      said.textContent = error.message;
    }
    pressed.disabled = false;
  }
  const name = `${filter.tag}${run ? ` / ${run}` : ""}`,
    any = may("agent_drain"), // others' jobs need an operator
    post = async (route, body) => (await call("POST", route, { body })).json;

  async function cancelOpen() {
    const cancel = (more) => post("v1/jobs/cancel", { tag: filter.tag, run: run || "", any, ...more });
    const open = await cancel({ dry_run: true }),
      question = `${plural(open.cancelled, "job")} of ${name} will be cancelled. What was measured stays.`;
    if (!open.cancelled || !(await confirm("Cancel this campaign?", [question], "Cancel the jobs", "Keep the jobs"))) return;
    for (let done = 0, more = true; more; ) {
      const answer = await cancel({ up_to: open.newest }); // not those that were submitted since the question
      more = answer.more;
      said.textContent = `${(done += answer.cancelled)} of ${open.cancelled} cancelled`;
    }
  }

  // By their ids: what a person cancelled is not tried again.
  async function retryFailed() {
    const failed = await all("v1/jobs", { tag: filter.tag, run: filter.run, state: "failed" }, signal),
      jobs = failed.slice(0, RETRIES).map((job) => job.job),
      question = `${plural(jobs.length, "job")} of ${name} failed. A new job is queued for each; the old ones keep their measurements.`;
    if (!jobs.length || !(await confirm("Retry what failed?", [question], "Retry the jobs", "Leave them"))) return;
    const refused = [];
    for (let after = null, isMore = true; isMore; ) {
      const answer = await post("v1/jobs/retry", { jobs, any, ...(after && { after }) });
      refused.push(...answer.refused);
      after = answer.next;
      isMore = after !== null;
    }
    said.textContent = refused.length
      ? `${integer(refused.length)} of ${plural(jobs.length, "job")} refused; job ${refused[0].job}: ${refused[0].reason}`
      : `${plural(jobs.length, "job")} tried again`;
  }
  if (end) end.addEventListener("click", () => act(end, cancelOpen));
  if (retry) retry.addEventListener("click", () => act(retry, retryFailed));

  async function readCampaigns() {
    const { items } = await get("v1/campaigns", { tag: filter.tag, run: filter.run, limit: 50 }, signal);
    campaigns.set(items);
    const sum = (...names) => items.reduce((n, row) => n + names.reduce((m, each) => m + row[each], 0), 0);
    if (end) end.hidden = !(sum("jobs") - sum("done", "failed", "cancelled"));
    if (retry) retry.hidden = !sum("failed");
  }

  let isFirst = true;
  await repeat(5000, signal, async () => {
    if (isFirst) {
      const page = await read({ limit: PAGE });
      keep(page);
      next = page.next;
      isFirst = false;
      if (known.size === 0) await readMore(1);
    } else await follow();
    draw();
    if (campaigns) await readCampaigns();
  });
}
