/**
 * The rows of a list: sorted, filtered, changed by events. No DOM, no clock. Rows are kept as small as
 * possible, since a list may have 100,000.
 */

/** Changes in one batch above which the view is made anew instead of changed row by row. */
const SINGLE_CHANGES_MAX = 200;

/**
 * @typedef {{key: string, namespace: string, name: string, version: string, created: string,
 *   cells: any[]}} Row
 * @typedef {{name: string, type: string, priority: number, description: string}} Column
 */

export class TableModel {
  constructor() {
    /** @type {Column[]} */
    this.columns = [];
    /** @type {Map<string, Row>} */
    this.rows = new Map();
    /** The rows that are shown, in order. @type {Row[]} */
    this.view = [];
    this.filter = '';
    /** @type {{column: number, descending: boolean}|null} */
    this.sort = null;
  }

  /** Adds a chunk of a list. */
  addTable(table) {
    if (table.columnDefinitions?.length) this.columns = table.columnDefinitions;
    const added = (table.rows ?? []).map(toRow);
    for (const row of added) this.rows.set(row.key, row);
    const shown = added.filter((row) => this.shows(row));
    if (this.sort) {
      this.view = merged(this.view, shown.sort(this.order()), this.order());
    } else {
      // Chunks arrive in the order of the server.
      for (const row of shown) this.view.push(row);
    }
  }

  /** Applies events `{type, object: Table}`. Returns the number of rows that changed. */
  applyEvents(events) {
    const single = events.length <= SINGLE_CHANGES_MAX;
    let count = 0;
    for (const { type, object } of events) {
      if (type === 'BOOKMARK') continue;
      for (const data of object.rows ?? []) {
        const row = toRow(data);
        const old = this.rows.get(row.key);
        if (old && single) this.remove(old);
        if (type === 'DELETED') {
          this.rows.delete(row.key);
        } else {
          this.rows.set(row.key, row);
          if (single) this.insert(row);
        }
        count += 1;
      }
    }
    if (!single) this.refresh();
    return count;
  }

  /** Sets the text that rows must contain. */
  setFilter(text) {
    this.filter = text.toLowerCase();
    this.refresh();
  }

  /** Sorts by a column; again by the same column turns the order round, a third time ends it. */
  sortBy(column) {
    if (this.sort?.column !== column) this.sort = { column, descending: false };
    else if (!this.sort.descending) this.sort = { column, descending: true };
    else this.sort = null;
    this.refresh();
  }

  /** Makes the view anew. */
  refresh() {
    this.view = [...this.rows.values()].filter((row) => this.shows(row)).sort(this.order());
  }

  shows(row) {
    if (!this.filter) return true;
    if (row.namespace.includes(this.filter) || row.name.includes(this.filter)) return true;
    return row.cells.some((cell) => String(cell).toLowerCase().includes(this.filter));
  }

  insert(row) {
    if (this.shows(row)) this.view.splice(lowerBound(this.view, row, this.order()), 0, row);
  }

  remove(row) {
    const order = this.order();
    let at = lowerBound(this.view, row, order);
    // Rows that compare as equal differ by key: the order is total.
    if (this.view[at] !== row) at = this.view.indexOf(row);
    if (at >= 0) this.view.splice(at, 1);
  }

  /** The comparison of rows: the chosen column, then namespace and name. */
  order() {
    if (!this.sort) return byKey;
    const { column, descending } = this.sort;
    const sign = descending ? -1 : 1;
    const compare = isAge(this.columns[column])
      ? (a, b) => -text(a.created, b.created)
      : (a, b) => compareCells(a.cells[column], b.cells[column]);
    return (a, b) => sign * compare(a, b) || byKey(a, b);
  }
}

/** Whether a column shows the time since the creation, which the page computes itself. */
export const isAge = (column) => column?.name === 'Age';

const text = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
const byKey = (a, b) => text(a.namespace, b.namespace) || text(a.name, b.name);

/** Compares cells: numbers by value, also those at the start of a text (`3/5`, `10 (2m ago)`). */
export function compareCells(a, b) {
  const numbers = [Number.parseFloat(a), Number.parseFloat(b)];
  if (numbers.every(Number.isFinite) && numbers[0] !== numbers[1]) return numbers[0] - numbers[1];
  return text(String(a ?? ''), String(b ?? ''));
}

/** Merges two sorted lists. */
function merged(left, right, order) {
  const result = [];
  let at = 0;
  for (const row of right) {
    while (at < left.length && order(left[at], row) <= 0) result.push(left[at++]);
    result.push(row);
  }
  while (at < left.length) result.push(left[at++]);
  return result;
}

function lowerBound(sorted, row, order) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (order(sorted[middle], row) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

function toRow({ cells, object }) {
  const meta = object?.metadata ?? {};
  const namespace = meta.namespace ?? '';
  const name = meta.name ?? String(cells[0]);
  return {
    key: `${namespace}/${name}`,
    namespace,
    name,
    version: meta.resourceVersion ?? '',
    created: meta.creationTimestamp ?? '',
    cells,
  };
}

/** The age of a timestamp, as kubectl prints it: `45s`, `3m12s`, `5h`, `12d`, `2y45d`. */
export function age(created, now) {
  const seconds = Math.floor((now - Date.parse(created)) / 1000);
  if (!Number.isFinite(seconds)) return '';
  if (seconds < 0) return '0s';
  if (seconds < 120) return `${seconds}s`;
  const pair = (large, a, small, b) => (small ? `${large}${a}${small}${b}` : `${large}${a}`);
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10) return pair(minutes, 'm', seconds % 60, 's');
  if (minutes < 180) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 8) return pair(hours, 'h', minutes % 60, 'm');
  if (hours < 48) return `${hours}h`;
  const days = Math.floor(hours / 24);
  if (hours < 192) return pair(days, 'd', hours % 24, 'h');
  if (days < 730) return `${days}d`;
  const years = Math.floor(days / 365);
  return years < 8 ? pair(years, 'y', days % 365, 'd') : `${years}y`;
}
