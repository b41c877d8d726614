// What a job's measurements say about its configs, as the job's page shows it.

const STAGE_RANK = { screen: 0, halving: 1, final: 2 };
export const EQUIVALENCE = 1.02; // of the verdict: docs/measurement.md

function quantile(sorted, q) {
  if (!sorted.length) return NaN;
  const at = (sorted.length - 1) * q,
    low = Math.floor(at);
  return sorted[low] + (at - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
}
const sortedNumbers = (values) => [...values].sort((a, b) => a - b);
export const median = (values) => quantile(sortedNumbers(values), 0.5);

// The parameters of a config, from its ordinal: its position in the product of all values, the last
// parameter fastest. null where the number is too large to be exact here.
function configValues(space, ordinal) {
  if (space.configs) return space.configs[ordinal] ?? null;
  const parameters = Object.entries(space.parameters || {});
  if (parameters.reduce((n, [, values]) => n * values.length, 1) > Number.MAX_SAFE_INTEGER) return null;
  const chosen = {};
  let rest = ordinal;
  for (const [name, values] of parameters.toReversed()) {
    chosen[name] = values[rest % values.length];
    rest = Math.floor(rest / values.length);
  }
  return Object.fromEntries(parameters.map(([name]) => [name, chosen[name]]));
}

// A time beside others: its paired ratio to the baseline, times the baseline's median, so that what
// disturbs a device for a while moves neither.
function timesOf(rows, baselineUs) {
  const ratios = sortedNumbers(rows.flatMap((row) => row.samples_us.map((us, i) => us / row.baseline_us[i]).filter(Number.isFinite)));
  return {
    n: ratios.length,
    us: quantile(ratios, 0.5) * baselineUs,
    low: quantile(ratios, 0.1) * baselineUs,
    high: quantile(ratios, 0.9) * baselineUs,
  };
}

// Everything that the charts need. A config counts with its last stage; late and quarantined
// measurements are left out, as the verdict leaves them out.
export function summarise(job, measurements) {
  const used = measurements.filter((row) => !row.late && !row.quarantined);
  const baselineUs = median(used.flatMap((row) => row.baseline_us)),
    byConfig = new Map();
  for (const row of used) {
    if (!byConfig.has(row.config)) byConfig.set(row.config, []);
    byConfig.get(row.config).push(row);
  }

  const verdict = job.winner?.verdict || null;
  const finalists = new Map((verdict?.finalists || []).map((each) => [each.config, each]));
  const configs = [...byConfig].map(([config, rows]) => {
    const stage = rows.reduce((best, row) => (STAGE_RANK[row.stage] > STAGE_RANK[best] ? row.stage : best), "screen");
    const last = rows.filter((row) => row.stage === stage),
      failed = last.find((row) => row.outcome !== "correct");
    const times = failed ? { n: 0, us: NaN, low: NaN, high: NaN } : timesOf(last, baselineUs);
    const finalist = finalists.get(config);
    return {
      config,
      stage,
      values: configValues(job.space, config),
      outcome: failed ? failed.outcome : "correct",
      detail: failed?.detail || null,
      ...times,
      finalist: Boolean(finalist),
      equivalent: Boolean(finalist?.equivalent),
      isWinner: job.winner?.config === config,
      isBaseline: config === job.baseline,
      verdict: finalist || null,
      spills: last[0].spills,
      vgprs: last[0].vgprs,
      lds_bytes: last[0].lds_bytes,
    };
  });

  // A finalist's interval is the verdict's: of its ratio to the best, which itself keeps its samples'.
  const best = configs.find((each) => each.verdict?.ratio === 1);
  for (const each of configs)
    if (each.verdict && best && each !== best && Number.isFinite(each.verdict.upper))
      Object.assign(each, { us: best.us * each.verdict.ratio, low: best.us * each.verdict.lower, high: best.us * each.verdict.upper });

  const timed = configs.filter((each) => Number.isFinite(each.us)).sort((a, b) => a.us - b.us);
  timed.forEach((each, i) => {
    each.rank = i + 1;
  });

  // Best so far: in the order in which the server stored them; a config's first measurement is its
  // trial.
  const trials = [],
    seen = new Set();
  let least = Infinity;
  for (const row of used) {
    if (seen.has(row.config)) continue;
    seen.add(row.config);
    const us = row.outcome === "correct" ? timesOf([row], baselineUs).us : NaN;
    if (us < least) least = us;
    trials.push({ trial: seen.size, config: row.config, us, best: least });
  }

  return { configs, timed, trials, baselineUs, best: timed[0] || null, byConfig };
}

// The least time for each pair of values of two parameters, over all others.
export function bestByPair(configs, x, y) {
  const cells = new Map();
  for (const each of configs) {
    if (!each.values || !Number.isFinite(each.us)) continue;
    const key = JSON.stringify([each.values[x], each.values[y]]),
      old = cells.get(key);
    if (!old || each.us < old.us) cells.set(key, each);
  }
  return (a, b) => cells.get(JSON.stringify([a, b])) || null;
}

// A parameter's values that were measured, in the order of the space.
export function valuesOf(space, configs, name) {
  const measured = new Set(configs.filter((each) => each.values).map((each) => JSON.stringify(each.values[name])));
  const order = space.parameters?.[name] || [...new Set((space.configs || []).map((each) => each[name]))];
  return order.filter((v) => measured.has(JSON.stringify(v)));
}

export const parameterNames = (space) =>
  space.parameters
    ? Object.entries(space.parameters)
        .filter(([, values]) => values.length > 1)
        .map(([name]) => name)
    : Object.keys(space.configs?.[0] || {}).filter((name) => new Set(space.configs.map((each) => JSON.stringify(each[name]))).size > 1);
