/**
 * The explorer in a browser, against a server with a simulated cluster. One server, one browser and, for
 * most tests, one tab, whose pages the tests visit one after the other.
 */

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { load } from '../../crates/explorer/web/vendor/js-yaml.mjs';
import { openUi, setUp, startProxy, Tab } from './harness.js';
import { fill, HOSTILE, LARGE_CHARACTERS, seed } from './objects.js';

const MANY = Number(process.env.KEELSON_EXPLORER_OBJECTS ?? 2000);
const SHIPS = '/apis/example.org/v1/namespaces/shop/ships';
const SETTINGS = '/api/v1/namespaces/shop/configmaps/settings';
let all;
let tab;

before(async () => {
  all = await setUp();
  await seed(all.api);
  tab = await Tab.open(all.browser, all.address.href);
  await tab.see('nav', 'Resources');
});
after(() => all?.close());

const get = (path) => all.api.send('GET', path);

test('the token leaves the address at once, and the counts are those of the server', async () => {
  assert.ok(!(await tab.page.evaluate(() => location.href)).includes(all.api.token));
  const pods = () => tab.page.$eval('[data-resource="pods"]', (node) => node.textContent);
  await tab.until('counts', () => document.querySelector('[data-resource="ships.example.org"]')?.textContent === '0');
  const { items } = await get('/api/v1/pods');
  assert.equal(await pods(), String(items.length));
  await tab.shot('overview');
});

test('a list is the table of the server, live, filtered and sorted', async () => {
  await tab.go('#/list/-/pods?ns=shop');
  await tab.see('.count', '3 live');
  await tab.until('running pods', () => [...document.querySelectorAll('.grid-row:not([hidden])')]
    .filter((row) => row.textContent.includes('1/1') && row.textContent.includes('Running')).length === 3);
  await tab.shot('pods');
  await tab.go('#/list/-/configmaps?ns=shop');
  await tab.see('.count', '3 live');
  await all.api.send('POST', '/api/v1/namespaces/shop/configmaps', { metadata: { name: 'zz-new' } });
  await tab.see('.grid-row:not([hidden])', 'zz-new');
  await tab.setHidden(true);
  const later = '/api/v1/namespaces/shop/configmaps/zz-later';
  await all.api.send('POST', '/api/v1/namespaces/shop/configmaps', { metadata: { name: 'zz-later' } });
  assert.equal(await tab.page.$$eval('.grid-row', (rows) => rows.some((row) => row.textContent.includes('zz-later'))), false);
  await tab.setHidden(false);
  await tab.see('.grid-row:not([hidden])', 'zz-later');
  await all.api.send('DELETE', later);
  await tab.see('.count', '4 live');
  await tab.page.type('main input[type=search]', 'zz-');
  await tab.see('.count', '1 / 4');
  await all.api.send('DELETE', '/api/v1/namespaces/shop/configmaps/zz-new');
  await tab.see('.count', '0 / 3');
});

test('many objects are shown at once and scroll', async () => {
  await fill(all.api, 'many', MANY);
  await tab.go('#/list/-/configmaps?ns=many');
  await tab.see('.count', `${(MANY + 1).toLocaleString('en')} live`);
  const rows = await tab.page.$$eval('.grid-row', (nodes) => nodes.length);
  assert.ok(rows < 80, `${rows} rows in the document`);
  await tab.page.keyboard.press('G');
  const last = `many-${String(MANY - 1).padStart(6, '0')}`;
  await tab.see('.grid-row[aria-selected=true]', last);
});

test('stored text is never markup', async () => {
  await tab.go('#/object/-/configmaps/shop/hostile/yaml');
  await tab.see('.lines', '\\u202egnp.exe');
  await tab.see('.lines', '<img src=x onerror=');
  const found = await tab.page.evaluate(() => [document.querySelectorAll('main img, main script').length, globalThis.hurt ?? 'unhurt']);
  assert.deepEqual(found, [0, 'unhurt']);
  // A line of nearly a megabyte is cut in the view.
  await tab.see('.lines code', `… (${LARGE_CHARACTERS.toLocaleString('en').slice(0, -1)}`);
  assert.ok(!(await tab.text('main')).includes(HOSTILE));
});

test('a field is explained by its schema', async () => {
  await tab.go('#/object/apps/deployments/shop/web/yaml');
  await tab.see('.line', 'replicas');
  await tab.click('.line', 'replicas: 3');
  await tab.see('.schema-help h2', 'spec.replicas');
  await tab.see('.schema-help', 'Number of desired pods');
  await tab.go('#/schema/apps/deployments');
  await tab.see('.schema-tree', 'replicas');
});

/** Replaces the text of the editor. */
async function edit(change) {
  await tab.until('an editor with a text', () => document.querySelector('.editor')?.value.includes('kind'));
  await tab.page.$eval('.editor', (node, [from, to]) => {
    node.value = node.value.replace(from, to);
    node.dispatchEvent(new Event('input'));
  }, change);
  await tab.click('main button', 'Preview');
}

test('an edit shows its difference, applies the changed fields, and names conflicts', async () => {
  await tab.go('#/object/-/configmaps/shop/settings/edit');
  await edit(['\ndata:\n', '\ndata:\n  b: "new"\n']);
  await tab.see('.result .line.added', 'b: new');
  assert.equal((await get(SETTINGS)).data.b, undefined, 'a preview writes nothing');
  await tab.shot('edit');
  await tab.click('main button', 'Write');
  await tab.see('.message', 'Written');
  const written = await get(SETTINGS);
  assert.equal(written.data.b, 'new');
  const own = written.metadata.managedFields.find((entry) => entry.manager === 'keelson-explorer');
  assert.deepEqual(own.fieldsV1, { 'f:data': { 'f:b': {} } });

  await edit(['a: "3"', 'a: "4"']);
  await tab.see('.message', 'team-a');
  await tab.click('.message button', 'Take them over');
  await tab.see('.result .line.added', 'a: "4"');
  await tab.click('main button', 'Write');
  await tab.see('.message', 'Written');
  assert.equal((await get(SETTINGS)).data.a, '4');
});

test('the message of a write stays when the watch tells of it later, and numbers stay exact', async () => {
  await all.api.send('POST', SHIPS, { apiVersion: 'example.org/v1', kind: 'Ship', metadata: { name: 'late' }, spec: { sails: 1 } });
  await tab.go('#/object/example.org/ships/shop/late/edit');
  await edit(['\nspec:\n', '\nspec:\n  tonnage: 1\n']);
  await tab.see('.result .line.added', 'tonnage: 1');
  await tab.setHidden(true);
  await tab.click('main button', 'Write');
  await tab.see('.message', 'Written');
  await tab.page.evaluate(() => {
    globalThis.messages = [];
    const message = document.querySelector('.message');
    new MutationObserver(() => globalThis.messages.push(message.textContent)).observe(message, { childList: true });
  });
  await tab.setHidden(false);
  const patch = '{"spec":{"tonnage":9007199254740993}}';
  const headers = { Authorization: `Bearer ${all.api.token}`, 'Content-Type': 'application/merge-patch+json' };
  assert.equal((await all.api.raw('PATCH', `${SHIPS}/late`, headers, patch)).status, 200);
  await tab.until('the other change', () => document.querySelector('.editor').value.includes('tonnage: 9007199254740993'));
  assert.deepEqual(await tab.page.evaluate(() => globalThis.messages), [''], 'only the other change takes it away');
  await all.api.send('DELETE', `${SHIPS}/late`);
});

test('the history has all revisions and their differences', async () => {
  await tab.go('#/object/-/configmaps/shop/settings/history');
  await tab.see('main', 'Revision 6 / 6');
  await tab.see('.line.added', 'a: "4"');
  await tab.see('.line.removed', 'a: "3"');
  await tab.shot('history', 560);
  await tab.page.keyboard.press('ArrowLeft');
  await tab.page.keyboard.press('ArrowLeft');
  await tab.see('main', 'Revision 4 / 6');
  await tab.see('.line.added', 'a: "3"');
  await tab.see('main', 'created with the first');
  await tab.page.select('.row .field:nth-child(1) select', '0');
  await tab.see('.line.removed', 'a: "0"');
  await all.api.send('PATCH', SETTINGS, { data: { c: 'live' } }, 'application/merge-patch+json');
  await tab.see('main', '/ 7');
});

test('an expression is evaluated over the object, with its cost', async () => {
  await tab.go('#/object/-/configmaps/shop/settings/cel');
  const type = (text) => tab.page.evaluate((value) => {
    const input = document.querySelector('.expression');
    input.value = value;
    input.dispatchEvent(new Event('input'));
  }, text);
  await tab.until('the input', () => document.querySelector('.expression') !== null);
  await type('object.data.a == "4"');
  await tab.see('.status', 'bool · cost 4 / 1,000,000');
  await tab.see('.line', 'true');
  await type('self.metadata.labels.missing');
  await tab.see('.line', 'no such key: labels');
  await type('object.');
  await tab.see('.line', 'Syntax error');
  await type('object.data.map(k, k)');
  await tab.see('.line', '- a');
  await tab.shot('cel');
});

test('a namespace is shown as it was after each change', async () => {
  await all.api.send('POST', '/api/v1/namespaces', { metadata: { name: 'harbour' } });
  const maps = '/api/v1/namespaces/harbour/configmaps';
  await all.api.send('POST', maps, { metadata: { name: 'tide' }, data: { level: 'low' } });
  await all.api.send('PATCH', `${maps}/tide`, { data: { level: 'high' } }, 'application/merge-patch+json');
  await all.api.send('DELETE', `${maps}/tide`);
  await tab.go('#/timeline?ns=harbour');
  await tab.see('.status', 'ConfigMap tide deleted');
  await tab.see('.line.removed', '- ConfigMap tide');
  await tab.page.keyboard.press('ArrowLeft');
  await tab.see('.status', 'ConfigMap tide changed');
  await tab.see('.line.added', 'level: high');
  await tab.see('.line.removed', 'level: low');
  await tab.shot('timeline');
  await tab.page.keyboard.press('ArrowLeft');
  await tab.see('.status', 'ConfigMap tide created');
  await tab.see('.line.added', '+ ConfigMap tide');
  await tab.page.keyboard.press('Enter');
  await tab.see('[role=tab][aria-selected=true]', 'History');
});

test('the managers of lines are beside them', async () => {
  await tab.go('#/object/-/configmaps/shop/settings/fields');
  await tab.see('.legend', 'keelson-explorer');
  await tab.until('the manager of b', () => [...document.querySelectorAll('.line')].some((line) =>
    line.querySelector('code').textContent.includes('b: new') && line.querySelector('.gutter').title.includes('keelson-explorer')));
  await tab.shot('fields');
});

test('relations are a graph', async () => {
  await tab.go('#/object/apps/deployments/shop/web/relations');
  for (const kind of ['Deployment', 'ReplicaSet', 'Pod', 'ConfigMap', 'Service']) await tab.see('.graph .node', kind);
  await tab.shot('relations', 340);
  await tab.go('#/object/-/services/shop/web/relations');
  await tab.see('.graph .node', 'EndpointSlice');
  // Many objects become one node.
  await tab.go('#/object/-/configmaps/many/many-000000/relations');
  await tab.see('.graph .node', `ConfigMap× ${MANY - 1}`);
  assert.equal(await tab.page.$$eval('.graph .node', (nodes) => nodes.length), 2);
});

test('events and logs of a pod are shown', async () => {
  const { items } = await get('/api/v1/namespaces/shop/pods');
  const { name } = items[0].metadata;
  await tab.go(`#/object/-/pods/shop/${name}/events`);
  await tab.see('td', 'Scheduled');
  await tab.go(`#/object/-/pods/shop/${name}/logs`);
  await tab.until('a line of the log', () => document.querySelector('.lines .line code')?.textContent.trim().length > 0);
  await tab.go(`#/object/-/pods/shop/${name}/exec`);
  await tab.see('main', 'Run');
  await tab.click('main button', 'Run');
  // Nothing runs in a simulated container: the page says that the stream was refused.
  await tab.see('[role=status]', 'refused');
});

test('who may, and why not', async () => {
  await tab.go('#/access?verb=update&resource=configmaps&ns=shop&user=bob');
  await tab.see('.card', 'bob: not allowed');
  await tab.see('.card', 'cluster-admin');
  await tab.go('#/access');
  await tab.see('.card', 'What you may do');
  await tab.go('#/object/apps/deployments/shop/web/edit');
  await tab.until('an editor', () => document.querySelector('.editor')?.value.includes('kind'));
  await tab.page.select('main select', 'replace');
  await edit(['replicas: 3', 'replicas: -3']);
  await tab.see('.message', 'spec.replicas');
  await tab.go('#/rejected');
  await tab.see('.card', 'Validation');
  await tab.see('.card code', 'spec.replicas');
});

test('definitions and health are shown', async () => {
  await tab.go('#/object/apiextensions.k8s.io/customresourcedefinitions/-/ships.example.org/definition');
  await tab.see('.schema-tree', 'What the ship is like.');
  await tab.see('.rule', 'self.sails < 10 (too many sails)');
  await tab.go('#/health');
  await tab.see('.checks', '/readyz: ok');
  await tab.see('.plot', 'MB');
});

test('the keyboard reaches everything', async () => {
  const press = (key) => tab.page.keyboard.press(key);
  await press(':');
  await tab.page.keyboard.type('deploy');
  await press('Enter');
  await tab.see('.grid-row', 'web');
  await tab.see('.count', 'live');
  await press('/');
  await tab.page.keyboard.type('web');
  await press('Escape');
  await press('h');
  await tab.see('[role=tab][aria-selected=true]', 'History');
  await press('f');
  await tab.see('[role=tab][aria-selected=true]', 'Managers');
  await press('?');
  await tab.see('dialog', 'Relations');
  await press('Escape');
  await press('Escape');
  await tab.see('h1', 'Deployment');
  await tab.until('the list', () => document.querySelector('[role=grid]') !== null);
});

/** Pages, and what is there when they are complete. */
const PAGES = [
  ['#/', '.card'], ['#/list/-/pods?ns=shop', '.grid-row'], ['#/object/apps/deployments/shop/web/yaml', '.line'],
  ['#/object/-/configmaps/shop/settings/edit', '.editor'], ['#/object/-/configmaps/shop/settings/history', '.line'],
  ['#/object/-/configmaps/shop/settings/fields', '.blame'], ['#/object/apps/deployments/shop/web/relations', '.node'],
  ['#/object/-/configmaps/shop/settings/cel', '.line'], ['#/timeline?ns=shop', '.line'],
  ['#/object/apps/deployments/shop/web/events', 'td'], ['#/access?verb=get&resource=pods', 'td'], ['#/rejected', '.card'],
  ['#/health', '.checks details'], ['#/schema/apps/deployments', '.schema-tree li'],
];
const visit = async ([page, selector]) => {
  await tab.go(page);
  await tab.until(page, (css, hash) => location.hash === hash && document.querySelector(`main ${css}`), selector, page);
};

test('axe finds no serious fault on any page, light and dark, and phones need no scrolling aside', async () => {
  const faults = [];
  const check = async (page, theme) => {
    await visit(page);
    for (const fault of await tab.axe()) faults.push(`${theme} ${page[0]}: ${fault}`);
  };
  for (const theme of ['light', 'dark']) {
    await tab.page.evaluate((name) => { document.documentElement.dataset.theme = name; }, theme);
    for (const page of theme === 'light' ? PAGES : PAGES.slice(1, 7)) await check(page, theme);
  }
  await tab.page.setViewport({ width: 390, height: 800 });
  for (const page of PAGES) {
    await visit(page);
    const width = await tab.page.evaluate(() => document.documentElement.scrollWidth);
    if (width > 390) faults.push(`${page[0]} is ${width} wide`);
  }
  await visit(PAGES[1]);
  await tab.shot('phone');
  await tab.page.setViewport({ width: 1280, height: 800 });
  assert.deepEqual(faults, []);
});

test('the page speaks Chinese', async () => {
  await tab.page.select('.tools select[aria-label=Language]', 'zh-CN');
  await tab.see('nav', '资源');
  assert.equal(await tab.page.evaluate(() => document.documentElement.lang), 'zh-CN');
  await tab.page.select('.tools select[aria-label=语言]', 'en');
  await tab.see('nav', 'Resources');
});

test('the page of a server asks for a token, and tells a user without rights so', async () => {
  const { status } = await all.api.send('POST', '/api/v1/namespaces/shop/serviceaccounts/nobody/token', { spec: {} });
  const context = await all.browser.createBrowserContext();
  const other = await Tab.open(context, `${all.url}/ui/`);
  await other.see('.sign-in', 'bearer token');
  await other.page.type('#token', 'wrong');
  await other.page.keyboard.press('Enter');
  await other.see('.error', 'does not accept this token');
  await other.page.type('#token', status.token);
  await other.page.keyboard.press('Enter');
  await other.see('nav', 'Resources');
  await other.go('#/list/-/secrets?ns=shop');
  await other.see('.error', 'You have no right to see this.');
  await other.go('#/object/-/configmaps/shop/settings/yaml');
  await other.see('.error', 'cannot get resource "configmaps"');
  assert.deepEqual(other.faults, []);
  await context.close();
});

test('forged requests are refused', async () => {
  const own = all.address.host;
  const bearer = { Authorization: `Bearer ${all.api.token}` };
  const status = async (headers, path = '/version', method = 'GET') => (await all.api.raw(method, path, headers)).status;
  assert.equal(await status(bearer), 200);
  assert.equal(await status({}), 401);
  assert.equal(await status({ Cookie: `token=${all.api.token}` }), 401);
  assert.equal(await status({}, `/version?token=${all.api.token}`), 401);
  assert.equal(await status({ ...bearer, Host: 'evil.example' }), 421);
  assert.equal(await status({ ...bearer, Host: `evil.example:${all.address.port}` }, '/ui/'), 421);
  assert.equal(await status({ ...bearer, Origin: 'http://evil.example' }), 403);
  assert.equal(await status({ ...bearer, Origin: `http://${own}` }), 200);
  assert.equal(await status({ ...bearer, 'Sec-Fetch-Site': 'cross-site' }), 403);
  assert.equal(await status({}, '/ui/'), 200);
  // Nobody else's rights: what would impersonate is not passed on.
  const forged = { ...bearer, 'Impersonate-User': 'nobody', 'X-Remote-User': 'nobody', 'Content-Type': 'application/json' };
  const review = { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' };
  const answer = await all.api.raw('POST', '/apis/authentication.k8s.io/v1/selfsubjectreviews', forged, JSON.stringify(review));
  assert.match(JSON.parse(answer.text).status.userInfo.username, /admin/);
});

test('credentials come from a program, requests go through a proxy, as another user', async () => {
  const runs = join(all.dir, 'runs');
  // Credentials that have ended: the program runs for each request.
  const printed = { kind: 'ExecCredential', apiVersion: 'client.authentication.k8s.io/v1',
    status: { token: all.token, expirationTimestamp: '2020-01-01T00:00:00Z' } };
  const proxy = await startProxy();
  const config = load(readFileSync(all.kubeconfig, 'utf8'));
  config.clusters[0].cluster['proxy-url'] = `http://127.0.0.1:${proxy.address().port}`;
  config.users[0].user = {
    exec: { apiVersion: printed.apiVersion, command: 'sh', args: ['-c', `echo x >> "$RUNS"; echo '${JSON.stringify(printed)}'`],
      env: [{ name: 'RUNS', value: runs }], interactiveMode: 'Never' },
    as: 'bob', 'as-groups': ['system:masters'],
  };
  const kubeconfig = join(all.dir, 'exec.kubeconfig');
  writeFileSync(kubeconfig, JSON.stringify(config));
  const ui = await openUi(kubeconfig);
  try {
    const review = { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' };
    const { status } = await ui.api.send('POST', '/apis/authentication.k8s.io/v1/selfsubjectreviews', review);
    assert.equal(status.userInfo.username, 'bob');
    assert.ok((await ui.api.send('GET', '/api/v1/namespaces')).items.length > 0);
    assert.equal(readFileSync(runs, 'utf8'), 'x\nx\nx\n', 'at the start and for each request');
    assert.ok(proxy.tunnels > 0);
  } finally {
    await ui.stop();
    proxy.close();
  }
});

test('nothing has failed in the page, and its policy was not violated', () => {
  assert.deepEqual(tab.faults, []);
});
