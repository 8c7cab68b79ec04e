import assert from 'node:assert/strict';
import test from 'node:test';
import { parseExact, stringifyExact } from '../../web/js/json_exact.js';
import { parseYaml } from '../../web/js/yaml_reader.js';
import { pathAt } from '../../web/js/yaml_path.js';
import { quoted, scalar, toLines, toYaml } from '../../web/js/yaml_writer.js';

const OBJECT = {
  apiVersion: 'v1', kind: 'Pod',
  metadata: { name: 'a', annotations: { 'example.org/a': '<script>alert(1)</script>', text: 'one\ntwo\n' } },
  spec: {
    containers: [{ name: 'x', args: ['-c', 'a: b', ''], ports: [{ containerPort: 80 }] }, { name: 'y', args: [] }],
    nested: [[1, 2], [{ a: null }]], empty: {},
  },
};

test('an object is written as kubectl writes it', () => {
  assert.equal(toYaml(OBJECT), `apiVersion: v1
kind: Pod
metadata:
  annotations:
    example.org/a: "<script>alert(1)</script>"
    text: |
      one
      two
  name: a
spec:
  containers:
  - args:
    - "-c"
    - "a: b"
    - ""
    name: x
    ports:
    - containerPort: 80
  - args: []
    name: "y"
  empty: {}
  nested:
  - - 1
    - 2
  - - a: null
`);
});

test('what is written is read back', () => {
  const values = [
    OBJECT, 'yes', 'no', 'null', '~', '1', '1.0', '1e3', '0x1f', '1_000', '012', '.5', '-', '- a', 'a #b', 'a: b', ':a', 'a:',
    ' a', 'a ', '', '\n', 'a\n', 'a\n\n', '\na', 'a\n b\n', ' a\nb', '\t', 'a\tb', 'a\n\tb', '"', "'", '\\', '\u0000', '\u202ea',
    '\ufeff', '\u2028', '2001-01-01', '=', '<<', '{a}', '[a]', '*a', '&a', '!a', '%a', '@a', '`a', '|', '>', '?', '? a', '---', '...',
    'true', 'On', 'é', '中文', '😀', { '': 1 }, { 'a: b': 1 }, { null: 1 }, { '1': 'x' }, [], {}, [[]], [{}], [[[]]], 0, -1, 1.5, 1e21,
    true, null, { a: [{ b: [{ c: 'x\ny' }] }] },
  ];
  for (const value of values) {
    assert.deepEqual(parseYaml(toYaml(value)), value, toYaml(value));
    assert.deepEqual(parseYaml(toYaml({ a: [value] })), { a: [value] }, toYaml({ a: [value] }));
  }
});

test('marks of direction and controls are visible', () => {
  assert.equal(quoted('a\u202eb\u200b\u0007\n'), '"a\\u202eb\\u200b\\u0007\\n"');
  assert.equal(scalar('plain text'), 'plain text');
  assert.ok(!/[\u202e\u200b]/.test(toYaml({ 'k\u202e': 'v\u200b' })));
});

test('each line has the path of its field, also when it is found by indent', () => {
  const lines = toLines(OBJECT);
  const texts = lines.map((line) => line.text);
  lines.forEach((line, at) => {
    if (line.isContinuation) return;
    // Of several fields that begin in one line, the writer names the outermost or innermost one.
    const found = pathAt(texts, at);
    const isPart = (a, b) => a.every((step, index) => step === b[index]);
    assert.ok(isPart(found, line.path) || isPart(line.path, found), `${line.text}: ${found} ${line.path}`);
  });
  const path = (text) => pathAt(text.split('\n'), text.split('\n').length - 1);
  assert.deepEqual(path('a:\n- b: 1\n  c:\n    d: 2'), ['a', 0, 'c', 'd']);
  assert.deepEqual(path('a:\n- b: 1\n- c: 2'), ['a', 1, 'c']);
  assert.deepEqual(path('a:\n  - b: 1\n  - c: 2\nd:'), ['d']);
  assert.deepEqual(path('a:\n  "x y": 1\n  z:\n  - 1\n  - 2'), ['a', 'z', 1]);
});

test('long integers keep their digits', () => {
  const text = '{"a":9223372036854775807,"b":[1,2.5,"12345678901234567890"]}';
  const parsed = parseExact(text);
  // Older browsers do not show the source of a number: then it is what JSON.parse makes of it.
  const hasSource = JSON.parse('1', (_k, _v, context) => context?.source === '1');
  if (hasSource) assert.equal(stringifyExact(parsed), text);
  const read = parseYaml('a: 9223372036854775807\nb: 12\n');
  assert.equal(stringifyExact(read), '{"a":9223372036854775807,"b":12}');
  assert.equal(toYaml(read), 'a: 9223372036854775807\nb: 12\n');
});

test('faulty text names its place', () => {
  assert.throws(() => parseYaml('a: [1\nb: 2'), /\(\d+:\d+\)/);
});
