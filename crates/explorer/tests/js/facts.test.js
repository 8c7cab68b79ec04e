import assert from 'node:assert/strict';
import test from 'node:test';
import { exitOf, frame, closeFrame, parseFrame, plainText } from '../../web/js/channels.js';
import { collectionPath, matching, objectPath, resourcesOf } from '../../web/js/discovery.js';
import { LogBuffer } from '../../web/js/log_buffer.js';
import { checksOf, parse, quantile, rate, sum, sumBy } from '../../web/js/metrics_parser.js';
import { allowing, compare, grantsOf, impliedGroups, nearest, whoMay } from '../../web/js/rbac.js';
import { explain } from '../../web/js/rejections.js';
import { graphOf, place, selects } from '../../web/js/relations.js';
import { href, parse as parseRoute } from '../../web/js/router.js';

test('metrics are parsed with their labels', () => {
  const metrics = parse('# HELP a b\na{x="1",y="q\\"\\n,}"} 3\na{x="2"} 1.5e2\nb 7\nc +Inf\n');
  assert.deepEqual(metrics.get('a'), [{ labels: { x: '1', y: 'q"\n,}' }, value: 3 }, { labels: { x: '2' }, value: 150 }]);
  assert.equal(sum(metrics, 'a'), 153);
  assert.equal(sum(metrics, 'a', ({ x }) => x === '2'), 150);
  assert.deepEqual([...sumBy(metrics, 'a', 'x')], [['1', 3], ['2', 150]]);
  assert.equal(metrics.get('c')[0].value, Infinity);
  assert.equal(parse('a 1\nb 2', new Set(['b'])).size, 1);
});

test('rates and quantiles are those between two times', () => {
  assert.equal(rate(10, 40, 10), 3);
  assert.equal(rate(40, 10, 10), 1);
  const at = (counts) => parse(['0.1', '1', '+Inf'].map((le, i) => `h_bucket{le="${le}"} ${counts[i]}`).join('\n'));
  assert.equal(quantile(0.5, at([0, 0, 0]), at([0, 10, 10]), 'h'), 0.55);
  assert.equal(quantile(0.5, at([5, 5, 5]), at([5, 5, 5]), 'h'), null);
  assert.equal(quantile(0.99, at([0, 0, 0]), at([0, 0, 10]), 'h'), 1);
});

test('checks of the server are read', () => {
  assert.deepEqual(checksOf('[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n'),
    [{ name: 'ping', ok: true, why: 'ok' }, { name: 'etcd', ok: false, why: 'failed: reason withheld' }]);
});

test('a rejection names the step that made it', () => {
  for (const [code, message, step, facts] of [
    [403, 'pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "a"', 'rights',
      { user: 'bob', verb: 'list', resource: 'pods', scope: 'in API group "" in the namespace "a"' }],
    [422, "x is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: a", 'policy',
      { policy: 'p', binding: 'b', reason: 'failed expression: a' }],
    [400, 'admission webhook "w.example.org" denied the request: no', 'webhook', { webhook: 'w.example.org', reason: 'no' }],
    [403, 'pods "a" is forbidden: violates PodSecurity "restricted:latest": privileged', 'podSecurity',
      { level: 'restricted:latest', reason: 'privileged' }],
    [403, 'pods "a" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1', 'quota',
      { quota: 'q', reason: 'requested: pods=1, used: pods=1, limited: pods=1' }],
    [422, 'Pod "a" is invalid: spec: Required value', 'validation', {}],
    [409, 'the object has been modified', 'conflict', {}], [401, 'Unauthorized', 'credentials', {}], [418, '', 'server', {}],
  ]) assert.deepEqual(explain(code, { message }), { step, facts, causes: [] }, message);
});

test('rules allow what their parts cover', () => {
  const ask = { verb: 'update', group: 'apps', resource: 'deployments', subresource: 'scale', namespace: 'a', name: 'x' };
  const rule = { verbs: ['update'], apiGroups: ['apps'], resources: ['deployments/scale'] };
  const all = (one, two = ask) => Object.values(compare(one, two)).every(Boolean);
  assert.ok(all(rule));
  for (const [change, expected] of [
    [{ verbs: ['*'] }, true], [{ verbs: ['get'] }, false], [{ resources: ['*'] }, true], [{ resources: ['*/scale'] }, true],
    [{ resources: ['deployments'] }, false], [{ apiGroups: [''] }, false], [{ resourceNames: ['x'] }, true], [{ resourceNames: ['y'] }, false],
  ]) assert.equal(all({ ...rule, ...change }), expected, JSON.stringify(change));
  const path = { verb: 'get', path: '/healthz/etcd' };
  assert.ok(all({ verbs: ['get'], nonResourceURLs: ['/healthz/*'] }, path));
  assert.ok(!all({ verbs: ['get'], nonResourceURLs: ['/healthz'] }, path));
});

test('grants, near misses and who may are found', () => {
  const meta = (name, namespace) => ({ metadata: { name, namespace } });
  const read = { verbs: ['get'], apiGroups: [''], resources: ['pods'] };
  const grants = grantsOf({
    clusterRoles: [{ ...meta('reader'), rules: [read] }], roles: [{ ...meta('own', 'a'), rules: [{ ...read, verbs: ['list'] }] }],
    clusterRoleBindings: [{ ...meta('all'), roleRef: { kind: 'ClusterRole', name: 'reader' }, subjects: [{ kind: 'Group', name: 'team' }] }],
    roleBindings: [
      { ...meta('here', 'a'), roleRef: { kind: 'Role', name: 'own' }, subjects: [{ kind: 'ServiceAccount', name: 's' }, { kind: 'User', name: 'bob' }] },
      { ...meta('gone', 'a'), roleRef: { kind: 'Role', name: 'missing' }, subjects: [] },
    ],
  });
  const ask = { verb: 'list', group: '', resource: 'pods', subresource: '', namespace: 'a' };
  assert.deepEqual(allowing(grants, ask).map((one) => one.binding.metadata.name), ['here']);
  assert.deepEqual(allowing(grants, { ...ask, namespace: 'b' }), []);
  assert.deepEqual(whoMay(grants, ask).map(({ kind, name, namespace }) => [kind, name, namespace]),
    [['ServiceAccount', 's', 'a'], ['User', 'bob', undefined]]);
  assert.deepEqual(nearest(grants, ask, 'eve', ['team']).map((one) => one.missing), [['verb']]);
  assert.deepEqual(nearest(grants, { ...ask, namespace: 'b' }, 'bob', []).map((one) => one.missing), [['namespace']]);
  assert.deepEqual(impliedGroups('system:serviceaccount:a:s'),
    ['system:authenticated', 'system:serviceaccounts', 'system:serviceaccounts:a']);
});

test('relations are found and grouped', () => {
  const object = (kind, name, more = {}) => ({ kind, metadata: { name, uid: name, ...more.metadata }, spec: more.spec });
  const owned = (by) => ({ ownerReferences: [{ kind: 'x', name: by, uid: by }] });
  const deployment = object('Deployment', 'web', { spec: { selector: { matchLabels: { a: '1' } } } });
  const set = object('ReplicaSet', 'web-1', { metadata: owned('web') });
  const pods = Array.from({ length: 20 }, (_, at) => object('Pod', `p${at}`, { metadata: { ...owned('web-1'), labels: { a: '1' } } }));
  const service = object('Service', 'svc', { spec: { selector: { a: '1' } } });
  const all = [set, ...pods, service];
  const graph = graphOf(deployment, all);
  assert.deepEqual(graph.nodes.map((one) => [one.kind, one.level, one.count]),
    [['Deployment', 0, undefined], ['ReplicaSet', 1, undefined], ['Pod', 2, 20], ['Service', 3, undefined]]);
  assert.equal(graph.edges.length, 3);
  assert.deepEqual(place(graph), { columns: 4, rows: 1 });
  const ofPod = graphOf(pods[0], [deployment, set, service]);
  assert.deepEqual(ofPod.nodes.map((one) => `${one.kind} ${one.level}`), ['Pod 0', 'ReplicaSet -1', 'Deployment -2', 'Service 1']);
  const lost = graphOf(object('Pod', 'x', { metadata: owned('gone'), spec: { containers: [], nodeName: 'n' } }), []);
  assert.deepEqual(lost.nodes.filter((one) => one.isMissing).map((one) => one.name), ['gone', 'n']);
});

test('the graph of many objects stays small, and its work in proportion to them', () => {
  const count = 20_000;
  let reads = 0;
  const object = (kind, name, more) => ({ kind, spec: {}, ...more, metadata: { name, uid: name, ...more.metadata } });
  const pods = Array.from({ length: count }, (_, at) => object('Pod', `p${at}`, { metadata: {
    labels: { a: '1' }, get ownerReferences() { reads += 1; return [{ kind: 'ReplicaSet', name: 'set', uid: 'set' }]; },
  } }));
  const service = object('Service', 'svc', { spec: { selector: { a: '1' } } });
  const graph = graphOf(object('ReplicaSet', 'set', {}), [...pods, service]);
  assert.deepEqual(graph.nodes.map((one) => [one.kind, one.count]), [['ReplicaSet', undefined], ['Pod', count], ['Service', undefined]]);
  assert.deepEqual(graph.edges.map((one) => one.why), ['owner', 'selector']);
  assert.ok(reads <= 2 * count, `${reads} reads of owners`);
});

test('selectors select as the server does', () => {
  const labels = { a: '1' };
  for (const [selector, expected] of [
    [{ a: '1' }, true], [{ a: '2' }, false], [{}, false], [undefined, false], [{ matchLabels: { a: '1' } }, true],
    [{ matchExpressions: [{ key: 'a', operator: 'In', values: ['1'] }] }, true],
    [{ matchExpressions: [{ key: 'a', operator: 'NotIn', values: ['1'] }] }, false],
    [{ matchExpressions: [{ key: 'b', operator: 'DoesNotExist' }] }, true],
    [{ matchExpressions: [{ key: 'a', operator: 'Exists' }] }, true],
  ]) assert.equal(selects(selector, labels), expected, JSON.stringify(selector));
});

test('channels are framed and ends are read', () => {
  assert.deepEqual([...frame(0, new TextEncoder().encode('a'))], [0, 97]);
  assert.deepEqual([...closeFrame(0)], [255, 0]);
  assert.equal(parseFrame(new Uint8Array([1, 98]).buffer).channel, 1);
  assert.deepEqual(exitOf({ status: 'Success' }), { ok: true, code: 0, message: '' });
  const failed = { status: 'Failure', message: 'm', details: { causes: [{ reason: 'ExitCode', message: '3' }] } };
  assert.deepEqual(exitOf(failed), { ok: false, code: 3, message: 'm' });
  assert.equal(plainText('\u001b[31mred\u001b[0m\u001b]0;title\u0007 ab\bc\r\nlost\rkept'), 'red ac\nkept');
});

test('resources are found by name and reached by path', () => {
  const resources = resourcesOf({ items: [
    { metadata: {}, versions: [{ version: 'v1', resources: [
      { resource: 'pods', responseKind: { kind: 'Pod' }, scope: 'Namespaced', verbs: ['list'], shortNames: ['po'], subresources: [{ subresource: 'log' }] }] }] },
    { metadata: { name: 'apps' }, versions: [
      { version: 'v2', resources: [{ resource: 'deployments', responseKind: { kind: 'Deployment' }, scope: 'Namespaced', verbs: ['list'], shortNames: ['deploy'] }] },
      { version: 'v1', resources: [{ resource: 'deployments', responseKind: { kind: 'Deployment' }, scope: 'Namespaced', verbs: ['list'] }] }] },
  ] });
  assert.deepEqual(resources.map((one) => `${one.plural} ${one.version}`), ['pods v1', 'deployments v2']);
  assert.deepEqual(matching(resources, 'deploy').map((one) => one.plural), ['deployments']);
  assert.deepEqual(matching(resources, 'po').map((one) => one.plural), ['pods']);
  assert.equal(matching(resources, '').length, 2);
  assert.equal(collectionPath(resources[1], 'a'), '/apis/apps/v2/namespaces/a/deployments');
  assert.equal(objectPath(resources[0], 'a', 'b/../c'), '/api/v1/namespaces/a/pods/b%2F..%2Fc');
});

test('addresses of pages keep odd names', () => {
  for (const parts of [['list', '', 'pods'], ['object', '', 'pods', 'n', 'a/b?#%', 'yaml']]) {
    assert.deepEqual(parseRoute(href(parts, { ns: 'a&b' })).parts, parts);
    assert.equal(parseRoute(href(parts, { ns: 'a&b' })).params.get('ns'), 'a&b');
  }
  assert.deepEqual(parseRoute('#/list/%zz').parts, []);
});

test('a log keeps its newest lines', () => {
  const buffer = new LogBuffer(10);
  buffer.setFilter('even');
  for (let line = 0; line < 100; line += 1) buffer.push(`${line % 2 ? 'odd' : 'even'} ${line}`);
  assert.ok(buffer.lines.length <= 11);
  assert.equal(buffer.lines[buffer.lines.length - 1], 'odd 99');
  assert.equal(buffer.lines.length + buffer.dropped, 100);
  assert.deepEqual(buffer.view, buffer.lines.filter((line) => line.startsWith('even')));
});
