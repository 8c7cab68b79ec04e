import assert from 'node:assert/strict';
import test from 'node:test';
import { age, compareCells, TableModel } from '../../web/js/table_model.js';

const row = (name, cells = [name, 1], version = '1') => ({
  cells, object: { metadata: { namespace: 'n', name, resourceVersion: version, creationTimestamp: `2026-01-0${name.length}T00:00:00Z` } },
});
const table = (...names) => ({ columnDefinitions: [{ name: 'Name' }, { name: 'Count' }], rows: names.map((name) => row(name)) });
const names = (model) => model.view.map((one) => one.name).join(' ');

function filled(...all) {
  const model = new TableModel();
  model.addTable(table(...all));
  return model;
}

test('chunks are added in the order of the server, events where they belong', () => {
  const model = filled('a', 'c');
  model.addTable(table('e'));
  assert.equal(names(model), 'a c e');
  model.applyEvents([{ type: 'ADDED', object: { rows: [row('d')] } }, { type: 'DELETED', object: { rows: [row('a')] } },
    { type: 'BOOKMARK', object: { rows: [row('zz')] } }]);
  assert.equal(names(model), 'c d e');
  model.applyEvents([{ type: 'MODIFIED', object: { rows: [row('d', ['d', 7])] } }]);
  assert.deepEqual(model.rows.get('n/d').cells, ['d', 7]);
  assert.equal(names(model), 'c d e');
});

test('a filter and a sorting hold for events, few or many', () => {
  for (const count of [3, 500]) {
    const model = filled();
    model.columns = [{ name: 'Name' }, { name: 'Count' }];
    model.setFilter('keep');
    model.sortBy(1);
    const events = Array.from({ length: count }, (_, at) => ({
      type: 'ADDED', object: { rows: [row(at % 2 ? `keep-${at}` : `drop-${at}`, ['', count - at])] },
    }));
    model.applyEvents(events);
    const cells = model.view.map((one) => one.cells[1]);
    assert.equal(cells.length, Math.floor(count / 2));
    assert.deepEqual(cells, [...cells].sort((a, b) => a - b));
    model.applyEvents([{ type: 'MODIFIED', object: { rows: [row('keep-1', ['', -5])] } }]);
    assert.equal(model.view[0].name, 'keep-1');
    model.sortBy(1);
    assert.equal(model.view[model.view.length - 1].name, 'keep-1');
  }
});

test('chunks of a sorted list are merged', () => {
  const model = filled();
  model.columns = [{ name: 'Name' }, { name: 'Count' }];
  model.sortBy(1);
  for (let chunk = 0; chunk < 5; chunk += 1) {
    model.addTable({ rows: Array.from({ length: 20 }, (_, at) => row(`r${chunk}-${at}`, ['', (at * 7 + chunk * 3) % 31])) });
  }
  const counts = model.view.map((one) => one.cells[1]);
  assert.equal(counts.length, 100);
  assert.deepEqual(counts, [...counts].sort((a, b) => a - b));
});

test('events keep the number of rows and no old ones', () => {
  const model = filled('a', 'b');
  for (let round = 0; round < 1000; round += 1) {
    model.applyEvents([{ type: 'MODIFIED', object: { rows: [row('a', ['a', round])] } }]);
  }
  assert.equal(model.rows.size, 2);
  assert.deepEqual(model.view.map((one) => one.cells[1]), [999, 1]);
});

test('cells compare by their numbers', () => {
  const sorted = ['10', '9', '1/2', '0/2', 'x'].sort(compareCells);
  assert.deepEqual(sorted, ['0/2', '1/2', '9', '10', 'x']);
  assert.ok(compareCells('3 (2m ago)', '12') < 0);
});

test('ages are those of kubectl', () => {
  const now = Date.parse('2026-06-01T00:00:00Z');
  for (const [seconds, expected] of [
    [0, '0s'], [119, '119s'], [120, '2m'], [599, '9m59s'], [600, '10m'], [10799, '179m'], [10800, '3h'], [28799, '7h59m'],
    [28800, '8h'], [172799, '47h'], [172800, '2d'], [176400, '2d1h'], [691200, '8d'], [63072000, '2y'], [63158400, '2y1d'], [-5, '0s'],
  ]) assert.equal(age(new Date(now - seconds * 1000).toISOString(), now), expected, seconds);
  assert.equal(age('', now), '');
});
