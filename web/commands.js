// Every command that the page prints. tests/browser/test_commands.py runs each of them, with what
// is in capitals replaced.

import { keyOption } from "./format.js";

// A word of a shell line, quoted unless it is plain: a tag may be any text.
const word = (text) => (/^[A-Za-z0-9_.\/:=,+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

export const COMMANDS = {
  recompute: (job) => `wavetune show ${job.job} --recompute`,
  devices: (job) => `wavetune show ${job.job} --devices`,
  assembly: (job) => `wavetune show ${job.job} --asm`,
  ttgir: (job) => `wavetune show ${job.job} --ttgir`,
  submitAgain: (job) =>
    [
      "wavetune submit KERNEL_FOLDER",
      `--key ${word(keyOption(job.key))}`,
      job.tag !== "default" && `--tag ${word(job.tag)}`,
      `--regime ${job.regime}`,
      "--run again --wait",
    ]
      .filter(Boolean)
      .join(" "),
  submit: () => "wavetune submit KERNEL_FOLDER",
  push: () => "wavetune kernel push KERNEL_FOLDER",
  publish: () => "wavetune publish",
  publishTo: () => "wavetune publish --channel CHANNEL",
  promote: (release) => `wavetune promote ${release} CHANNEL --sign-key KEY.pem`,
  capture: () => "WAVETUNE_CAPTURE=source python3 -m wavetune run PROGRAM",
  queueDemand: () => "wavetune demand --queue N",
};
