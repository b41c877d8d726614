// Makes elements. Text is always a text node: nothing here parses HTML, so that a name such as
// "<img onerror=…>" is shown and not run.

import { ago, clock, msOf } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "href" && !value.startsWith("#")) throw new Error(`the page links to its own pages only, not to ${value}`);
    else element.setAttribute(name, value === true ? "" : value);
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children.flat(Infinity))
    if (child !== null && child !== undefined && child !== false) element.append(child instanceof Node ? child : String(child));
}

// An element of HTML: h("p", {class: "note"}, "text", h("b", {}, "more")).
export const h = (tag, attributes, ...children) => made(document.createElement(tag), attributes, children);

// An element of SVG.
export const s = (tag, attributes, ...children) => made(document.createElementNS(SVG, tag), attributes, children);

// Replaces what an element has.
export function put(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

let ids = 0;
export const uniqueId = (prefix) => `${prefix}-${++ids}`;

// A link to a page: link(["jobs", "17"], "17", {config: 3}).
export function path(segments, query) {
  const given = Object.entries(query || {}).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const tail = given.length ? `?${new URLSearchParams(given)}` : "";
  return `#/${segments.map(encodeURIComponent).join("/")}${tail}`;
}

export const link = (segments, text, query, attributes) => h("a", { href: path(segments, query), ...attributes }, text);

// Terms and their values, as a list.
export function facts(pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs
      .filter((pair) => pair && pair[1] !== null && pair[1] !== undefined && pair[1] !== "")
      .map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value))),
  );
}

export const panel = (title, ...children) => {
  const id = uniqueId("panel");
  return h("section", { class: "panel", "aria-labelledby": id }, h("h2", { id }, title), children);
};

// How long ago something was; app.js keeps it true while the page is open.
export const when = (time) =>
  msOf(time) === null
    ? "–"
    : h("time", { datetime: new Date(msOf(time)).toISOString(), title: clock(time), "data-ms": msOf(time) }, ago(time));

export const note = (...text) => h("p", { class: "note" }, text);

// A long name of a module and its parts, which may break behind a dot, a colon or an underscore.
export const breakable = (name) => name.split(/(?<=[.:_])/).flatMap((part, i) => (i ? [h("wbr"), part] : [part]));

// A state with its colour; the word is always there, so that the colour is not needed.
export const state = (name) => h("span", { class: `state state-${String(name).replace(/[^a-z]/g, "")}` }, name);

// Lines for a terminal, with a button that copies them.
export function commands(lines) {
  const text = lines.join("\n");
  const copy = h(
    "button",
    {
      type: "button",
      class: "small",
      on: {
        async click() {
          try {
            await navigator.clipboard.writeText(text);
            copy.textContent = "Copied";
          } catch {
            copy.textContent = "Select the text to copy it";
          }
        },
      },
    },
    "Copy",
  );
  return h("div", { class: "commands" }, h("pre", { tabindex: 0, "aria-label": "Commands" }, text), copy);
}

// Asks before something is changed: resolves to true or false. The buttons say what is done and what
// is left; "Cancel" would be either where jobs are cancelled.
export function confirm(title, lines, action, leave) {
  return new Promise((resolve) => {
    const id = uniqueId("dialog");
    const dialog = h(
      "dialog",
      {
        "aria-labelledby": id,
        on: {
          close: () => {
            dialog.remove();
            resolve(dialog.returnValue === "yes");
          },
        },
      },
      h("h2", { id }, title),
      lines.map((line) => h("p", {}, line)),
      h(
        "div",
        { class: "actions" },
        h("button", { type: "button", autofocus: true, on: { click: () => dialog.close("no") } }, leave),
        h("button", { type: "button", class: "primary", on: { click: () => dialog.close("yes") } }, action),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}
