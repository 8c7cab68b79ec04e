/** The schema of a kind as a tree, from /openapi/v3. */

import { h, replace } from '../dom.js';
import { load } from '../schema.js';
import { schemaTree } from '../schema_tree.js';
import { apiVersion } from '../discovery.js';
import { listHref } from '../router.js';
import { find } from '../state.js';
import { t } from '../strings.js';

export function show({ route, main }) {
  const [, group = '', plural = ''] = route.parts;
  const resource = find(group, plural);
  if (!resource) {
    replace(main, h('p', { class: 'error', role: 'alert' }, `${t('noResource')} ${plural} ${group}`));
    return plural;
  }
  const body = h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': t('schema') }, t('state_loading'));
  replace(main, h('div', { class: 'bar' },
    h('h1', {}, h('a', { href: listHref(resource) }, resource.kind), h('small', {}, ` ${apiVersion(resource)}`)),
    h('span', { class: 'hint' }, [...resource.verbs, ...resource.subresources.map((one) => `/${one}`)].join(' · '))), body);
  load(resource).then(
    (schema) => replace(body, schema ? [h('p', {}, schema.description), schemaTree(schema)] : t('unknownField')),
    (error) => replace(body, h('p', { class: 'error', role: 'alert' }, error.message)));
  return `${resource.kind} ${t('schema')}`;
}
