// Starts the page: sign-in, the navigation, and which page the part of the address after # names.

import { Problem, session, signIn, signInByProxy, signOut } from "./api.js";
import { h, put } from "./dom.js";
import { ago } from "./format.js";

// [name in the address, name in the navigation, file, operation that it needs]
const PAGES = [
  ["fleet", "Fleet", "./page_fleet.js", "fleet_get"],
  ["jobs", "Jobs", "./page_jobs.js", "job_list"],
  ["kernels", "Kernels", "./page_kernels.js", "kernel_list"],
  ["releases", "Releases", "./page_releases.js", "release_list"],
  ["captures", "Captures", "./page_captures.js", "capture_list"],
  ["cost", "Cost", "./page_cost.js", "cost_get"],
];
// Pages of one object: the name in the address, whose navigation it belongs to, file.
const DETAILS = {
  job: ["jobs", "./page_job.js"],
  kernel: ["kernels", "./page_kernel.js"],
  release: ["releases", "./page_release.js"],
  device: ["fleet", "./page_device.js"],
};

const main = document.getElementById("main"),
  nav = document.getElementById("nav"),
  who = document.getElementById("who");
const status = document.getElementById("status"),
  top = document.getElementById("top");
let leave = new AbortController();

const offered = () => PAGES.filter(([, , , operation]) => session.operations.has(operation));

function chrome(current) {
  top.hidden = !session.name;
  put(
    nav,
    offered().map(([name, label]) => h("a", { href: `#/${name}`, "aria-current": name === current ? "page" : null }, label)),
  );
  put(
    who,
    h(
      "span",
      { class: "token", title: session.byProxy ? "You and your role; the proxy signed you in" : "The token of this tab and its role" },
      session.name,
      " ",
      h("span", { class: "role" }, session.role),
    ),
    !session.byProxy && h("button", { type: "button", class: "small", on: { click: leaveSession } }, "Sign out"),
  );
}

function leaveSession() {
  signOut();
  route();
}

function problem(error) {
  const text = error instanceof Problem ? error.message : `The page failed: ${error.message}`;
  return h(
    "div",
    { class: "problem", role: "alert" },
    h("h1", {}, error.status === 404 ? "Not found" : "This did not work"),
    h("p", {}, text),
  );
}

function showSignIn(why) {
  top.hidden = true;
  document.title = "Sign in – wavetune";
  const input = h("input", {
    type: "password",
    id: "token",
    name: "token",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "token-help",
  });
  const message = h("p", { class: "problem", role: "alert", hidden: !why }, why || "");
  const button = h("button", { type: "submit", class: "primary" }, "Sign in");
  put(
    main,
    h(
      "form",
      {
        class: "sign-in",
        on: {
          async submit(event) {
            event.preventDefault();
            button.disabled = true;
            try {
              await signIn(input.value.trim());
              route();
            } catch (error) {
              message.hidden = false;
              message.textContent =
                error.status === 401
                  ? "The server does not know this token, or it has expired."
                  : error instanceof Problem
                    ? error.message
                    : "The server does not answer.";
              button.disabled = false;
              input.focus();
            }
          },
        },
      },
      h("h1", {}, "wavetune"),
      h("p", { class: "note" }, "One node tunes a kernel once; every deployment starts already tuned."),
      h("label", { for: "token" }, "Token"),
      input,
      h(
        "p",
        { class: "note", id: "token-help" },
        "Kept for this tab only. An operator makes one with ",
        h("code", {}, "wavetune-server token make NAME --role reader"),
        ".",
      ),
      message,
      button,
    ),
  );
  input.focus();
}

// {name, segments, query} of "#/job/17?config=3".
function address() {
  const [way, query] = location.hash.replace(/^#\/?/, "").split("?");
  let segments;
  try {
    segments = way.split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    segments = [];
  }
  return { name: segments[0] || offered()[0]?.[0], segments: segments.slice(1), query: new URLSearchParams(query || "") };
}

async function route() {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  status.textContent = "";
  if (!session.name) {
    try {
      const problem = session.token ? await signIn(session.token) : await signInByProxy();
      if (signal.aborted) return undefined;
      if (!session.name) return showSignIn(problem);
    } catch (error) {
      if (error.status === 401) signOut();
      return showSignIn(error.status === 401 ? "Your token has ended; sign in again." : "The server does not answer.");
    }
  }

  const { name, segments, query } = address();
  const page = PAGES.find(([each]) => each === name),
    detail = DETAILS[name];
  chrome(detail ? detail[0] : name);
  put(main, h("p", { class: "loading" }, "Loading…"));
  try {
    const file = page ? page[2] : detail?.[1];
    if (!file)
      throw new Problem(404, { detail: name ? `This page has no part "${name}".` : "Your token's role may not read what the pages show." });
    const { show, title } = await import(file);
    if (signal.aborted) return undefined;
    document.title = `${title(segments)} – wavetune`;
    await show({ main, segments, query, signal });
  } catch (error) {
    if (!signal.aborted) put(main, problem(error));
  }
  return undefined;
}

window.addEventListener("hashchange", () => {
  window.scrollTo(0, 0);
  main.focus({ preventScroll: true });
  route();
});
window.addEventListener("signed-out", () => {
  const why = session.byProxy ? "The proxy in front has ended your session; load the page again." : "Your token has ended; sign in again.";
  signOut();
  leave.abort();
  showSignIn(why);
});
window.addEventListener("server-state", (event) => {
  if (status.textContent !== event.detail) status.textContent = event.detail;
});
window.addEventListener("unhandledrejection", (event) => {
  if (event.reason?.name === "AbortError") event.preventDefault();
});
setInterval(() => {
  if (document.hidden) return;
  for (const each of main.querySelectorAll("time[data-ms]")) {
    const text = ago(Number(each.dataset.ms));
    if (each.textContent !== text) each.textContent = text;
  }
}, 5000);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
route();
