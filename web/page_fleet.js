// The fleet: how many devices do what, the queue, the rate, the time to go, and every node.

import { all, changed, repeat } from "./api.js";
import { h, link, note, panel, path, put, state, when } from "./dom.js";
import { ago, by, digits, duration, environment, integer, members, percent, plural } from "./format.js";
import { table } from "./table.js";

export const title = () => "Fleet";

const STATES = ["measuring", "idle", "yielded", "drained", "drifted", "ended", "lost"];
const MEANINGS = {
  measuring: "hold a lease",
  idle: "wait for work",
  yielded: "gave way to other programs",
  drained: "get no leases",
  drifted: "measured their baseline differently from before",
  ended: "ended in order",
  lost: "have not been heard of",
};

const configText = (device) => (device.config === null || device.config === undefined ? "" : ` config ${device.config}`);

function doing(device) {
  if (!device.job) return device.reason || (device.state === "idle" ? "waits for work" : "");
  return [
    link(["job", device.job], `${device.kernel} ${members(device.key)}`),
    h("span", { class: "quiet" }, ` ${device.stage}${configText(device)}`, device.of ? `, ${device.of - device.left} of ${device.of}` : ""),
  ];
}

// One line for a node: which kernels its devices measure, and why others do not.
function nodeDoing(node) {
  if (node.reason) return h("span", {}, node.reason, h("span", { class: "quiet" }, by(node.by)));
  if (node.devices.every((each) => each.state === "ended")) return h("span", { class: "quiet" }, "has ended");
  if (node.devices.every((each) => each.state === "lost")) return h("span", { class: "bad" }, "has not been heard of");
  const kernels = new Map();
  for (const device of node.devices.filter((each) => each.job)) kernels.set(device.kernel, (kernels.get(device.kernel) || 0) + 1);
  const reasons = [...new Set(node.devices.filter((each) => each.reason && !each.job).map((each) => `${each.device}: ${each.reason}`))];
  const parts = [...kernels].sort((a, b) => b[1] - a[1]).map(([name, n]) => `${name} × ${n}`);
  return [parts.join(", "), reasons.length > 0 && h("span", { class: "quiet" }, `${parts.length ? "; " : ""}${reasons.join("; ")}`)];
}

function squares(node) {
  const counts = STATES.map((name) => [name, node.devices.filter((each) => each.state === name).length]).filter(([, n]) => n);
  return h(
    "span",
    {
      class: "squares",
      role: "img",
      "aria-label": `${plural(node.devices.length, "device")}: ${counts.map(([name, n]) => `${n} ${name}`).join(", ")}`,
    },
    node.devices.map((device) =>
      h("span", {
        class: `square state-${device.state}`,
        title: `${device.device}: ${device.state}${device.job ? `, ${device.kernel} ${members(device.key)}, ${device.stage}${configText(device)}` : ""}${device.reason ? `, ${device.reason}` : ""}`,
      }),
    ),
  );
}

function deviceTable(node) {
  return h(
    "div",
    { class: "scroll", role: "region", tabindex: 0, "aria-label": `Devices of ${node.host}` },
    h(
      "table",
      { class: "inner" },
      h("caption", { class: "hidden" }, `Devices of ${node.host}`),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          ["device", "state", "since", "does", "what it is"].map((each) => h("th", { scope: "col" }, each)),
        ),
      ),
      h(
        "tbody",
        {},
        node.devices.map((device) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, link(["device", node.agent, device.device], device.device)),
            h("td", {}, state(device.state)),
            h("td", {}, when(device.since_ms)),
            h("td", {}, doing(device)),
            h("td", { class: "quiet" }, environment(device)),
          ),
        ),
      ),
    ),
  );
}

function summary(fleet) {
  const { devices, rate, to_go: toGo } = fleet;
  const working = devices.total - devices.lost - devices.ended;
  return h(
    "div",
    { class: "tiles" },
    h(
      "div",
      { class: "tile big" },
      h("h2", {}, "Time to go"),
      h("p", { class: "figure" }, toGo?.seconds === null || toGo?.seconds === undefined ? "–" : duration(toGo.seconds)),
      note(toGo?.basis || ""),
    ),
    h(
      "div",
      { class: "tile" },
      h("h2", {}, "Devices measuring"),
      h("p", { class: "figure" }, integer(devices.measuring), h("span", { class: "of" }, ` of ${integer(working)}`)),
      note(
        `on ${plural(fleet.nodes, "node")}; ${rate.utilisation === null || rate.utilisation === undefined ? "no load known yet" : `${percent(rate.utilisation)} of their time used`}`,
      ),
    ),
    h(
      "div",
      { class: "tile" },
      h("h2", {}, "Jobs open"),
      h("p", { class: "figure" }, integer(fleet.queue.reduce((n, row) => n + row.queued + row.running, 0))),
      note(
        `${integer(fleet.queue.reduce((n, row) => n + row.running, 0))} running, ${integer(fleet.queue.reduce((n, row) => n + row.queued, 0))} queued`,
      ),
    ),
    h(
      "div",
      { class: "tile" },
      h("h2", {}, "Rate"),
      h("p", { class: "figure" }, rate.over_s ? digits(rate.measurements / rate.over_s, 3) : "–", h("span", { class: "of" }, " configs/s")),
      note(rate.over_s ? `${plural(rate.jobs, "job")} ended in the last ${duration(rate.over_s)}` : ""),
    ),
  );
}

function bar(devices) {
  const shown = STATES.filter((name) => devices[name] > 0);
  const strip = h(
    "div",
    { class: "strip", role: "img", "aria-label": shown.map((name) => `${devices[name]} ${name}`).join(", ") || "no devices" },
    shown.map((name) => {
      const part = h("span", { class: `state-${name}` });
      part.style.flexGrow = devices[name];
      return part;
    }),
  );
  return [
    strip,
    h(
      "ul",
      { class: "legend" },
      STATES.map((name) =>
        h(
          "li",
          {},
          h(
            "a",
            { href: path(["fleet"], { state: name }), title: `Devices that ${MEANINGS[name]}` },
            h("span", { class: `square state-${name}`, "aria-hidden": "true" }),
            ` ${name} `,
            h("b", {}, integer(devices[name])),
          ),
        ),
      ),
    ),
    note(
      shown
        .filter((name) => name !== "measuring" && name !== "idle")
        .map((name) => `${name}: ${MEANINGS[name]}`)
        .join("; "),
    ),
  ];
}

export async function show({ main, query, signal }) {
  const wanted = query.get("state") || null,
    text = query.get("q") || "";
  const top = h("div", {}),
    strip = h("div", {}),
    opened = new Set();
  const queue = table({
    label: "Queue by tag",
    key: (row) => row.tag ?? "",
    empty: "No job is open.",
    columns: [
      {
        name: "tag",
        label: "tag",
        value: (row) => row.tag ?? "",
        cell: (row) => (row.tag === null ? "other tags" : link(["jobs"], row.tag, { tag: row.tag })),
      },
      { name: "queued", label: "queued", number: true, value: (row) => row.queued, cell: (row) => integer(row.queued) },
      { name: "running", label: "running", number: true, value: (row) => row.running, cell: (row) => integer(row.running) },
      {
        name: "held",
        label: "leases held",
        number: true,
        wide: true,
        value: (row) => row.leases_held,
        cell: (row) => integer(row.leases_held),
      },
      {
        name: "open",
        label: "leases open",
        number: true,
        wide: true,
        value: (row) => row.leases_open,
        cell: (row) => integer(row.leases_open),
      },
      { name: "oldest", label: "oldest", number: true, value: (row) => row.oldest_s, cell: (row) => duration(row.oldest_s) },
    ],
  });

  const body = h("tbody"),
    count = h("p", { class: "note" }),
    shownRows = new Map();
  const nodes = h(
    "div",
    { class: "scroll", role: "region", tabindex: 0, "aria-label": "Nodes" },
    h(
      "table",
      { class: "nodes" },
      h("caption", { class: "hidden" }, "Nodes and their devices"),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "col" }, "node"),
          h("th", { scope: "col" }, "devices"),
          h("th", { scope: "col" }, "does"),
          h("th", { scope: "col", class: "number wide" }, "seen"),
        ),
      ),
      body,
    ),
  );
  const search = h("input", { type: "search", id: "q", name: "q", value: text, placeholder: "host, GPU, kernel, reason" });
  const choice = h(
    "select",
    { id: "state", name: "state" },
    h("option", { value: "" }, "all states"),
    STATES.map((name) => h("option", { value: name, selected: name === wanted }, name)),
  );
  const apply = () => {
    location.hash = path(["fleet"], { state: choice.value, q: search.value.trim() });
  };

  put(
    main,
    h("h1", {}, "Fleet"),
    top,
    h("div", { class: "beside" }, panel("Devices", strip), panel("Queue", queue.element)),
    panel(
      "Nodes",
      h(
        "form",
        {
          class: "filter",
          role: "search",
          on: {
            submit: (event) => {
              event.preventDefault();
              apply();
            },
          },
        },
        h("label", { for: "q" }, "Find"),
        search,
        h("label", { for: "state" }, "State"),
        choice,
        h("button", { type: "submit" }, "Show"),
      ),
      count,
      nodes,
    ),
  );
  choice.addEventListener("change", apply);

  // A node's row, and while it is open the row with its devices. Both are made again only when the
  // node has changed.
  function rowsOf(node, now) {
    const key = JSON.stringify({ ...node, seen_ms: 0 }) + opened.has(node.agent);
    const old = shownRows.get(node.agent);
    if (old?.key === key) {
      old.seen.textContent = ago(node.seen_ms, now);
      return old.rows;
    }
    const seen = h("td", { class: "number wide quiet" }, ago(node.seen_ms, now)),
      isOpen = opened.has(node.agent);
    const button = h(
      "button",
      {
        type: "button",
        class: "open",
        "aria-expanded": String(isOpen),
        on: {
          click() {
            if (!opened.delete(node.agent)) opened.add(node.agent);
            draw();
            shownRows.get(node.agent).button.focus();
          },
        },
      },
      node.host,
    );
    const rows = [
      h("tr", {}, h("th", { scope: "row" }, button), h("td", {}, squares(node)), h("td", { class: "does" }, nodeDoing(node)), seen),
    ];
    if (isOpen)
      rows.push(
        h(
          "tr",
          { class: "detail" },
          h("td", { colspan: 4 }, deviceTable(node), note(`agent ${node.agent}, version ${node.version}`)),
        ),
      );
    shownRows.set(node.agent, { key, rows, seen, button });
    return rows;
  }

  let last = { items: [], as_of_ms: Date.now() },
    lastMs = Date.now();
  function draw() {
    const now = last.as_of_ms + Date.now() - lastMs, // by the server's clock
      rows = last.items.flatMap((node) => rowsOf(node, now));
    rows.forEach((row, i) => {
      if (body.children[i] !== row) body.insertBefore(row, body.children[i] || null);
    });
    while (body.children.length > rows.length) body.lastChild.remove();
    const devices = last.items.reduce((n, node) => n + node.devices.length, 0);
    count.textContent = last.items.length
      ? `${plural(last.items.length, "node")}, ${plural(devices, "device")}${wanted ? ` that are ${wanted}` : ""}`
      : wanted || text
        ? "No node fits."
        : "No agent has enrolled yet.";
  }

  let turn = 0,
    summaryNow = null,
    nodesNow = null;
  await repeat(2000, signal, async () => {
    const before = summaryNow;
    summaryNow = await changed("v1/fleet", {}, signal, before);
    if (summaryNow !== before) {
      const fleet = summaryNow.json;
      put(top, summary(fleet));
      put(strip, bar(fleet.devices));
      queue.set(fleet.queue);
    }
    // Nodes are more to read: every second turn.
    if (turn++ % 2 === 0) {
      const values = { device_state: wanted, q: text || null, limit: 1000 },
        old = nodesNow;
      nodesNow = await changed("v1/fleet/nodes", values, signal, old);
      if (nodesNow !== old) {
        const { items, next, as_of_ms } = nodesNow.json;
        last = { as_of_ms, items: next ? [...items, ...(await all("v1/fleet/nodes", { ...values, after: next }, signal))] : items };
        lastMs = Date.now();
      }
      draw();
    }
  });
}
