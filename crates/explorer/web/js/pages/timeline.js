/** A namespace at any time that the server remembers: a scrubber over its changes, and what each changed. */

import { button, h, replace } from '../dom.js';
import { withoutBookkeeping } from '../blame.js';
import { diffLines, hunks } from '../diff.js';
import { diffViewLines, LinesView } from '../lines_view.js';
import { lastChange } from '../revisions.js';
import { go, objectHref } from '../router.js';
import { state } from '../state.js';
import { readNamespace } from '../timeline.js';
import { toLines } from '../yaml_writer.js';
import { t } from '../strings.js';
import * as keys from '../keys.js';

const SIGNS = { added: '+', removed: '-', changed: '~', '': ' ' };

export function show({ route, main, signal }) {
  const page = new Page(main, signal, route.params.get('ns') || state.namespace || 'default');
  page.load();
  return t('timeline');
}

const textLines = (object) => (object ? toLines(withoutBookkeeping(object)).map((line) => line.text) : []);

class Page {
  constructor(main, signal, namespace) {
    this.signal = signal;
    this.namespace = namespace;
    this.rows = [];
    this.timeline = null;
    this.slider = h('input', {
      type: 'range', min: 0, max: 0, value: 0, class: 'scrubber', 'aria-label': t('timeline'),
      oninput: () => this.moveTo(Number(this.slider.value)),
    });
    this.caption = h('p', { class: 'status', role: 'status' });
    this.note = h('p', { class: 'hint' });
    this.list = new LinesView({ label: t('objects'), isYaml: false, gutter: () => null, onCursor: (at) => this.choose(at) });
    this.view = new LinesView({ label: t('difference'), gutter: () => null });
    for (const view of [this.list, this.view]) view.element.classList.add('difference');
    replace(main,
      h('div', { class: 'bar' }, h('h1', {}, t('timeline'), ' · ', h('bdi', {}, this.namespace)),
        button(t('again'), () => this.load()), button(t('openObject'), () => this.open())),
      this.slider, this.caption, this.note,
      h('div', { class: 'split even' }, this.list.element, this.view.element));
    keys.bind({
      ArrowLeft: { run: () => this.step(-1), text: 'older' },
      ArrowRight: { run: () => this.step(1), text: 'newer' },
      Enter: { run: () => this.open(), text: 'openObject' },
      ...this.list.keys(),
    }, signal);
    signal.addEventListener('abort', () => {
      this.list.close();
      this.view.close();
    });
  }

  async load() {
    this.caption.textContent = t('state_loading');
    const { timeline, failed } = await readNamespace(state.resources, this.namespace, this.signal);
    if (this.signal.aborted) return;
    this.timeline = timeline;
    this.note.textContent = failed.length > 0 ? `${t('notReadable')} ${failed.join(', ')}` : '';
    this.moveTo(timeline.changes.length);
  }

  step(by) {
    if (this.timeline) this.moveTo(this.timeline.at + by);
  }

  moveTo(at) {
    this.timeline.moveTo(at);
    const { changes } = this.timeline;
    const last = this.timeline.last();
    this.slider.max = changes.length;
    this.slider.value = this.timeline.at;
    this.caption.textContent = `${this.timeline.at} / ${changes.length} · ${this.describe(last)}`;
    this.slider.setAttribute('aria-valuetext', this.caption.textContent);
    this.rows = this.timeline.rows();
    this.list.setLines(this.rows.map(({ resource, object, kind }) => ({
      text: `${SIGNS[kind]} ${resource.kind} ${object.metadata.name}`, kind: kind === 'changed' ? 'cursor' : kind,
    })));
    const changed = this.rows.findIndex(({ kind }) => kind !== '');
    if (changed >= 0) this.list.moveTo(changed);
    else this.choose(0);
  }

  /** One change in words: its version, what was done to which object, by whom and when. */
  describe(change) {
    if (!change) return t('before');
    const by = change.after && lastChange(change.after, change.before);
    const when = change.after ? by?.time : change.object.metadata.deletionTimestamp;
    const what = !change.after ? t('deleted') : change.before ? t('changed') : t('created');
    return [change.object.metadata.resourceVersion, `${change.resource.kind} ${change.object.metadata.name} ${what}`, by?.manager, when]
      .filter(Boolean).join(' · ');
  }

  /** Shows what the change did to an object, or the object as it was. */
  choose(at) {
    const row = this.rows[at];
    this.chosen = row ?? null;
    if (!row) {
      this.view.setLines([]);
    } else if (row.kind === '') {
      this.view.setLines(textLines(row.object).map((text) => ({ text: `  ${text}` })));
    } else {
      const { before, after } = this.timeline.last();
      const difference = diffLines(textLines(before), textLines(after));
      this.view.setLines(diffViewLines(before && after ? hunks(difference) : difference));
    }
  }

  open() {
    if (this.chosen) go(objectHref(this.chosen.resource, this.namespace, this.chosen.object.metadata.name, 'history'));
  }
}
