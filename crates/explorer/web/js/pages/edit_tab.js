/**
 * Edits an object: the text is YAML, what is sent is a server-side apply of the changed fields, or a
 * replacement. A dry run shows the difference before anything is written.
 */

import { button, h, replace, select } from '../dom.js';
import { ApiError, isNewer, json } from '../api.js';
import { applyConfig, MANAGER, removedPaths } from '../apply_config.js';
import { withoutBookkeeping, withoutManagedFields } from '../blame.js';
import { diffLines, differs, hunks } from '../diff.js';
import { stringifyExact } from '../json_exact.js';
import { diffViewLines, LinesView } from '../lines_view.js';
import { explain } from '../rejections.js';
import { pathText, SchemaHelp } from '../schema_help.js';
import { pathAt } from '../yaml_path.js';
import { toYaml, toLines } from '../yaml_writer.js';
import { t } from '../strings.js';

const APPLY_TYPE = 'application/apply-patch+yaml';

export function show(context) {
  const editor = new Editor(context);
  context.onObject((object) => editor.receive(object));
}

class Editor {
  constructor({ resource, path, body, signal }) {
    Object.assign(this, { resource, path, signal });
    this.before = null;
    this.mode = 'apply';
    this.force = false;
    this.help = new SchemaHelp(resource);
    this.numbers = h('pre', { class: 'numbers', 'aria-hidden': 'true' });
    this.text = h('textarea', {
      class: 'editor', spellcheck: 'false', autocapitalize: 'off', wrap: 'off', 'aria-label': t('editText'),
      oninput: () => this.changed(), onkeyup: () => this.explainField(), onclick: () => this.explainField(),
      onscroll: () => { this.numbers.scrollTop = this.text.scrollTop; },
      onkeydown: (event) => this.typed(event),
    });
    this.message = h('div', { class: 'message', role: 'status' });
    this.result = h('div', { class: 'result' });
    this.write = button(t('write'), () => this.send(false), { class: 'primary', disabled: true });
    this.newer = h('p', { class: 'warning', role: 'status', hidden: true }, t('newerVersion'), ' ',
      button(t('reload'), () => this.load(this.latest)));
    const modes = [['apply', t('modeApply')], ['replace', t('modeReplace')]];
    replace(body, h('div', { class: 'bar' },
      select(modes, this.mode, (mode) => { this.mode = mode; this.changed(); }, { 'aria-label': t('how') }),
      button(t('preview'), () => this.send(true), { title: 'Ctrl+Enter' }), this.write),
    this.newer, this.message,
    h('div', { class: 'split' },
      h('div', { class: 'edit-area' }, this.numbers, this.text),
      h('div', { class: 'edit-side' }, this.result, this.help.element)));
  }

  /**
   * A state of the object: a newer one replaces the text only while nothing has been edited. The watch may
   * tell of this page's own write after its answer, which must not take the message away.
   */
  receive(object) {
    if (this.before && !isNewer(object, this.before)) return;
    this.latest = object;
    if (!this.before || this.text.value === this.original) this.load(object);
    else this.newer.hidden = false;
  }

  load(object) {
    this.before = object;
    this.original = toYaml(withoutManagedFields(object));
    this.text.value = this.original;
    this.newer.hidden = true;
    this.changed();
  }

  changed() {
    this.write.disabled = true;
    this.force = false;
    replace(this.result);
    replace(this.message);
    const count = this.text.value.split('\n').length;
    if (count !== this.lineCount) {
      this.lineCount = count;
      this.numbers.textContent = Array.from({ length: count }, (_, at) => at + 1).join('\n');
    }
  }

  typed(event) {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) this.send(true);
  }

  explainField() {
    const before = this.text.value.slice(0, this.text.selectionStart);
    const lines = this.text.value.split('\n');
    this.help.show(pathAt(lines, before.split('\n').length - 1));
  }

  /** The request of the edit, or `null` when the text cannot be sent. */
  async request() {
    let edited;
    try {
      // The parser is the largest module: it is loaded when it is needed.
      const { parseYaml } = await import('../yaml_reader.js');
      edited = parseYaml(this.text.value);
    } catch (error) {
      this.fail(error.message);
      return null;
    }
    if (edited?.metadata?.name !== this.before.metadata.name || edited.kind !== this.before.kind) {
      this.fail(t('keepName'));
      return null;
    }
    this.removed = removedPaths(withoutManagedFields(this.before), edited);
    if (this.mode === 'replace') {
      return { method: 'PUT', type: 'application/json', body: stringifyExact(edited), query: '' };
    }
    const config = applyConfig(this.before, edited, this.help.schema);
    return { method: 'PATCH', type: APPLY_TYPE, body: stringifyExact(config), query: this.force ? '&force=true' : '' };
  }

  async send(isDryRun) {
    await this.help.ready;
    const request = await this.request();
    if (!request) return;
    const query = `?fieldManager=${MANAGER}&fieldValidation=Strict${isDryRun ? '&dryRun=All' : ''}${request.query}`;
    try {
      const object = await json(this.path + query, { ...request, signal: this.signal });
      if (isDryRun) this.preview(object);
      else this.written(object);
    } catch (error) {
      if (error instanceof ApiError) this.rejected(error);
      else this.fail(error.message);
    }
  }

  preview(object) {
    const texts = [this.before, object].map((one) => toLines(withoutBookkeeping(one)).map((line) => line.text));
    const difference = diffLines(...texts);
    const view = new LinesView({ label: t('difference'), gutter: () => null });
    view.element.classList.add('difference');
    const isChange = differs(difference);
    const kept = this.mode === 'apply'
      ? this.removed.filter((path) => path.reduce((value, step) => value?.[step], object) !== undefined) : [];
    replace(this.result, h('h2', {}, t('difference')), isChange ? view.element : h('p', {}, t('noDifference')),
      kept.length > 0 && h('p', { class: 'warning' }, t('keptFields'), ' ',
        h('code', {}, kept.slice(0, 5).map(pathText).join(', '))));
    view.setLines(diffViewLines(hunks(difference)));
    this.signal.addEventListener('abort', () => view.close());
    this.write.disabled = !isChange;
    if (isChange) this.write.focus();
  }

  written(object) {
    this.load(object);
    replace(this.message, h('p', { class: 'success' }, t('written')));
  }

  rejected(error) {
    const { step, causes } = explain(error.code, error.status);
    const conflicts = causes.filter((cause) => cause.reason === 'FieldManagerConflict');
    if (conflicts.length === 0) {
      this.fail(error.message, causes.map((cause) => h('li', {}, h('code', {}, cause.field), ' ', cause.message)), step);
      return;
    }
    replace(this.message, h('div', { class: 'warning', role: 'alert' },
      h('p', {}, t('conflictText')),
      h('ul', {}, conflicts.map((cause) => h('li', {}, h('code', {}, cause.field), ' ', cause.message))),
      button(t('force'), () => { this.force = true; this.send(true); })));
  }

  fail(message, causes = [], step = null) {
    replace(this.message, h('div', { class: 'error', role: 'alert' },
      h('p', {}, step && h('strong', {}, `${t(`step_${step}`)}: `), message), h('ul', {}, causes)));
  }
}
