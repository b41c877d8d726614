// Channels and what they point at, proposals that wait, and the releases.

import { all, get, may, pages } from "./api.js";
import { COMMANDS } from "./commands.js";
import { h, link, note, panel, put, state, when } from "./dom.js";
import { environment, integer, plural, shortDigest } from "./format.js";
import { table } from "./table.js";

export const title = () => "Releases";

export async function show({ main, signal }) {
  const channels = table({
    label: "Channels",
    key: (row) => JSON.stringify([row.channel, row.environment, row.tag, row.regime]),
    empty: `No channel points at a release yet: ${COMMANDS.publishTo()}.`,
    columns: [
      { name: "channel", label: "channel", value: (row) => row.channel, cell: (row) => h("b", {}, row.channel) },
      { name: "tag", label: "tag", value: (row) => row.tag },
      {
        name: "release",
        label: "release",
        value: (row) => row.release,
        cell: (row) => link(["release", row.release], shortDigest(row.release)),
      },
      { name: "counter", label: "moves", number: true, value: (row) => row.counter },
      { name: "signed", label: "signatures", number: true, value: (row) => row.signatures.length },
      { name: "at", label: "moved", number: true, value: (row) => -Date.parse(row.updated_at), cell: (row) => when(row.updated_at) },
      { name: "environment", label: "environment", wide: true, value: (row) => environment(row.environment) },
    ],
  });
  const releases = table({
    label: "Releases",
    key: (row) => row.release,
    empty: `No release was made yet: ${COMMANDS.publish()}.`,
    sort: { name: "at", down: false },
    columns: [
      {
        name: "release",
        label: "release",
        value: (row) => row.release,
        cell: (row) => link(["release", row.release], shortDigest(row.release)),
      },
      { name: "tag", label: "tag", value: (row) => row.tag },
      { name: "winners", label: "winners", number: true, value: (row) => row.winners, cell: (row) => integer(row.winners) },
      { name: "by", label: "made by", value: (row) => row.made_by || "–" },
      { name: "at", label: "made", number: true, value: (row) => -Date.parse(row.created_at), cell: (row) => when(row.created_at) },
      { name: "environment", label: "environment", wide: true, value: (row) => environment(row.environment) },
    ],
  });
  const proposals = h("div"),
    count = note("Reading…");
  put(main, h("h1", {}, "Releases"), panel("Channels", channels.element), proposals, panel("All releases", count, releases.element));
  channels.set(await all("v1/channels", {}, signal));

  if (may("proposal_list")) {
    const open = (await get("v1/proposals", { limit: 20 }, signal)).items.filter((each) => each.state === "open");
    if (open.length)
      put(
        proposals,
        panel(
          "Proposals that wait",
          h(
            "ul",
            { class: "plain" },
            open.map((each) =>
              h(
                "li",
                {},
                link(["release", each.release], shortDigest(each.release), { channel: each.channel }),
                " for ",
                h("b", {}, each.channel),
                `: ${each.added} added, ${each.changed} changed, ${each.removed} removed`,
                each.waits_for && h("span", { class: "quiet" }, `; waits for ${each.waits_for}`),
                " ",
                state(each.state),
              ),
            ),
          ),
        ),
      );
  }

  const rows = [];
  for await (const items of pages("v1/releases", { limit: 1000 }, signal)) {
    rows.push(...items);
    releases.set(rows);
  }
  count.textContent = plural(rows.length, "release");
}
