/** The difference of two texts line by line, by Myers' algorithm (O(ND)). */

/** Changed lines above which a difference becomes "all removed, all added": the work is its square. */
const CHANGES_MAX = 2000;

/**
 * Returns the lines of both texts, in order.
 * @param {string[]} before
 * @param {string[]} after
 * @returns {Array<{kind: 'same'|'removed'|'added', text: string, before?: number, after?: number}>}
 */
export function diffLines(before, after) {
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head += 1;
  let tail = 0;
  while (tail < before.length - head && tail < after.length - head
    && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail += 1;
  const result = [];
  const same = (a, b) => result.push({ kind: 'same', text: before[a], before: a, after: b });
  for (let at = 0; at < head; at += 1) same(at, at);
  const inner = middle(before.slice(head, before.length - tail), after.slice(head, after.length - tail));
  for (const line of inner) {
    if (line.before !== undefined) line.before += head;
    if (line.after !== undefined) line.after += head;
    result.push(line);
  }
  for (let at = tail; at > 0; at -= 1) same(before.length - at, after.length - at);
  return result;
}

/** Whether two texts differ. */
export const differs = (lines) => lines.some((line) => line.kind !== 'same');

/** Keeps changed lines and `around` lines beside them; `null` stands for what is left out. */
export function hunks(lines, around = 3) {
  const keep = new Set();
  lines.forEach((line, at) => {
    if (line.kind === 'same') return;
    for (let near = at - around; near <= at + around; near += 1) keep.add(near);
  });
  const result = [];
  lines.forEach((line, at) => {
    if (keep.has(at)) result.push(line);
    else if (result[result.length - 1] !== null) result.push(null);
  });
  return result;
}

const removed = (text, before) => ({ kind: 'removed', text, before });
const added = (text, after) => ({ kind: 'added', text, after });

function middle(a, b) {
  const all = () => [...a.map(removed), ...b.map(added)];
  if (!a.length || !b.length) return all();
  const traces = trace(a, b);
  return traces ? walkBack(a, b, traces) : all();
}

/** The furthest points of each number of changes; `null` if there are too many. */
function trace(a, b) {
  const max = Math.min(a.length + b.length, CHANGES_MAX);
  const furthest = new Map([[1, 0]]);
  const traces = [];
  for (let changes = 0; changes <= max; changes += 1) {
    traces.push(new Map(furthest));
    for (let diagonal = -changes; diagonal <= changes; diagonal += 2) {
      let x = goesDown(furthest, diagonal, changes)
        ? furthest.get(diagonal + 1) : furthest.get(diagonal - 1) + 1;
      while (x < a.length && x - diagonal < b.length && a[x] === b[x - diagonal]) x += 1;
      furthest.set(diagonal, x);
      if (x >= a.length && x - diagonal >= b.length) return traces;
    }
  }
  return null;
}

function goesDown(furthest, diagonal, changes) {
  if (diagonal === -changes) return true;
  return diagonal !== changes && furthest.get(diagonal - 1) < furthest.get(diagonal + 1);
}

function walkBack(a, b, traces) {
  const result = [];
  let x = a.length;
  let y = b.length;
  for (let changes = traces.length - 1; changes >= 0; changes -= 1) {
    const furthest = traces[changes];
    const diagonal = x - y;
    const down = goesDown(furthest, diagonal, changes);
    const fromX = furthest.get(down ? diagonal + 1 : diagonal - 1);
    const fromY = fromX - (down ? diagonal + 1 : diagonal - 1);
    while (x > fromX && y > fromY && x > 0 && y > 0) {
      x -= 1;
      y -= 1;
      result.push({ kind: 'same', text: a[x], before: x, after: y });
    }
    if (changes === 0) break;
    if (down) { y -= 1; result.push(added(b[y], y)); } else { x -= 1; result.push(removed(a[x], x)); }
  }
  return result.reverse();
}
