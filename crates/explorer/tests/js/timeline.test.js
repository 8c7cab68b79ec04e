import assert from 'node:assert/strict';
import test from 'node:test';
import { oldestIn, readable, Timeline } from '../../web/js/timeline.js';

const maps = { kind: 'ConfigMap', group: '' };
const pods = { kind: 'Pod', group: '' };
const object = (name, resourceVersion) => ({ metadata: { name, resourceVersion: String(resourceVersion) } });
const shown = (timeline) => timeline.rows().map(({ key, object: { metadata }, kind }) => `${kind}${key}@${metadata.resourceVersion}`);

test('a namespace is as it was after each change', () => {
  const timeline = new Timeline([
    { resource: pods, base: [], events: [{ type: 'ADDED', object: object('p', 9) }, { type: 'DELETED', object: object('p', 11) }] },
    { resource: maps, base: [object('a', 3)], events: [{ type: 'MODIFIED', object: object('a', 10) }] },
  ]);
  const states = [
    [3, ['ConfigMap//a@10', 'removedPod//p@11']], [2, ['changedConfigMap//a@10', 'Pod//p@9']],
    [1, ['ConfigMap//a@3', 'addedPod//p@9']], [0, ['ConfigMap//a@3']],
  ];
  for (const [at, expected] of [...states, ...[...states].reverse()]) {
    timeline.moveTo(at);
    assert.deepEqual(shown(timeline), expected, String(at));
  }
  timeline.moveTo(7);
  assert.equal(timeline.at, 3);
  assert.equal(timeline.last().before.metadata.resourceVersion, '9');
});

test('versions are compared as numbers of any length', () => {
  const events = ['9', '10', '9007199254740993', '9007199254740992'].map((version) => ({ type: 'ADDED', object: object(`v${version}`, version) }));
  const { changes } = new Timeline([{ resource: maps, base: [], events }]);
  assert.deepEqual(changes.map((change) => change.object.metadata.resourceVersion), ['9', '10', '9007199254740992', '9007199254740993']);
});

test('the refusal of an old version names the oldest', () => {
  assert.equal(oldestIn('too old resource version: 1 (235)'), '235');
  assert.equal(oldestIn('forbidden'), null);
  assert.equal(oldestIn(undefined), null);
});

test('only resources of namespaces whose changes say something are read', () => {
  const resource = (plural, namespaced, verbs) => ({ plural, namespaced, verbs });
  const all = [
    resource('pods', true, ['list', 'watch']), resource('nodes', false, ['list', 'watch']),
    resource('events', true, ['list', 'watch']), resource('reviews', true, ['create']),
  ];
  assert.deepEqual(readable(all).map(({ plural }) => plural), ['pods']);
});
