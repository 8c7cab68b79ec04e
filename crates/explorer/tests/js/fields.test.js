import assert from 'node:assert/strict';
import test from 'node:test';
import { applyConfig, equal, MANAGER, removedPaths } from '../../web/js/apply_config.js';
import { managersOf, ownersOf, withoutManagedFields } from '../../web/js/blame.js';
import { lastChange } from '../../web/js/revisions.js';
import { Schema } from '../../web/js/schema.js';

const DOCUMENT = { components: { schemas: {
  'io.example.Pod': {
    type: 'object', 'x-kubernetes-group-version-kind': [{ group: '', version: 'v1', kind: 'Pod' }],
    properties: {
      metadata: { type: 'object', properties: {
        finalizers: { type: 'array', items: { type: 'string' }, 'x-kubernetes-list-type': 'set' },
        labels: { type: 'object', additionalProperties: { type: 'string' } },
      } },
      spec: { allOf: [{ $ref: '#/components/schemas/io.example.PodSpec' }], description: 'What is wanted.' },
    },
  },
  'io.example.PodSpec': { type: 'object', required: ['containers'], properties: {
    containers: {
      type: 'array', items: { $ref: '#/components/schemas/io.example.Container' },
      'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': ['name'],
    },
    args: { type: 'array', items: { type: 'string' } },
    selector: { type: 'object', 'x-kubernetes-map-type': 'atomic', properties: { a: { type: 'string' } } },
  } },
  'io.example.Container': { type: 'object', properties: { name: { type: 'string' }, image: { type: 'string' } } },
} } };
const SCHEMA = Schema.ofKind(DOCUMENT, '', 'v1', 'Pod');

const pod = (managedFields) => ({
  apiVersion: 'v1', kind: 'Pod',
  metadata: { name: 'a', namespace: 'n', resourceVersion: '5', uid: 'u', finalizers: ['x', 'y'], managedFields },
  spec: { containers: [{ name: 'one', image: 'a' }, { name: 'two', image: 'b' }], args: ['1', '2'], selector: { a: '1', b: '2' } },
});

function edited(change) {
  const object = structuredClone(withoutManagedFields(pod()));
  change(object);
  return object;
}

test('a schema is followed through references', () => {
  assert.equal(SCHEMA.at(['spec']).description, 'What is wanted.');
  assert.equal(SCHEMA.at(['spec', 'containers']).typeName(), '[]Container');
  assert.equal(SCHEMA.at(['spec', 'containers', 0, 'image']).typeName(), 'string');
  assert.equal(SCHEMA.at(['metadata', 'labels']).typeName(), 'map[string]string');
  assert.deepEqual(SCHEMA.at(['spec']).required, ['containers']);
  assert.equal(SCHEMA.at(['spec', 'nothing', 'deeper']), null);
});

test('an edit applies the changed fields and no others', () => {
  const head = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'a', namespace: 'n' } };
  const check = (change, expected) =>
    assert.deepEqual(applyConfig(pod(), edited(change), SCHEMA), { ...head, ...expected });
  check(() => {}, {});
  check((one) => { one.spec.containers[1].image = 'c'; }, { spec: { containers: [{ name: 'two', image: 'c' }] } });
  check((one) => { one.spec.args.push('3'); }, { spec: { args: ['1', '2', '3'] } });
  check((one) => { one.spec.selector.a = '9'; }, { spec: { selector: { a: '9', b: '2' } } });
  check((one) => { one.metadata.finalizers.push('z'); }, { metadata: { ...head.metadata, finalizers: ['z'] } });
  check((one) => { one.metadata.labels = { a: 'b' }; }, { metadata: { ...head.metadata, labels: { a: 'b' } } });
});

test('fields that the page applied before stay applied', () => {
  const before = pod([{
    manager: MANAGER, operation: 'Apply',
    fieldsV1: { 'f:spec': { 'f:containers': { 'k:{"name":"one"}': { '.': {}, 'f:name': {}, 'f:image': {} } } } },
  }]);
  const config = applyConfig(before, edited((one) => { one.spec.containers[1].image = 'c'; }), SCHEMA);
  assert.deepEqual(config.spec.containers, [{ name: 'one', image: 'a' }, { name: 'two', image: 'c' }]);
});


test('values are equal whatever the order of their members', () => {
  assert.ok(equal({ a: [1, { b: 2 }], c: null }, { c: null, a: [1, { b: 2 }] }));
  for (const [a, b] of [[[], {}], [{ a: undefined }, { b: undefined }], [[1], [1, 2]], [null, {}], ['1', 1]]) {
    assert.ok(!equal(a, b), JSON.stringify([a, b]));
  }
});

test('a line is managed by who names it, or what it is in', () => {
  const object = {
    metadata: { labels: { a: 'b' }, managedFields: [
      { manager: 'kubectl', operation: 'Apply', time: '1', fieldsV1: {
        'f:metadata': { 'f:labels': { '.': {}, 'f:a': {} } },
        'f:spec': {
          'f:ports': { 'k:{"port":80,"protocol":"TCP"}': { '.': {}, 'f:port': {} } },
          'f:set': { 'v:"x"': {} }, 'f:atomic': {}, 'f:list': { 'i:1': { 'f:a': {} } },
        } } },
      { manager: 'other', operation: 'Update', subresource: 'status', time: '2', fieldsV1: {
        'f:metadata': { 'f:labels': { 'f:a': {} } }, 'f:status': { 'f:phase': {} } } },
    ] },
    spec: { ports: [{ port: 80 }, { port: 81 }], set: ['x', 'y'], atomic: { a: { b: 1 } }, list: [{}, { a: 1 }] },
    status: { phase: 'x' },
  };
  for (const [path, expected] of [
    [['metadata', 'labels', 'a'], [0, 1]], [['metadata', 'labels'], [0]], [['metadata', 'name'], []],
    [['spec', 'ports', 0], [0]], [['spec', 'ports', 0, 'port'], [0]], [['spec', 'ports', 1], []],
    [['spec', 'set', 0], [0]], [['spec', 'set', 1], []], [['spec', 'atomic', 'a', 'b'], [0]],
    [['spec', 'list', 1, 'a'], [0]], [['spec', 'list', 0], []], [['status', 'phase'], [1]], [['spec'], []],
  ]) assert.deepEqual(ownersOf(object, path), expected, path.join('.'));
  assert.deepEqual(managersOf(object).map((one) => one.manager), ['kubectl', 'other']);
});

test('a revision was made by the manager whose entry changed', () => {
  const entry = (manager, time, field) => ({ manager, time, fieldsV1: { [field]: {} } });
  const first = { metadata: { managedFields: [entry('a', '1', 'f:x'), entry('b', '1', 'f:y')] } };
  const second = { metadata: { managedFields: [entry('a', '1', 'f:x'), entry('b', '1', 'f:z')] } };
  assert.equal(lastChange(second, first).manager, 'b');
  assert.equal(lastChange(first).manager, 'a');
  assert.equal(lastChange({ metadata: {} }), null);
});

test('removed fields are named', () => {
  const before = withoutManagedFields(pod());
  const paths = removedPaths(before, edited((one) => { delete one.spec.args; one.spec.containers.pop(); }));
  assert.deepEqual(paths, [['spec', 'containers'], ['spec', 'args']]);
});
