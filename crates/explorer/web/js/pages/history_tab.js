/** The revisions of an object, a scrubber over them, and the difference of any two. */

import { button, field, h, replace, select } from '../dom.js';
import { json, query, watch } from '../api.js';
import { withoutBookkeeping } from '../blame.js';
import { diffLines, differs, hunks } from '../diff.js';
import { collectionPath } from '../discovery.js';
import { diffViewLines, LinesView } from '../lines_view.js';
import { lastChange, objectAt, olderThan } from '../revisions.js';
import { toLines } from '../yaml_writer.js';
import { t } from '../strings.js';
import * as keys from '../keys.js';

const LOADED_AT_ONCE = 50;

export async function show(context) {
  const page = new History(context);
  await page.start();
}

class History {
  constructor(context) {
    this.context = context;
    /** Oldest first. */
    this.revisions = [];
    this.at = 0;
    this.from = null;
    this.isWhole = false;
    this.end = null;
    const { body, signal } = context;
    this.slider = h('input', {
      type: 'range', min: 0, max: 0, value: 0, 'aria-label': t('revision'), class: 'scrubber',
      oninput: () => this.moveTo(Number(this.slider.value)),
    });
    this.caption = h('p', { class: 'status', role: 'status' });
    this.pickers = h('div', { class: 'row' });
    this.note = h('p', { class: 'hint' });
    this.view = new LinesView({ label: t('difference'), gutter: () => null });
    this.view.element.classList.add('difference');
    this.whole = button(t('wholeText'), () => {
      this.isWhole = !this.isWhole;
      this.whole.setAttribute('aria-pressed', String(this.isWhole));
      this.draw();
    }, { 'aria-pressed': 'false' });
    this.older = button(t('older'), () => this.loadOlder());
    replace(body, h('div', { class: 'bar' }, this.pickers, this.whole, this.older), this.slider,
      this.caption, this.note, this.view.element);
    keys.bind({
      ArrowLeft: { run: () => this.moveTo(this.at - 1), text: 'older' },
      ArrowRight: { run: () => this.moveTo(this.at + 1), text: 'newer' },
      ...this.view.keys(),
    }, signal);
    signal.addEventListener('abort', () => this.view.close());
  }

  /** Begins with the newest state that there is: of now, or of just before the deletion. */
  async start() {
    const { resource, namespace, signal } = this.context;
    const path = collectionPath(resource, namespace);
    const list = await json(`${path}?limit=1`, { signal });
    const version = list.metadata.resourceVersion;
    const { object } = await objectAt(this.context, version);
    if (object) this.add(object);
    await this.loadOlder(object ? undefined : version);
    const selector = query({ fieldSelector: `metadata.name=${this.context.name}` });
    if (!resource.verbs.includes('watch')) return;
    await watch(path + selector, version, {
      signal, onEvent: ({ type, object: changed }) => { if (type !== 'BOOKMARK') this.add(changed, type === 'DELETED'); },
    });
  }

  add(object, isDeletion = false) {
    const wasLast = this.at >= this.revisions.length - 1;
    const version = object.metadata.resourceVersion;
    if (this.revisions.some((one) => one.metadata.resourceVersion === version)) return;
    this.revisions.push(Object.assign(object, { isDeletion }));
    if (wasLast) this.at = this.revisions.length - 1;
    this.draw();
  }

  async loadOlder(version = this.revisions[0]?.metadata.resourceVersion) {
    if (!version) return;
    this.older.disabled = true;
    const { found, end } = await olderThan(this.context, version, LOADED_AT_ONCE);
    this.revisions.unshift(...found.reverse());
    this.at += found.length;
    this.end = end;
    this.older.disabled = end !== null;
    this.draw();
  }

  moveTo(at) {
    this.at = Math.max(0, Math.min(this.revisions.length - 1, at));
    this.from = null;
    this.draw();
  }

  label(at) {
    const one = this.revisions[at];
    const change = lastChange(one, this.revisions[at - 1]);
    return [one.metadata.resourceVersion, one.isDeletion && t('deleted'), change?.manager, change?.time]
      .filter(Boolean).join(' · ');
  }

  draw() {
    const count = this.revisions.length;
    if (count === 0) {
      this.caption.textContent = t('noRevisions');
      return;
    }
    this.slider.max = count - 1;
    this.slider.value = this.at;
    this.slider.setAttribute('aria-valuetext', this.label(this.at));
    const from = this.from ?? this.at - 1;
    const options = this.revisions.map((_, at) => [String(at), this.label(at)]).reverse();
    replace(this.pickers,
      field(t('from'), select([['-1', t('nothing')], ...options], String(from), (value) => { this.from = Number(value); this.draw(); })),
      field(t('to'), select(options, String(this.at), (value) => { this.from ??= from; this.at = Number(value); this.draw(); })));
    this.caption.textContent = `${t('revision')} ${this.at + 1} / ${count} · ${this.label(this.at)}`;
    this.note.textContent = { expired: t('historyExpired'), absent: t('historyBegins') }[this.end] ?? '';
    const lines = (at) => (at < 0 ? [] : toLines(withoutBookkeeping(this.plain(at))).map((line) => line.text));
    const difference = diffLines(lines(from), lines(this.at));
    const shown = this.isWhole || from < 0 || !differs(difference) ? difference : hunks(difference);
    this.view.setLines(diffViewLines(shown));
  }

  plain(at) {
    const { isDeletion: _, ...object } = this.revisions[at];
    return object;
  }
}
