/** All resources of the server, by group, with the number of their objects. */

import { h, replace } from '../dom.js';
import { ACCEPT, each, json, pause } from '../api.js';
import { collectionPath, fullName } from '../discovery.js';
import { listHref } from '../router.js';
import { onChange, state } from '../state.js';
import { t } from '../strings.js';
import * as keys from '../keys.js';

const REQUESTS_AT_ONCE = 6;
const COUNT_EVERY_MS = 15_000;

/** Titles of the groups that a cluster always has; the others stand under their name. */
const SECTIONS = [
  ['workloads', (resource) => ['apps', 'batch', 'autoscaling'].includes(resource.group)
    || (!resource.group && ['pods', 'replicationcontrollers', 'podtemplates'].includes(resource.plural))],
  ['network', (resource) => ['networking.k8s.io', 'discovery.k8s.io'].includes(resource.group)
    || (!resource.group && ['services', 'endpoints'].includes(resource.plural))],
  ['configuration', (resource) => !resource.group
    && ['configmaps', 'secrets', 'resourcequotas', 'limitranges'].includes(resource.plural)],
  ['storage', (resource) => resource.group === 'storage.k8s.io'
    || (!resource.group && resource.plural.startsWith('persistentvolume'))],
  ['access', (resource) => ['rbac.authorization.k8s.io', 'certificates.k8s.io', 'policy'].includes(resource.group)
    || (!resource.group && resource.plural === 'serviceaccounts')],
  ['cluster', (resource) => !resource.group || resource.group.endsWith('.k8s.io')],
  ['custom', () => true],
];

export function show({ main, signal }) {
  const filter = h('input', { type: 'search', 'aria-label': t('filter'), placeholder: t('filter') });
  const body = h('div', { class: 'cards' });
  const counts = new Map();
  const draw = () => drawCards(body, filter.value, counts);
  filter.addEventListener('input', draw);
  replace(main, h('div', { class: 'bar' }, h('h1', {}, t('resources')), filter), body);
  draw();
  onChange(draw, signal);
  keys.bind({ '/': { run: () => filter.focus(), text: 'filter' } }, signal);
  keepCounting(counts, body, signal);
  return t('resources');
}

function drawCards(body, word, counts) {
  const wanted = word.trim().toLowerCase();
  const listable = state.resources.filter((resource) => resource.verbs.includes('list'));
  const shown = listable.filter((resource) => !wanted
    || [fullName(resource), resource.kind, ...resource.shortNames].join(' ').toLowerCase().includes(wanted));
  const sections = new Map(SECTIONS.map(([name]) => [name, []]));
  for (const resource of shown) {
    sections.get(SECTIONS.find(([, holds]) => holds(resource))[0]).push(resource);
  }
  replace(body, [...sections].filter(([, resources]) => resources.length).map(([name, resources]) =>
    h('section', { class: 'card' }, h('h2', {}, t(`section_${name}`)),
      h('ul', {}, resources.map((resource) => h('li', {},
        h('a', { href: listHref(resource), title: fullName(resource) }, resource.kind,
          h('small', {}, resource.group)),
        h('span', { class: 'count', 'data-resource': fullName(resource) }, counts.get(fullName(resource)) ?? '')))))));
}

/** Counts the objects of all resources again and again, while the page is in sight. */
async function keepCounting(counts, body, signal) {
  while (!signal.aborted) {
    if (!document.hidden) {
      const listable = state.resources.filter((resource) => resource.verbs.includes('list'));
      await each(listable, REQUESTS_AT_ONCE, async (resource) => {
        if (signal.aborted) return;
        counts.set(fullName(resource), await count(resource, signal));
        const cell = body.querySelector(`[data-resource="${CSS.escape(fullName(resource))}"]`);
        if (cell) cell.textContent = counts.get(fullName(resource));
      });
    }
    await pause(COUNT_EVERY_MS, signal);
  }
}

/** The number of objects of a resource, from the first page of a list; `–`: not allowed. */
async function count(resource, signal) {
  const path = `${collectionPath(resource, state.namespace)}?limit=1`;
  try {
    const { items, metadata = {} } = await json(path, { accept: ACCEPT.metadataList, signal, isProbe: true });
    const rest = metadata.remainingItemCount ?? 0;
    return metadata.continue && !rest ? '1+' : ((items?.length ?? 0) + Number(rest)).toLocaleString();
  } catch {
    return '–';
  }
}
