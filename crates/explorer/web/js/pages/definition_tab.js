/** The schema of a CustomResourceDefinition as a tree, version by version, with its rules. */

import { h, replace, select } from '../dom.js';
import { Schema } from '../schema.js';
import { schemaTree } from '../schema_tree.js';
import { find } from '../state.js';
import { listHref } from '../router.js';
import { t } from '../strings.js';

export function show({ body, onObject }) {
  let chosen = null;
  const draw = (object) => {
    const { versions = [], group, names, scope } = object.spec;
    const version = versions.find((one) => one.name === chosen) ?? versions.find((one) => one.storage) ?? versions[0];
    const options = versions.map((one) => [one.name,
      [one.name, one.storage && t('stored'), !one.served && t('notServed'), one.deprecated && t('deprecated')].filter(Boolean).join(' · ')]);
    const resource = find(group, names.plural);
    const root = new Schema({ components: { schemas: {} } }, version.schema?.openAPIV3Schema ?? {});
    const conditions = object.status?.conditions ?? [];
    replace(body,
      h('div', { class: 'bar' },
        select(options, version.name, (name) => { chosen = name; draw(object); }, { 'aria-label': t('version') }),
        h('span', {}, scope), resource && h('a', { href: listHref(resource) }, t('objects'))),
      h('ul', { class: 'legend' }, conditions.map((one) => h('li', { title: one.message }, `${one.type}: ${one.status}`))),
      root.rules().map((rule) => h('p', { class: 'rule' }, h('code', {}, rule))),
      h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': t('schema') }, schemaTree(root)));
  };
  onObject(draw);
}
