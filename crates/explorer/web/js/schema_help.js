/** The panel that explains a field: its path, type, description and rules. */

import { h, replace } from './dom.js';
import { t } from './strings.js';
import { load } from './schema.js';

/** `spec.containers[0].image` */
export function pathText(path) {
  return path.map((step, at) => {
    if (typeof step === 'number') return `[${step}]`;
    if (/^[A-Za-z0-9_-]+$/.test(step)) return at ? `.${step}` : step;
    return `[${JSON.stringify(step)}]`;
  }).join('');
}

export class SchemaHelp {
  constructor(resource) {
    this.schema = null;
    this.path = [];
    this.element = h('aside', { class: 'schema-help', 'aria-label': t('fieldHelp') });
    this.ready = load(resource).then((schema) => { this.schema = schema; this.show(this.path); }, () => {});
  }

  /** Explains the field at a path. */
  show(path, extra = null) {
    this.path = path;
    const found = this.schema?.at(path);
    const parent = path.length ? this.schema?.at(path.slice(0, -1)) : null;
    const isRequired = parent?.required.includes(path[path.length - 1]);
    replace(this.element,
      h('h2', {}, h('code', {}, pathText(path) || '.')),
      found && h('p', { class: 'type' }, found.typeName(), isRequired && ` · ${t('required')}`),
      extra,
      found && h('p', {}, found.description),
      found && found.rules().map((rule) => h('p', {}, h('code', {}, rule))),
      !found && this.schema && h('p', {}, t('unknownField')));
  }
}
