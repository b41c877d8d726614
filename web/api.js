// Requests to the API with the token that the person signed in with, or as the user whom the proxy in
// front signed in. The token is kept for this tab only, and sent in a header: there is no cookie of
// ours that another page could use. A proxy has cookies, so every request also has a header that the
// server requires of what a proxy signed in, and that a browser lets no other page send.

const KEY = "wavetune-token";

export const session = { token: sessionStorage.getItem(KEY), byProxy: false, name: null, role: null, operations: new Set(), channels: null };

const credentials = (token) => ({ "X-Wavetune": "page", ...(token ? { Authorization: `Bearer ${token}` } : {}) });

// An answer that is an error; `message` is the server's sentence.
export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail || `the server answered with status ${status}`);
    this.status = status;
    this.kind = body?.kind;
    this.body = body;
  }
}

export async function call(method, path, { body, headers, signal, token } = {}) {
  const answer = await fetch(path, {
    method,
    signal,
    cache: "no-store",
    credentials: "same-origin",
    referrerPolicy: "no-referrer",
    headers: {
      ...credentials(token ?? session.token),
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      ...headers,
    },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await answer.text();
  let json = null;
  try {
    json = text ? JSON.parse(text) : null;
  } catch {
    throw new Problem(answer.status, null);
  }
  if (answer.status === 401 && token === undefined) window.dispatchEvent(new CustomEvent("signed-out"));
  if (!answer.ok && answer.status !== 304) throw new Problem(answer.status, json);
  return { json, etag: answer.headers.get("ETag") };
}

// A stored file as text.
export async function text(path, signal) {
  const answer = await fetch(path, {
    signal,
    credentials: "same-origin",
    referrerPolicy: "no-referrer",
    headers: credentials(session.token),
  });
  if (!answer.ok) throw new Problem(answer.status, await answer.json().catch(() => null));
  return answer.text();
}

export const query = (values) => {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined); // "" is a run, too
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

export const get = async (path, values = {}, signal) => (await call("GET", path + query(values), { signal })).json;

// What a path has now, as {json, etag}; `before`, what this returned last, if that is still so.
export async function changed(path, values, signal, before) {
  const now = await call("GET", path + query(values), { signal, headers: before ? { "If-None-Match": before.etag } : {} });
  return now.json === null && before ? before : now;
}

// The items of a paged list, a page at a time; `name` is the member that has them.
export async function* pages(path, values, signal, name = "items") {
  let after = values.after ?? null;
  do {
    const page = await get(path, { ...values, after }, signal);
    yield page[name];
    after = page.next;
  } while (after);
}

export async function all(path, values, signal, name) {
  const items = [];
  for await (const page of pages(path, { limit: 1000, ...values }, signal, name)) items.push(...page);
  return items;
}

// What never changes is read once.
const kept = new Map();
export function immutable(path, signal) {
  if (!kept.has(path)) {
    const made = get(path, {}, signal);
    kept.set(path, made);
    made.catch(() => kept.delete(path));
  }
  return kept.get(path);
}

// With the token, or, when it is null, as the user whom the proxy in front signed in.
export async function signIn(token) {
  const { json } = await call("GET", "v1/token", { token });
  Object.assign(session, {
    token,
    byProxy: !token,
    name: json.name,
    role: json.role,
    operations: new Set(json.operations),
    channels: json.channels,
  });
  if (token) sessionStorage.setItem(KEY, token);
}

// Signs in when the proxy in front states a user that the server knows. Otherwise returns why not, or null.
export async function signInByProxy() {
  const { user, problem } = await get("v1/sign-in");
  if (user) await signIn(null);
  return problem;
}

export function signOut() {
  sessionStorage.removeItem(KEY);
  kept.clear();
  Object.assign(session, { token: null, byProxy: false, name: null, role: null, operations: new Set(), channels: null });
}

// Whether the token's roles may call an operation of /openapi.json; the server checks it again.
export const may = (operation) => session.operations.has(operation);

// A channel's pattern as fnmatch reads it: * ? [a-z] [!a-z].
function matches(pattern, name) {
  const source = pattern
    .replace(/[.+^${}()|\\]/g, "\\$&")
    .replace(/\*/g, ".*")
    .replace(/\?/g, ".")
    .replace(/\[!/g, "[^");
  try {
    return new RegExp(`^${source}$`).test(name);
  } catch {
    return false;
  }
}
export const mayMove = (channel) => may("channel_put") && (!session.channels || session.channels.some((each) => matches(each, channel)));

const sleep = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });

// Runs `step` now and every `ms` until the page is left. A tab that is not seen asks nothing.
export async function repeat(ms, signal, step) {
  const report = (message) => window.dispatchEvent(new CustomEvent("server-state", { detail: message }));
  while (!signal.aborted) {
    if (!document.hidden) {
      try {
        await step();
        report("");
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Problem && error.status < 500 && error.status !== 429) throw error;
        report(error instanceof Problem ? `${error.message}. Trying again.` : "The server does not answer. Trying again.");
      }
    }
    await sleep(ms, signal);
  }
}
