// Releases as lists of winners, and what differs between two.

export function winnersOf(release) {
  return release.kernels.flatMap((kernel) =>
    kernel.winners.map(([key, config, provenance, ms, job]) => ({
      name: kernel.name,
      kernel: kernel.kernel,
      key: Object.fromEntries(kernel.key.map((name, i) => [name, key[i]])),
      config: kernel.configs[config].values,
      ordinal: kernel.configs[config].ordinal ?? null,
      origin: kernel.provenance[provenance].origin,
      ms,
      job: job ? String(job) : null,
    })),
  );
}

const identity = (winner) => JSON.stringify([winner.name, winner.kernel, winner.key]);
// Whether two flat objects have the same members, in any order.
export const same = (a, b) => JSON.stringify(Object.entries(a).sort()) === JSON.stringify(Object.entries(b).sort());

// {added, removed, changed: [{from, to}], retimed: [{from, to}], same}; retimed: the same config, of
// another job or with another time.
export function difference(from, to) {
  const old = new Map(winnersOf(from).map((each) => [identity(each), each])),
    found = { added: [], removed: [], changed: [], retimed: [], same: 0 };
  for (const each of winnersOf(to)) {
    const before = old.get(identity(each));
    old.delete(identity(each));
    if (!before) found.added.push(each);
    else if (!same(before.config, each.config)) found.changed.push({ from: before, to: each });
    else if (before.job !== each.job || before.ms[0] !== each.ms[0]) found.retimed.push({ from: before, to: each });
    else found.same++;
  }
  found.removed = [...old.values()];
  return found;
}
