/** Lines of text with a gutter and a cursor line: YAML, differences, logs. Only lines in sight exist. */

import { h } from './dom.js';
import { VirtualList } from './virtual_list.js';

const ROW_HEIGHT = 20;
/** Longer lines are cut in the view; what is copied is whole. */
const LINE_CHARACTERS_MAX = 2000;
const KEY = /^(\s*(?:- )*)((?:"(?:[^"\\]|\\.)*"|[^\s"':#][^:#]*?))(:)(?=\s|$)/;

export class LinesView {
  /**
   * @param {{label: string, isYaml?: boolean, onCursor?: (index: number) => void,
   *   gutter?: (index: number) => {text?: string, class?: string, title?: string}|null}} options
   */
  constructor({ label, isYaml = true, onCursor, gutter }) {
    this.isYaml = isYaml;
    this.onCursor = onCursor;
    this.gutter = gutter;
    /** @type {Array<{text: string, kind?: string}>} */
    this.lines = [];
    this.cursor = 0;
    this.list = new VirtualList({
      rowHeight: ROW_HEIGHT, count: () => this.lines.length,
      make: () => h('div', { class: 'line' },
        h('span', { class: 'gutter', 'aria-hidden': gutter ? null : 'true' }), h('code', {})),
      show: (row, at) => this.showLine(row, at),
      props: { class: 'virtual lines', role: 'region', 'aria-label': label },
    });
    this.element = this.list.element;
    this.element.addEventListener('click', (event) => {
      const row = event.target.closest('.line');
      if (row) this.moveTo(Number(row.dataset.index));
    });
  }

  setLines(lines) {
    this.lines = lines;
    this.cursor = Math.min(this.cursor, Math.max(0, lines.length - 1));
    this.list.refreshNow();
  }

  move(step) { this.moveTo(this.cursor + step); }

  moveTo(index) {
    this.cursor = Math.max(0, Math.min(this.lines.length - 1, index));
    this.list.reveal(this.cursor);
    this.list.refreshNow();
    this.onCursor?.(this.cursor);
  }

  showLine(row, at) {
    const line = this.lines[at];
    const isCursor = this.onCursor && at === this.cursor;
    row.className = `line ${line.kind ?? ''}${isCursor ? ' cursor' : ''}`;
    row.dataset.index = at;
    const [gutter, code] = row.children;
    const note = this.gutter ? this.gutter(at) : { text: String(at + 1) };
    gutter.className = `gutter ${note?.class ?? ''}`;
    gutter.textContent = note?.text ?? '';
    gutter.title = note?.title ?? '';
    const { text } = line;
    const cut = text.length > LINE_CHARACTERS_MAX
      ? `${text.slice(0, LINE_CHARACTERS_MAX)} … (${text.length.toLocaleString()})` : text;
    code.replaceChildren();
    const key = this.isYaml && !line.isContinuation && KEY.exec(cut);
    if (key) {
      code.append(key[1], h('b', {}, key[2]), cut.slice(key[1].length + key[2].length));
    } else {
      code.append(cut || ' ');
    }
  }

  /** The keys that move the cursor. */
  keys() {
    const move = (step, text) => ({ run: () => this.move(step), text });
    return {
      j: move(1, 'down'), k: move(-1, 'up'), ArrowDown: move(1), ArrowUp: move(-1),
      PageDown: move(20), PageUp: move(-20),
      g: { run: () => this.moveTo(0) }, G: { run: () => this.moveTo(this.lines.length - 1) },
    };
  }

  close() { this.list.close(); }
}

/** Lines of a difference for a {@link LinesView}: with signs, and a line where something is left out. */
export function diffViewLines(difference) {
  const signs = { same: ' ', removed: '-', added: '+' };
  return difference.map((line) => (line === null
    ? { text: '⋯', kind: 'left-out' } : { text: `${signs[line.kind]} ${line.text}`, kind: line.kind }));
}
