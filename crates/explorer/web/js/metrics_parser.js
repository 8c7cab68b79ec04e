/** The text format of Prometheus, and what the page shows of it: rates and quantiles between two times. */

const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"/g;

/**
 * Parses an exposition. Only the metrics in `names` are kept, if given.
 * @param {string} text
 * @param {Set<string>} [names]
 * @returns {Map<string, Array<{labels: Object<string, string>, value: number}>>}
 */
export function parse(text, names) {
  const metrics = new Map();
  for (const line of text.split('\n')) {
    if (!line || line.startsWith('#')) continue;
    const found = SAMPLE.exec(line);
    if (!found || (names && !names.has(found[1]))) continue;
    const samples = metrics.get(found[1]) ?? [];
    samples.push({ labels: labelsOf(found[2] ?? ''), value: numberOf(found[3]) });
    metrics.set(found[1], samples);
  }
  return metrics;
}

function labelsOf(text) {
  const labels = {};
  for (const [, name, value] of text.matchAll(LABEL)) {
    labels[name] = value.replace(/\\(.)/g, (_, char) => (char === 'n' ? '\n' : char));
  }
  return labels;
}

function numberOf(text) {
  if (text === '+Inf') return Infinity;
  return text === '-Inf' ? -Infinity : Number(text);
}

/** The sum of the samples that `select` accepts. */
export function sum(metrics, name, select = () => true) {
  return (metrics.get(name) ?? []).filter(({ labels }) => select(labels))
    .reduce((total, { value }) => total + value, 0);
}

/** The sums by the values of a label. */
export function sumBy(metrics, name, label, select = () => true) {
  const sums = new Map();
  for (const { labels, value } of metrics.get(name) ?? []) {
    if (!select(labels)) continue;
    const key = labels[label] ?? '';
    sums.set(key, (sums.get(key) ?? 0) + value);
  }
  return sums;
}

/** The increase of a counter for each second; a restart of the server counts from zero. */
export function rate(before, after, seconds) {
  const increase = after >= before ? after - before : after;
  return seconds > 0 ? increase / seconds : 0;
}

/**
 * A quantile of the observations between two expositions, interpolated within its bucket as Prometheus
 * does. `null`: there were none.
 */
export function quantile(q, before, after, name, select = () => true) {
  const buckets = [...sumBy(after, `${name}_bucket`, 'le', select)].map(([le, count]) => ({
    le: numberOf(le), count: count - (sumBy(before, `${name}_bucket`, 'le', select).get(le) ?? 0),
  })).sort((a, b) => a.le - b.le);
  const total = buckets[buckets.length - 1]?.count ?? 0;
  if (!(total > 0)) return null;
  const wanted = q * total;
  let below = { le: 0, count: 0 };
  for (const bucket of buckets) {
    if (bucket.count >= wanted) {
      if (bucket.le === Infinity) return below.le;
      const share = (wanted - below.count) / (bucket.count - below.count || 1);
      return below.le + (bucket.le - below.le) * share;
    }
    below = bucket;
  }
  return below.le;
}

/** Reads the answer of `/readyz?verbose`: `[{name, ok, why}]`. */
export function checksOf(text) {
  return text.split('\n').flatMap((line) => {
    const found = /^\[([+-])\]([^ ]+) ?(.*)$/.exec(line);
    return found ? [{ name: found[2], ok: found[1] === '+', why: found[3] }] : [];
  });
}
