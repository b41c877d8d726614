// One release: what it changes against another, which channels point at it, their history and
// signatures, who fetched it, and moving a channel to it.

import { all, call, get, immutable, may, mayMove, pages, Problem, query as queryText } from "./api.js";
import { COMMANDS } from "./commands.js";
import { commands, confirm, facts, h, link, note, panel, path, put, when } from "./dom.js";
import { ago, clock, environment, integer, members, micros, plural, shortDigest, times } from "./format.js";
import { difference, same, winnersOf } from "./release_data.js";
import { table } from "./table.js";

export const title = ([digest]) => `Release ${shortDigest(digest)}`;

const VERDICTS = 60; // of so many changed winners the jobs are read

const time = (winner) => (winner.ms.length ? winner.ms[0] * 1000 : null);

// How much faster the new winner is, by the times that the two releases have.
const faster = (row) => (time(row.from) && time(row.to) ? time(row.from) / time(row.to) : null);

// In the new winner's job: its time over the old config's, with the interval, where both were
// finalists, or the old one was the baseline.
function compared(row, job) {
  const verdict = job?.winner?.verdict;
  if (!verdict) return null;
  if (row.from.ordinal === job.baseline)
    return { low: 1 / verdict.baseline_upper, high: 1 / verdict.baseline_lower, ratio: 1 / verdict.baseline_ratio };
  const finalist = verdict.finalists.find((each) => each.config === row.from.ordinal);
  return finalist && Number.isFinite(finalist.winner_upper)
    ? { low: 1 / finalist.winner_upper, high: 1 / finalist.winner_lower, ratio: 1 / finalist.winner_ratio }
    : null;
}

function changesTable() {
  return table({
    label: "Changed winners",
    key: (row) => JSON.stringify([row.to.kernel, row.to.key]),
    sort: { name: "faster", down: true },
    empty: "No config changes.",
    columns: [
      { name: "kernel", label: "kernel", value: (row) => row.to.name, cell: (row) => link(["kernel", row.to.kernel], row.to.name) },
      {
        name: "key",
        label: "key",
        value: (row) => members(row.to.key),
        className: "code",
        cell: (row) => (row.to.job ? link(["job", row.to.job], members(row.to.key)) : members(row.to.key)),
      },
      { name: "from", label: "from", value: (row) => members(row.from.config), className: "code" },
      { name: "to", label: "to", value: (row) => members(row.to.config), className: "code" },
      { name: "before", label: "before", number: true, value: (row) => time(row.from), cell: (row) => micros(time(row.from)) },
      { name: "after", label: "after", number: true, value: (row) => time(row.to), cell: (row) => micros(time(row.to)) },
      {
        name: "faster",
        label: "faster",
        number: true,
        value: (row) => row.measured?.ratio ?? faster(row),
        cell: (row) => {
          const gain = row.measured?.ratio ?? faster(row);
          return gain === null ? "–" : h("span", { class: gain >= 1 ? "good" : "bad" }, `${times(gain)} ×`);
        },
      },
      {
        name: "interval",
        label: "95 % interval",
        number: true,
        cell: (row) =>
          row.measured
            ? `${times(row.measured.low)} – ${times(row.measured.high)}`
            : h(
                "span",
                { class: "quiet", title: "The two were not measured side by side; the times are of different campaigns." },
                "not side by side",
              ),
      },
    ],
  });
}

const plainList = (winners) =>
  h(
    "ul",
    { class: "plain" },
    winners
      .slice(0, 200)
      .map((each) => h("li", {}, `${each.name} `, h("span", { class: "code" }, `${members(each.key)} → ${members(each.config)}`))),
    winners.length > 200 && h("li", {}, `and ${winners.length - 200} more`),
  );

async function drawChanges(place, from, to, signal) {
  const [old, now] = await Promise.all([immutable(`v1/releases/${from}`, signal), immutable(`v1/releases/${to}`, signal)]);
  const changes = difference(old, now),
    rows = changes.changed.map((each) => ({ ...each, measured: null }));
  const list = changesTable(),
    sum = note();
  const words = () => {
    const gains = rows.map((row) => row.measured?.ratio ?? faster(row)).filter(Boolean);
    const mean = gains.length ? Math.exp(gains.reduce((n, each) => n + Math.log(each), 0) / gains.length) : null,
      sure = rows.filter((row) => row.measured);
    return `${plural(rows.length, "config")} changed, ${changes.added.length} added, ${changes.removed.length} removed, ${changes.retimed.length} measured again, ${changes.same} the same.${mean ? ` The changed keys are ${times(mean)} times as fast (geometric mean).` : ""}${
      sure.length
        ? ` Measured side by side: ${sure.length}; of these ${sure.filter((row) => row.measured.low > 1).length} surely faster, ${sure.filter((row) => row.measured.high < 1).length} surely slower.`
        : ""
    }`;
  };
  list.set(rows);
  sum.textContent = words();
  const again = changes.retimed.length > 0 && changesTable();
  if (again) again.set(changes.retimed.map((each) => ({ ...each, measured: null })));
  put(
    place,
    sum,
    list.element,
    changes.added.length > 0 && h("details", {}, h("summary", {}, `Added: ${changes.added.length}`), plainList(changes.added)),
    again && h("details", {}, h("summary", {}, `The same config, measured again: ${changes.retimed.length}`), again.element),
    changes.removed.length > 0 && h("details", {}, h("summary", {}, `Removed: ${changes.removed.length}`), plainList(changes.removed)),
  );
  for (const row of rows.slice(0, VERDICTS)) {
    if (signal.aborted || !row.to.job) continue;
    row.measured = compared(row, await get(`v1/jobs/${row.to.job}`, {}, signal).catch(() => null));
  }
  if (signal.aborted) return;
  list.set(rows);
  sum.textContent = words();
}

// Moves a channel to the release by the ordinary route. If-Match is the entry that was shown, so
// that a move by another person meanwhile is not undone.
async function move(channel, digest, say, done) {
  const way = `v1/channels/${encodeURIComponent(channel)}`;
  let present = null;
  try {
    present = await call("GET", `${way}${queryText({ release: digest })}`);
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 404) return say(error.message);
  }
  const entry = present?.json;
  if (entry?.release === digest) return say(`${channel} points at this release already.`);

  const lines = [
    entry
      ? `${channel} (tag ${entry.tag}) points at ${shortDigest(entry.release)}, moved ${ago(entry.updated_at)}.`
      : `${channel} has no entry for this environment and tag yet.`,
    `Afterwards it points at ${shortDigest(digest)}. Containers that start from then on get this release.`,
  ];
  if (entry) {
    const [old, now] = await Promise.all([immutable(`v1/releases/${entry.release}`), immutable(`v1/releases/${digest}`)]),
      changes = difference(old, now);
    lines.push(`${plural(changes.changed.length, "config")} changed, ${changes.added.length} added, ${changes.removed.length} removed.`);
  }
  if (!(await confirm(`Move ${channel} to this release?`, lines, "Move the channel", "Leave the channel"))) return undefined;
  try {
    await call("PUT", way, { body: { release: digest }, headers: entry ? { "If-Match": present.etag } : { "If-None-Match": "*" } });
  } catch (error) {
    return say(error.status === 412 ? "Another person moved the channel meanwhile; look at it again." : error.message);
  }
  return done(`${channel} points at this release now.`);
}

function movePanel(digest, names, said, done) {
  const allowed = names.filter(mayMove);
  if (!may("channel_put")) return null;
  const select = h(
    "select",
    { id: "channel" },
    allowed.map((name) => h("option", { value: name, selected: name === "stable" }, name)),
  );
  const other = h("input", { id: "other-channel", placeholder: "another channel", autocomplete: "off" }),
    message = h("p", { role: "status", class: said ? "good" : null }, said || "");
  const button = h("button", { type: "submit", class: "primary" }, "Promote or roll back…");
  return panel(
    "Move a channel to this release",
    h(
      "form",
      {
        class: "filter",
        on: {
          async submit(event) {
            event.preventDefault();
            const channel = other.value.trim() || select.value;
            if (!channel) return;
            button.disabled = true;
            message.className = "";
            message.textContent = "";
            try {
              await move(
                channel,
                digest,
                (text) => {
                  message.textContent = text;
                  message.className = "problem";
                },
                done,
              );
            } finally {
              button.disabled = false;
            }
          },
        },
      },
      allowed.length > 0 && [h("label", { for: "channel" }, "Channel"), select],
      h("label", { for: "other-channel" }, "or"),
      other,
      button,
    ),
    message,
    note("Going to an older release is a move as well: the counter grows. Where entries must be signed, sign in a terminal:"),
    commands([COMMANDS.promote(digest)]),
  );
}

function historyTable() {
  return table({
    label: "Moves of the channel",
    key: (row) => `${row.channel} ${row.counter}`,
    empty: "It was never moved.",
    sort: { name: "counter", down: true },
    columns: [
      { name: "counter", label: "move", value: (row) => row.counter },
      {
        name: "release",
        label: "release",
        value: (row) => row.release,
        cell: (row) => link(["release", row.release], shortDigest(row.release)),
      },
      { name: "by", label: "moved by", value: (row) => row.moved_by || "–" },
      { name: "at", label: "moved", value: (row) => -Date.parse(row.updated_at), cell: (row) => when(row.updated_at) },
      {
        name: "signed",
        label: "signed by",
        value: (row) => row.signatures.length,
        className: "code",
        cell: (row) => row.signatures.map((each) => shortDigest(each.key)).join(", ") || h("span", { class: "quiet" }, "–"),
      },
      {
        name: "expires",
        label: "expires",
        wide: true,
        value: (row) => row.expires || "",
        cell: (row) => (row.expires ? clock(row.expires) : "never"),
      },
    ],
  });
}

// What a row of fetches was answered with, in words.
const KINDS = { entry: "the channel's entry", choices: "choices", release: "the release itself", files: "files" };

function fetchesTable() {
  return table({
    label: "Fetches of the release",
    key: (row) => JSON.stringify([row.fetched_by_id, row.fetched_by, row.kind, row.channel, row.rule]),
    empty: "Nobody fetched it yet; a server stores what it counted every minute.",
    sort: { name: "last", down: false },
    columns: [
      { name: "by", label: "fetched by", value: (row) => row.fetched_by },
      { name: "kind", label: "what", value: (row) => KINDS[row.kind] || row.kind },
      { name: "channel", label: "channel", value: (row) => row.channel || "", cell: (row) => row.channel || "by its digest" },
      { name: "rule", label: "rule", value: (row) => row.rule || "", cell: (row) => row.rule || "–" },
      { name: "requests", label: "requests", number: true, value: (row) => row.requests, cell: (row) => integer(row.requests) },
      { name: "first", label: "first", wide: true, value: (row) => -Date.parse(row.first_at), cell: (row) => when(row.first_at) },
      { name: "last", label: "last", value: (row) => -Date.parse(row.last_at), cell: (row) => when(row.last_at) },
    ],
  });
}

export async function show({ main, segments: [digest], query, signal, said }) {
  const release = await immutable(`v1/releases/${encodeURIComponent(digest)}`, signal),
    winners = winnersOf(release);
  const entries = await all("v1/channels", {}, signal),
    here = entries.filter((each) => each.release === digest);
  const matching = entries.filter(
    (each) =>
      each.tag === release.tag && same(each.environment, release.environment) && each.regime === release.regime,
  );
  const listed = [];
  for await (const items of pages("v1/releases", { limit: 1000 }, signal)) listed.push(...items);
  const mine = listed.find((each) => each.release === digest);
  const alike = listed
    .filter((each) => each.release !== digest && each.tag === release.tag && same(each.environment, release.environment))
    .sort((a, b) => Date.parse(b.created_at) - Date.parse(a.created_at));

  const changes = h("div"),
    histories = h("div"),
    fetched = fetchesTable();
  const against =
    query.get("against") || alike.find((each) => Date.parse(each.created_at) <= Date.parse(mine?.created_at))?.release || alike[0]?.release;
  const select = h(
    "select",
    {
      id: "against",
      on: {
        change: () => {
          location.hash = path(["release", digest], { against: select.value });
        },
      },
    },
    alike.map((each) =>
      h(
        "option",
        { value: each.release, selected: each.release === against },
        `${shortDigest(each.release)}, ${plural(each.winners, "winner")}, ${ago(each.created_at)}`,
      ),
    ),
  );
  const content = table({
    label: "Winners",
    key: (row) => JSON.stringify([row.kernel, row.key]),
    columns: [
      { name: "kernel", label: "kernel", value: (row) => row.name, cell: (row) => link(["kernel", row.kernel], row.name) },
      {
        name: "key",
        label: "key",
        value: (row) => members(row.key),
        className: "code",
        cell: (row) => (row.job ? link(["job", row.job], members(row.key)) : members(row.key)),
      },
      { name: "config", label: "config", value: (row) => members(row.config), className: "code" },
      { name: "time", label: "time", number: true, value: time, cell: (row) => micros(time(row)) },
      { name: "origin", label: "origin", wide: true, value: (row) => row.origin },
    ],
  });
  content.set(winners);
  const names = [...new Set([...entries.map((each) => each.channel), "stable"])].sort();
  put(
    main,
    h("h1", {}, "Release ", h("span", { class: "code" }, shortDigest(digest))),
    facts([
      ["Digest", h("span", { class: "code" }, digest)],
      ["Environment", environment(release.environment)],
      ["Tag", release.tag],
      ["Winners", integer(winners.length)],
      ["Made", mine && `${ago(mine.created_at)}${mine.made_by ? ` by ${mine.made_by}` : ""}`],
      ["Channels", here.map((each) => each.channel).join(", ") || "none points at it"],
    ]),
    panel(
      "What it changes",
      alike.length
        ? [h("form", { class: "filter" }, h("label", { for: "against" }, "Against"), select), changes]
        : note("There is no other release of this environment and tag."),
    ),
    movePanel(digest, names, said, (text) => show({ main, segments: [digest], query, signal, said: text })),
    panel("History", histories),
    panel("Fetched by", fetched.element),
    panel("Winners", content.element),
  );

  fetched.set(await all(`v1/releases/${encodeURIComponent(digest)}/fetches`, {}, signal));
  if (matching.length) {
    for (const name of new Set(matching.map((each) => each.channel))) {
      const list = historyTable();
      list.set(
        await all(
          `v1/channels/${encodeURIComponent(name)}/entries`,
          { ...release.environment, tag: release.tag, regime: release.regime },
          signal,
        ),
      );
      histories.append(h("h3", {}, name), list.element);
    }
  } else put(histories, note("No channel has an entry for this environment and tag."));
  if (against) await drawChanges(changes, against, digest, signal);
}
