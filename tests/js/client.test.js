// The official JavaScript client with a Keelson server: create, lists by pages, a watch, each kind of
// patch, server-side apply, and custom resources. KUBECONFIG names the administrator's kubeconfig.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as k8s from '@kubernetes/client-node';

const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const namespace = 'js';

test('objects', async (t) => {
  await core.createNamespace({ body: { metadata: { name: namespace } } });
  const events = [];
  const watch = new k8s.Watch(config);
  let seen;
  const deleted = new Promise((resolve) => (seen = resolve));
  const request = await watch.watch(
    `/api/v1/namespaces/${namespace}/configmaps`,
    { labelSelector: 'test=js' },
    (type, obj) => {
      events.push(`${type} ${obj.metadata.name}`);
      if (type === 'DELETED') seen();
    },
    () => {},
  );
  t.after(() => request.abort());
  for (const name of ['a', 'b', 'c', 'd', 'e']) {
    const body = { metadata: { name, labels: { test: 'js' } }, data: { name } };
    await core.createNamespacedConfigMap({ namespace, body });
  }

  await t.test('lists by pages', async () => {
    const names = [];
    let _continue;
    do {
      const page = await core.listNamespacedConfigMap({
        namespace, limit: 2, labelSelector: 'test=js', _continue,
      });
      names.push(...page.items.map((item) => item.metadata.name));
      _continue = page.metadata._continue;
    } while (_continue);
    assert.deepEqual(names, ['a', 'b', 'c', 'd', 'e']);
  });

  for (const [kind, body] of [
    ['JsonPatch', [{ op: 'add', path: '/data/patched', value: 'json' }]],
    ['MergePatch', { data: { patched: 'merge' } }],
    ['StrategicMergePatch', { data: { patched: 'strategic' } }],
  ]) {
    await t.test(kind, async () => {
      const options = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy[kind]);
      const patched = await core.patchNamespacedConfigMap({ name: 'a', namespace, body }, options);
      const value = Array.isArray(body) ? body[0].value : body.data.patched;
      assert.equal(patched.data.patched, value);
    });
  }

  await t.test('server-side apply', async () => {
    const body = {
      apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'applied' }, data: { from: 'apply' },
    };
    const options = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.ServerSideApply);
    const applied = await core.patchNamespacedConfigMap(
      { name: 'applied', namespace, body, fieldManager: 'js' }, options);
    assert.equal(applied.data.from, 'apply');
    assert.equal(applied.metadata.managedFields[0].manager, 'js');
    assert.equal(applied.metadata.managedFields[0].operation, 'Apply');
    await assert.rejects(
      core.patchNamespacedConfigMap(
        { name: 'applied', namespace, body: { ...body, data: { from: 'other' } }, fieldManager: 'b' },
        options),
      (error) => error.code === 409);
  });

  await t.test('watch', async () => {
    await core.deleteNamespacedConfigMap({ name: 'e', namespace });
    await deleted;
    assert.deepEqual(events.slice(0, 5), ['a', 'b', 'c', 'd', 'e'].map((name) => `ADDED ${name}`));
    assert.equal(events.filter((event) => event === 'MODIFIED a').length, 3);
    assert.equal(events.at(-1), 'DELETED e');
  });
});

// Waits until the definition has the condition Established: only then its objects are served.
async function established(name) {
  const watch = new k8s.Watch(config);
  let seen;
  let ended;
  const done = new Promise((resolve, reject) => {
    seen = resolve;
    ended = () => reject(new Error(`the watch ended before ${name} was established`));
  });
  const request = await watch.watch(
    '/apis/apiextensions.k8s.io/v1/customresourcedefinitions',
    { fieldSelector: `metadata.name=${name}` },
    (type, definition) => {
      const conditions = definition.status?.conditions ?? [];
      if (conditions.some((each) => each.type === 'Established' && each.status === 'True')) seen();
    },
    () => ended(),
  );
  await done;
  request.abort();
}

test('custom resources', async () => {
  const extensions = config.makeApiClient(k8s.ApiextensionsV1Api);
  await extensions.createCustomResourceDefinition({
    body: {
      metadata: { name: 'kites.js.example.com' },
      spec: {
        group: 'js.example.com', scope: 'Namespaced',
        names: { plural: 'kites', singular: 'kite', kind: 'Kite', listKind: 'KiteList' },
        versions: [{
          name: 'v1', served: true, storage: true, subresources: { status: {} },
          schema: {
            openAPIV3Schema: {
              type: 'object',
              properties: {
                spec: {
                  type: 'object', required: ['tails'],
                  properties: { tails: { type: 'integer', minimum: 0 }, color: { type: 'string', _default: 'red' } },
                },
                status: { type: 'object', properties: { up: { type: 'boolean' } } },
              },
            },
          },
        }],
      },
    },
  });
  await established('kites.js.example.com');
  const custom = config.makeApiClient(k8s.CustomObjectsApi);
  const kites = { group: 'js.example.com', version: 'v1', namespace, plural: 'kites' };
  const kite = (tails) => ({
    apiVersion: 'js.example.com/v1', kind: 'Kite', metadata: { name: 'k' }, spec: { tails },
  });
  const created = await custom.createNamespacedCustomObject({ ...kites, body: kite(2) });
  assert.equal(created.spec.color, 'red');
  await assert.rejects(
    custom.createNamespacedCustomObject({ ...kites, body: kite(-1) }), (error) => error.code === 422);
  const merge = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch);
  const patched = await custom.patchNamespacedCustomObjectStatus(
    { ...kites, name: 'k', body: { status: { up: true } } }, merge);
  assert.equal(patched.status.up, true);
  const list = await custom.listNamespacedCustomObject(kites);
  assert.equal(list.items.length, 1);
  await custom.deleteNamespacedCustomObject({ ...kites, name: 'k' });
});
