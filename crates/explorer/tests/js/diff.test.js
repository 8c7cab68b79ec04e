import assert from 'node:assert/strict';
import test from 'node:test';
import { diffLines, differs, hunks } from '../../web/js/diff.js';

const signs = { same: ' ', removed: '-', added: '+' };
const shown = (before, after) =>
  diffLines([...before], [...after]).map((line) => signs[line.kind] + line.text).join('');

test('a difference is the shortest one', () => {
  for (const [before, after, expected] of [
    ['', '', ''],
    ['abc', 'abc', ' a b c'],
    ['abc', '', '-a-b-c'],
    ['', 'ab', '+a+b'],
    ['abcabba', 'cbabac', '-a-b c+b a b-b a+c'],
    ['axb', 'ayb', ' a-x+y b'],
  ]) assert.equal(shown(before, after), expected, `${before} ${after}`);
});

/** A generator of numbers from 0 to 1 that is the same in each run. */
function numbers(seed) {
  let state = seed;
  return () => { state = (state * 1103515245 + 12345) % 2147483648; return state / 2147483648; };
}

test('a difference leads from one text to the other, with the right line numbers', () => {
  const next = numbers(7);
  const text = () => Array.from({ length: Math.floor(next() * 30) }, () => 'abc'[Math.floor(next() * 3)]);
  for (let round = 0; round < 500; round += 1) {
    const [before, after] = [text(), text()];
    const lines = diffLines(before, after);
    const left = lines.filter((line) => line.kind !== 'added');
    const right = lines.filter((line) => line.kind !== 'removed');
    assert.deepEqual(left.map((line) => line.text), before);
    assert.deepEqual(right.map((line) => line.text), after);
    assert.deepEqual(left.map((line) => line.before), before.map((_, at) => at));
    assert.deepEqual(right.map((line) => line.after), after.map((_, at) => at));
    assert.equal(differs(lines), before.join() !== after.join());
  }
});

test('texts that differ everywhere are compared without their square', () => {
  const before = Array.from({ length: 20_000 }, (_, at) => `a${at}`);
  const after = Array.from({ length: 20_000 }, (_, at) => `b${at}`);
  assert.equal(diffLines(before, after).length, 40_000);
});

test('hunks keep the lines beside a change', () => {
  const before = Array.from({ length: 20 }, (_, at) => String(at));
  const after = before.with?.(10, 'x') ?? before.map((line, at) => (at === 10 ? 'x' : line));
  const kept = hunks(diffLines(before, after), 1);
  assert.deepEqual(kept.map((line) => line?.text ?? null), [null, '9', '10', 'x', '11', null]);
});
