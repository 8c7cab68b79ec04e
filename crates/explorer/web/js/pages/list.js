/** The objects of a resource as the server's table, live: filter, selectors, sorting, 100,000 rows. */

import { button, field, h, replace } from '../dom.js';
import { ACCEPT, json, query, watch } from '../api.js';
import { collectionPath, fullName } from '../discovery.js';
import { go, href, listHref, objectHref } from '../router.js';
import { find, setNamespace, state } from '../state.js';
import { age, isAge, TableModel } from '../table_model.js';
import { VirtualList } from '../virtual_list.js';
import { t } from '../strings.js';
import * as keys from '../keys.js';

const CHUNK_ROWS = 500;
const ROW_HEIGHT = 28;
const CELL_CHARACTERS_MAX = 60;
/** Rows whose cells decide how wide a column is. */
const MEASURED_ROWS = 300;
/** Events that arrive within this time are applied together, in milliseconds. */
const BATCH_MS = 100;
const AGE_EVERY_MS = 5_000;

export function show({ route, main, signal }) {
  const [, group = '', plural = ''] = route.parts;
  const resource = find(group, plural);
  if (!resource) {
    replace(main, h('p', { class: 'error', role: 'alert' }, `${t('noResource')} ${plural} ${group}`));
    return plural;
  }
  new ListPage(resource, route.params, main, signal).start();
  return fullName(resource);
}

class ListPage {
  constructor(resource, params, main, signal) {
    this.resource = resource;
    this.signal = signal;
    this.namespace = resource.namespaced ? params.get('ns') ?? state.namespace : '';
    this.selectors = {
      labelSelector: params.get('labels') ?? '', fieldSelector: params.get('fields') ?? '',
    };
    this.model = new TableModel();
    this.isWide = false;
    this.selected = 0;
    /** The key of the selected row, which may move. */
    this.selectedKey = null;
    this.state = 'loading';
    this.main = main;
    this.build(params);
  }

  build(params) {
    const { resource } = this;
    this.filter = h('input', {
      type: 'search', 'aria-label': t('filter'), placeholder: `${t('filter')} (/)`, value: params.get('filter') ?? '',
      oninput: () => this.applyFilter(),
    });
    const selector = (name, label) => field(label, h('input', {
      type: 'text', value: this.selectors[name], spellcheck: 'false',
      onchange: (event) => this.select(name, event.target.value),
    }));
    this.count = h('span', { class: 'count', role: 'status' });
    this.error = h('p', { class: 'error', role: 'alert', hidden: true });
    this.head = h('div', { class: 'grid-head', role: 'row' });
    this.list = new VirtualList({
      rowHeight: ROW_HEIGHT, count: () => this.model.view.length,
      make: () => this.makeRow(), show: (row, at) => this.showRow(row, at),
      props: { class: 'virtual grid', role: 'grid', 'aria-label': fullName(resource) },
    });
    this.list.space.setAttribute('role', 'rowgroup');
    this.list.element.prepend(this.head);
    replace(this.main,
      h('div', { class: 'bar' },
        h('h1', {}, resource.kind, h('small', {}, ` ${resource.group}`)), this.count, this.filter,
        h('details', { class: 'selectors', open: Object.values(this.selectors).some(Boolean) },
          h('summary', {}, t('selectors')),
          selector('labelSelector', t('labels')), selector('fieldSelector', t('fieldsSelector'))),
        button(t('wide'), () => this.toggleWide(), { 'aria-pressed': 'false' }),
        h('a', { href: href(['schema', resource.group, resource.plural]) }, t('schema'))),
      this.error, this.list.element);
    this.signal.addEventListener('abort', () => this.list.close());
    this.bindKeys();
    this.list.element.focus({ preventScroll: true });
  }

  bindKeys() {
    const open = (tab) => ({ run: () => this.open(tab), text: `tab_${tab}` });
    const move = (step) => ({ run: () => this.move(step), text: step > 0 ? 'down' : 'up' });
    const end = (at) => ({ run: () => this.moveTo(at()), text: undefined });
    keys.bind({
      '/': { run: () => this.filter.focus(), text: 'filter' },
      j: move(1), k: move(-1), ArrowDown: move(1), ArrowUp: move(-1),
      PageDown: { run: () => this.move(20) }, PageUp: { run: () => this.move(-20) },
      g: end(() => 0), G: end(() => this.model.view.length - 1),
      Home: end(() => 0), End: end(() => this.model.view.length - 1),
      Enter: open('yaml'), y: open('yaml'), e: open('edit'), h: open('history'), f: open('fields'),
      r: open('relations'), v: open('events'),
      ...(this.resource.plural === 'pods' && !this.resource.group && { l: open('logs'), x: open('exec') }),
      w: { run: () => this.toggleWide(), text: 'wide' },
      n: { run: () => this.narrow(), text: 'narrow' },
    }, this.signal);
  }

  /** Shows only the namespace of the selected object, or all again. */
  narrow() {
    setNamespace(state.namespace ? '' : this.model.view[this.selected]?.namespace ?? '');
    const picker = document.querySelector('select.namespace');
    if (picker) picker.value = state.namespace;
    go(listHref(this.resource, { ns: state.namespace, from: Date.now().toString(36) }));
  }

  select(name, value) {
    this.selectors[name] = value.trim();
    go(listHref(this.resource, {
      ns: this.namespace, labels: this.selectors.labelSelector, fields: this.selectors.fieldSelector,
    }));
  }

  applyFilter() {
    this.model.setFilter(this.filter.value);
    this.selected = 0;
    this.selectedKey = null;
    this.list.element.scrollTop = 0;
    this.redraw();
  }

  toggleWide() {
    this.isWide = !this.isWide;
    this.main.querySelector('[aria-pressed]').setAttribute('aria-pressed', String(this.isWide));
    this.drawHead();
    this.redraw();
  }

  move(step) { this.moveTo(this.selected + step); }

  moveTo(index) {
    this.selected = Math.max(0, Math.min(this.model.view.length - 1, index));
    this.selectedKey = this.model.view[this.selected]?.key ?? null;
    this.list.reveal(this.selected);
    this.list.refreshNow();
    this.list.element.setAttribute('aria-activedescendant', `row-${this.selected}`);
  }

  open(tab) {
    const row = this.model.view[this.selected];
    if (row) go(objectHref(this.resource, row.namespace, row.name, tab));
  }

  /** The columns that are shown: `[index in the cells, column]`. */
  columns() {
    return this.model.columns.map((column, at) => [at, column])
      .filter(([, column]) => this.isWide || column.priority === 0);
  }

  get hasNamespaceColumn() { return this.resource.namespaced && !this.namespace; }

  drawHead() {
    const { sort } = this.model;
    const head = ([at, column]) => {
      const isSorted = sort?.column === at;
      const direction = sort?.descending ? 'descending' : 'ascending';
      return h('div', { role: 'columnheader', 'aria-sort': isSorted ? direction : 'none', title: column.description },
        h('button', {
          type: 'button', tabindex: -1,
          onclick: () => { this.model.sortBy(at); this.drawHead(); this.redraw(); },
        }, column.name, isSorted && (sort.descending ? ' ↓' : ' ↑')));
    };
    replace(this.head,
      this.hasNamespaceColumn && h('div', { role: 'columnheader' }, t('namespace')),
      this.columns().map(head));
    const widths = this.columns().map(([at, column]) => this.width(column.name,
      this.model.view.slice(0, MEASURED_ROWS).map((row) => this.cellText(row, at))));
    if (this.hasNamespaceColumn) {
      widths.unshift(this.width(t('namespace'), this.model.view.slice(0, MEASURED_ROWS).map((row) => row.namespace)));
    }
    this.list.element.style.setProperty('--columns', widths.join(' '));
  }

  width(name, texts) {
    const longest = texts.reduce((most, text) => Math.max(most, text.length), name.length + 2);
    return `minmax(${Math.min(longest, CELL_CHARACTERS_MAX) + 2}ch, ${longest}fr)`;
  }

  cellText(row, at) {
    const column = this.model.columns[at];
    if (isAge(column) && row.created) return age(row.created, Date.now());
    return String(row.cells[at] ?? '');
  }

  makeRow() {
    const row = h('div', { class: 'grid-row', role: 'row' });
    row.addEventListener('click', () => this.moveTo(Number(row.dataset.index)));
    row.addEventListener('dblclick', () => this.open('yaml'));
    return row;
  }

  showRow(element, index) {
    const row = this.model.view[index];
    const columns = this.columns();
    const count = columns.length + (this.hasNamespaceColumn ? 1 : 0);
    while (element.childElementCount < count) element.append(h('div', { role: 'gridcell' }));
    while (element.childElementCount > count) element.lastChild.remove();
    element.dataset.index = index;
    element.id = `row-${index}`;
    element.setAttribute('aria-rowindex', index + 2);
    element.setAttribute('aria-selected', String(index === this.selected));
    let cell = element.firstChild;
    if (this.hasNamespaceColumn) {
      setText(cell, row.namespace);
      cell = cell.nextSibling;
    }
    for (const [at, column] of columns) {
      if (column.format === 'name') this.showName(cell, row);
      else setText(cell, this.cellText(row, at));
      cell = cell.nextSibling;
    }
  }

  showName(cell, row) {
    const link = cell.firstElementChild ?? cell.appendChild(h('a', { tabindex: -1 }));
    if (cell.childNodes.length > 1) cell.replaceChildren(link);
    setText(link, row.name);
    link.setAttribute('href', objectHref(this.resource, row.namespace, row.name));
  }

  redraw() {
    const { rows, view } = this.model;
    const shown = this.model.filter ? `${view.length.toLocaleString()} / ` : '';
    this.count.textContent = `${shown}${rows.size.toLocaleString()} ${t(`state_${this.state}`)}`;
    const moved = this.selectedKey === view[this.selected]?.key ? -1 : view.indexOf(rows.get(this.selectedKey));
    this.selected = Math.max(0, Math.min(moved >= 0 ? moved : this.selected, view.length - 1));
    this.list.element.setAttribute('aria-rowcount', view.length + 1);
    this.list.refresh();
  }

  async start() {
    const timer = setInterval(() => this.list.refresh(), AGE_EVERY_MS);
    this.signal.addEventListener('abort', () => clearInterval(timer));
    while (!this.signal.aborted) {
      try {
        const version = await this.load();
        if (await this.follow(version) !== 'expired') return;
        this.model = Object.assign(new TableModel(), { filter: this.model.filter, sort: this.model.sort });
      } catch (error) {
        if (this.signal.aborted) return;
        this.error.hidden = false;
        this.error.textContent = error.code === 403 ? `${t('noRights')} ${error.message}` : error.message;
        this.state = 'failed';
        this.redraw();
        return;
      }
    }
  }

  get path() { return collectionPath(this.resource, this.namespace); }

  /** Lists all chunks. Returns the version of the list. */
  async load() {
    this.state = 'loading';
    let next = '';
    let version = '';
    do {
      const path = this.path + query({ ...this.selectors, limit: CHUNK_ROWS, continue: next });
      const table = await json(path, { accept: ACCEPT.table, signal: this.signal });
      const isFirst = version === '';
      version = table.metadata?.resourceVersion ?? '0';
      next = table.metadata?.continue ?? '';
      this.model.addTable(asTable(table));
      if (isFirst) {
        if (this.filter.value) this.model.setFilter(this.filter.value);
        this.drawHead();
        performance.mark('keelson-first-rows');
      }
      this.redraw();
    } while (next);
    return version;
  }

  /** Applies events until the list must be read again. */
  async follow(version) {
    if (!this.resource.verbs.includes('watch')) {
      this.state = 'complete';
      this.redraw();
      return 'complete';
    }
    let batch = [];
    let timer = 0;
    const apply = () => {
      timer = 0;
      const events = batch;
      batch = [];
      if (this.model.applyEvents(events) > 0) this.redraw();
    };
    return watch(this.path + query(this.selectors), version, {
      accept: ACCEPT.table, signal: this.signal,
      onEvent: (event) => {
        batch.push({ type: event.type, object: asTable(event.object) });
        timer ||= setTimeout(apply, BATCH_MS);
      },
      onState: (name) => { this.state = name; this.redraw(); },
    });
  }
}

/** A server that prints no tables sends the objects: their names and ages are shown. */
function asTable(document) {
  if (document.kind === 'Table') return document;
  // An empty list of metadata has null.
  const items = 'items' in document ? document.items ?? [] : [document];
  return {
    columnDefinitions: [
      { name: 'Name', type: 'string', format: 'name', priority: 0, description: '' },
      { name: 'Age', type: 'string', format: '', priority: 0, description: '' },
    ],
    rows: items.map((object) => ({ cells: [object.metadata?.name, ''], object })),
  };
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
