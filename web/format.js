// Numbers, times and names as texts.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const integer = (value) => (value === null || value === undefined ? "–" : grouped.format(value));

// With so many significant digits, without an exponent.
export function digits(value, n = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = value === 0 ? 1 : Math.floor(Math.log10(Math.abs(value))) + 1;
  return value.toLocaleString("en", { minimumFractionDigits: 0, maximumFractionDigits: Math.max(0, Math.min(8, n - size)) });
}

// How many times as fast: always three or two digits behind the point, so that columns align.
export const times = (ratio) => (Number.isFinite(ratio) ? ratio.toFixed(ratio < 10 ? 3 : 2) : "–");
export const percent = (share, places = 0) => (Number.isFinite(share) ? `${(100 * share).toFixed(places)} %` : "–");

// A time that a kernel takes, given in microseconds.
export function micros(us) {
  if (!Number.isFinite(us)) return "–";
  if (us >= 1e6) return `${digits(us / 1e6, 4)} s`;
  return us >= 1e4 ? `${digits(us / 1e3, 4)} ms` : `${digits(us, 4)} µs`;
}

// How long something takes or took, given in seconds: two units at most.
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 1) return seconds > 0 ? "< 1 s" : "0 s";
  const units = [
    ["d", 86400],
    ["h", 3600],
    ["min", 60],
    ["s", 1],
  ];
  const first = units.findIndex(([, size]) => seconds >= size);
  const [unit, size] = units[first];
  const whole = Math.floor(seconds / size),
    rest = seconds - whole * size;
  const next = units[first + 1];
  const more = next && whole < 10 ? Math.floor(rest / next[1]) : 0;
  return more ? `${whole} ${unit} ${more} ${next[0]}` : `${whole} ${unit}`;
}

// Device time: hours from one hour on.
export function deviceTime(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds === 0) return "0 s";
  return seconds >= 3600
    ? `${digits(seconds / 3600, 4)} h`
    : seconds >= 60
      ? `${digits(seconds / 60, 3)} min`
      : seconds >= 1
        ? `${digits(seconds, 3)} s`
        : `${digits(seconds * 1000, 3)} ms`;
}

// Milliseconds since 1970 of the API's times: RFC 3339 or already a number.
export const msOf = (time) => (time === null || time === undefined ? null : typeof time === "number" ? time : Date.parse(time));

export function ago(time, now = Date.now()) {
  const ms = msOf(time);
  return ms === null ? "–" : now - ms < 1000 ? "now" : `${duration((now - ms) / 1000)} ago`;
}

export function clock(time) {
  const ms = msOf(time);
  return ms === null ? "–" : `${new Date(ms).toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

const value = (v) => (typeof v === "string" ? v : v === null ? "None" : String(v));

// {"M": 64, "N": 128} -> "M=64 N=128"
export const members = (object) =>
  Object.entries(object || {})
    .map(([name, v]) => `${name}=${value(v)}`)
    .join(" ");
// As --key takes it.
export const keyOption = (object) =>
  Object.entries(object || {})
    .map(([name, v]) => `${name}=${value(v)}`)
    .join(",");

export const shortDigest = (digest) => (digest || "").replace("sha256:", "").slice(0, 12);

export function environment(e) {
  if (!e) return "–";
  const stack = ["rocm", "cuda", "torch", "triton"].filter((name) => e[name]).map((name) => `${name} ${e[name]}`);
  return [e.gpu, e.arch, e.partition, ...stack, e.cpu].filter(Boolean).join(" · ");
}

// Whose doing something was, behind what it was.
export const by = (name) => (name ? ` – ${name === "(server)" ? "the server" : name}` : "");

export const plural = (n, word, many = `${word}s`) => `${integer(n)} ${n === 1 ? word : many}`;
