// The code of a job's winner, as its build has it: TTGIR, assembly and what else was stored. The
// build may be large, so it is read when it is asked for.

import { get, text } from "./api.js";
import { h, note, panel, put } from "./dom.js";

const SHOWN = 400000; // characters

const same = (a, b) => JSON.stringify(Object.entries(a).sort()) === JSON.stringify(Object.entries(b).sort());

// [name, digest] of the files of the object that the winner's final measured. Where the final did
// not state it, those of the winner's config in every variant, with what the variant is for.
function filesOf(build, job) {
  const digest = job.winner.resources?.find((each) => each.config === job.winner.config)?.object;
  const found = build.variants.flatMap((variant) =>
    variant.objects
      .filter((each) => (digest ? each.digest === digest : same(each.config, job.winner.config_values)))
      .map((each) => ({ files: Object.entries(each.metadata?.files || {}), when: variant.when })),
  );
  if (digest || found.length < 2) return found[0]?.files || [];
  return found.flatMap(({ files, when }) => files.map(([name, each]) => [`${name}${when ? ` where ${when}` : ""}`, each]));
}

export function codePanel(job, signal) {
  if (!job.build || !job.winner) return null;
  const place = h("div"),
    files = h("p", { class: "filter" });
  const button = h(
    "button",
    {
      type: "button",
      on: {
        async click() {
          button.disabled = true;
          try {
            const build = await get(`v1/kernels/${job.kernel}/builds/${job.build}`, {}, signal),
              found = filesOf(build, job);
            put(
              files,
              found.map(([name, digest]) => h("button", { type: "button", on: { click: () => show(name, digest) } }, name)),
            );
            put(place, !found.length && note("Its build has no texts of this object."));
          } catch (error) {
            if (!signal.aborted) put(place, h("p", { class: "problem", role: "alert" }, error.message));
          }
          button.disabled = false;
        },
      },
    },
    "Look for it in the build",
  );

  async function show(name, digest) {
    put(place, note("Reading…"));
    try {
      const code = await text(`v1/blobs/${digest}`, signal);
      put(
        place,
        h("pre", { class: "source", tabindex: 0, "aria-label": `${name} of the winner` }, code.slice(0, SHOWN)),
        code.length > SHOWN && note(`The first ${SHOWN} characters of ${code.length}.`),
      );
    } catch (error) {
      if (!signal.aborted) put(place, h("p", { class: "problem", role: "alert" }, error.message));
    }
  }

  return panel("The winner's code", h("div", { class: "filter" }, button, files), place);
}
