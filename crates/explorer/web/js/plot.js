/** Small line plots. */

import { h, s } from './dom.js';

const SIZE = { width: 300, height: 90 };
const POINTS_MAX = 120;

export class Plot {
  /** @param {string} title @param {(value: number) => string} format */
  constructor(title, format) {
    this.format = format;
    /** @type {Map<string, Array<number|null>>} */
    this.series = new Map();
    this.svg = s('svg', { viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, role: 'img', 'aria-label': title, preserveAspectRatio: 'none' });
    this.legend = h('ul', { class: 'legend' });
    this.element = h('section', { class: 'card plot' }, h('h2', {}, title), this.svg, this.legend);
    this.length = 0;
  }

  /** Adds one point of each series: `{name: value}`; `null`: nothing was measured. */
  add(values) {
    this.length += 1;
    for (const [name, value] of Object.entries(values)) {
      if (!this.series.has(name)) this.series.set(name, new Array(this.length - 1).fill(null));
      this.series.get(name).push(value);
    }
    for (const points of this.series.values()) {
      while (points.length < this.length) points.push(null);
      if (points.length > POINTS_MAX) points.splice(0, points.length - POINTS_MAX);
    }
    this.length = Math.min(this.length, POINTS_MAX);
    this.draw();
  }

  draw() {
    const all = [...this.series.values()].flat().filter((value) => value !== null);
    const top = Math.max(...all, 0) * 1.1 || 1;
    const x = (at) => (at / (POINTS_MAX - 1)) * SIZE.width;
    const y = (value) => SIZE.height - 2 - (value / top) * (SIZE.height - 4);
    const paths = [...this.series].map(([, points], index) => {
      let isDown = false;
      const path = points.map((value, at) => {
        if (value === null) { isDown = false; return ''; }
        const step = `${isDown ? 'L' : 'M'}${x(at).toFixed(1)},${y(value).toFixed(1)}`;
        isDown = true;
        return step;
      }).join('');
      return s('path', { d: path, class: `series-${index % 8}` });
    });
    this.svg.replaceChildren(...paths);
    this.legend.replaceChildren(...[...this.series].map(([name, points], index) => {
      const last = points[points.length - 1];
      return h('li', { class: `owner-${index % 8}` }, `${name} `, h('strong', {}, last === null ? '–' : this.format(last)));
    }));
  }
}
