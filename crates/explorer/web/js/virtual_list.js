/**
 * A list of rows of equal height, of which only those in sight are in the document. Elements are used
 * again while the list scrolls, so that 100,000 rows cost as much as fifty.
 */

import { h } from './dom.js';

/** Rows that are made above and below those in sight. */
const SPARE_ROWS = 8;

export class VirtualList {
  /**
   * @param {{rowHeight: number, count: () => number, make: () => HTMLElement,
   *   show: (element: HTMLElement, index: number) => void, props?: object}} options `make` makes an
   *   empty row, `show` fills it.
   */
  constructor({ rowHeight, count, make, show, props = {} }) {
    this.rowHeight = rowHeight;
    this.count = count;
    this.make = make;
    this.show = show;
    /** @type {Map<number, HTMLElement>} */
    this.shown = new Map();
    this.free = [];
    this.space = h('div', { class: 'virtual-space', role: 'presentation' });
    this.element = h('div', { class: 'virtual', tabindex: 0, ...props }, this.space);
    this.element.addEventListener('scroll', () => this.update(), { passive: true });
    this.observer = new ResizeObserver(() => this.update());
    this.observer.observe(this.element);
    this.scheduled = 0;
  }

  /** Shows all rows again before the next frame: their contents or number have changed. */
  refresh() {
    if (this.scheduled) return;
    this.scheduled = requestAnimationFrame(() => {
      this.scheduled = 0;
      this.refreshNow();
    });
  }

  /** Shows all rows again. */
  refreshNow() {
    this.space.style.height = `${this.count() * this.rowHeight}px`;
    for (const [index, row] of this.shown) {
      if (index < this.count()) this.show(row, index);
    }
    this.update();
  }

  /** Makes rows that have come into sight, and takes away those that have left. */
  update() {
    const top = this.element.scrollTop;
    const height = this.element.clientHeight;
    const first = Math.max(0, Math.floor(top / this.rowHeight) - SPARE_ROWS);
    const last = Math.min(this.count(), Math.ceil((top + height) / this.rowHeight) + SPARE_ROWS);
    for (const [index, row] of this.shown) {
      if (index >= first && index < last) continue;
      this.shown.delete(index);
      this.free.push(row);
    }
    for (let index = first; index < last; index += 1) {
      if (this.shown.has(index)) continue;
      let row = this.free.pop();
      if (!row) {
        row = this.make();
        this.space.append(row);
      }
      row.hidden = false;
      row.style.transform = `translateY(${index * this.rowHeight}px)`;
      this.shown.set(index, row);
      this.show(row, index);
    }
    for (const row of this.free) row.hidden = true;
  }

  /** Scrolls as little as needed to show a row. */
  reveal(index) {
    const top = index * this.rowHeight;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + this.rowHeight > scrollTop + clientHeight) {
      this.element.scrollTop = top + this.rowHeight - clientHeight;
    }
    this.update();
  }

  /** Scrolls to the last row. */
  scrollToEnd() {
    this.space.style.height = `${this.count() * this.rowHeight}px`;
    this.element.scrollTop = this.element.scrollHeight;
    this.update();
  }

  /** Stops observing. */
  close() {
    this.observer.disconnect();
    if (this.scheduled) cancelAnimationFrame(this.scheduled);
  }
}
