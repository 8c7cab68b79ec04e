/** One object: its tabs. The object is watched while it is shown. */

import { button, h, replace } from '../dom.js';
import { json, query, send, watch, ApiError } from '../api.js';
import { collectionPath, objectPath } from '../discovery.js';
import { go, href, listHref, objectHref } from '../router.js';
import { find } from '../state.js';
import { parseExact } from '../json_exact.js';
import { t } from '../strings.js';
import * as keys from '../keys.js';
import * as yamlTab from './yaml_tab.js';
import * as editTab from './edit_tab.js';
import * as historyTab from './history_tab.js';
import * as fieldsTab from './fields_tab.js';
import * as relationsTab from './relations_tab.js';
import * as eventsTab from './events_tab.js';
import * as logsTab from './logs_tab.js';
import * as execTab from './exec_tab.js';
import * as celTab from './cel_tab.js';
import * as definitionTab from './definition_tab.js';

/** Tabs in their order: name, module, key, and whether a resource has it. */
const TABS = [
  ['yaml', yamlTab, 'y', () => true],
  ['edit', editTab, 'e', (resource) => resource.verbs.includes('patch')],
  ['history', historyTab, 'h', (resource) => resource.verbs.includes('list')],
  ['fields', fieldsTab, 'f', () => true],
  ['relations', relationsTab, 'r', () => true],
  ['events', eventsTab, 'v', () => true],
  ['logs', logsTab, 'l', (resource) => resource.subresources.includes('log') && resource.plural === 'pods'],
  ['exec', execTab, 'x', (resource) => resource.subresources.includes('exec') && resource.plural === 'pods'],
  ['cel', celTab, 'p', () => true],
  ['definition', definitionTab, 's', (resource) => resource.plural === 'customresourcedefinitions'],
];

/**
 * What a tab gets.
 * @typedef {{resource: object, namespace: string, name: string, path: string, object: object|null,
 *   body: HTMLElement, signal: AbortSignal, onObject: (listener: (object) => void) => void}} Context
 */

export function show({ route, main, signal }) {
  const [, group = '', plural = '', namespace = '', name = '', tab = 'yaml'] = route.parts;
  const resource = find(group, plural);
  if (!resource) {
    replace(main, h('p', { class: 'error', role: 'alert' }, `${t('noResource')} ${plural} ${group}`));
    return name;
  }
  const tabs = TABS.filter(([, , , has]) => has(resource));
  const chosen = tabs.find(([key]) => key === tab) ?? tabs[0];
  const body = h('div', { class: 'tab-body', role: 'tabpanel', id: 'tab-body', 'aria-labelledby': `tab-${chosen[0]}` });
  const error = h('p', { class: 'error', role: 'alert', hidden: true });
  const notice = h('span', { class: 'count', role: 'status' });
  replace(main,
    h('div', { class: 'bar' },
      h('h1', {}, h('a', { href: listHref(resource) }, resource.kind), ' ',
        namespace && [namespace, ' / '], h('bdi', {}, name)),
      notice,
      h('a', { href: href(['access'], { verb: 'update', resource: plural, group, ns: namespace, name }) }, t('whoMay')),
      resource.verbs.includes('delete') && button(t('delete'), () => askDelete(resource, namespace, name), { class: 'danger' })),
    h('div', { class: 'tabs', role: 'tablist', 'aria-label': t('views') }, tabs.map(([key]) => h('a', {
      role: 'tab', id: `tab-${key}`, 'aria-selected': String(key === chosen[0]), 'aria-controls': 'tab-body',
      tabindex: key === chosen[0] ? 0 : -1, href: objectHref(resource, namespace, name, key),
    }, t(`tab_${key}`)))),
    error, body);
  bindTabs(tabs, chosen, { resource, namespace, name }, main, signal);
  const listeners = new Set();
  const context = {
    resource, namespace, name, path: objectPath(resource, namespace, name), object: null, body, signal,
    onObject: (listener) => { listeners.add(listener); if (context.object) listener(context.object); },
  };
  const fail = (failure) => {
    if (signal.aborted) return;
    error.hidden = false;
    error.textContent = failure.code === 403 ? `${t('noRights')} ${failure.message}` : failure.message;
  };
  follow(context, listeners, notice, fail);
  Promise.resolve(chosen[1].show(context)).catch(fail);
  return name;
}

function bindTabs(tabs, chosen, { resource, namespace, name }, main, signal) {
  const openTab = (key) => location.replace(objectHref(resource, namespace, name, key));
  const bindings = Object.fromEntries(tabs.map(([tab, , key]) => [key, { run: () => openTab(tab), text: `tab_${tab}` }]));
  bindings.Escape = { run: () => go(listHref(resource)), text: 'back' };
  keys.bind(bindings, signal);
  main.querySelector('.tabs').addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = tabs.findIndex(([key]) => key === chosen[0]);
    openTab(tabs[(at + step + tabs.length) % tabs.length][0]);
  });
}

/** Reads the object, and again whenever it changes. */
async function follow(context, listeners, notice, fail) {
  const set = (object) => {
    context.object = object;
    for (const listener of listeners) listener(object);
  };
  const { resource, namespace, name, signal } = context;
  while (!signal.aborted) {
    try {
      const response = await send(context.path, { signal });
      if (response.status === 404) {
        notice.textContent = t('deleted');
        if (!context.object) fail(new ApiError(404, await response.json()));
        return;
      }
      const object = response.ok ? parseExact(await response.text()) : await json(context.path, { signal });
      set(object);
      if (!resource.verbs.includes('watch')) return;
      const path = collectionPath(resource, namespace) + query({ fieldSelector: `metadata.name=${name}` });
      const end = await watch(path, object.metadata.resourceVersion, {
        signal,
        parse: parseExact,
        onEvent: ({ type, object: changed }) => {
          if (type === 'DELETED') notice.textContent = t('deleted');
          else if (type !== 'BOOKMARK') { notice.textContent = ''; set(changed); }
        },
        onState: (name_) => { if (name_ === 'waiting') notice.textContent = t('state_waiting'); },
      });
      if (end !== 'expired') return;
    } catch (error) {
      fail(error);
      return;
    }
  }
}

function askDelete(resource, namespace, name) {
  const error = h('p', { class: 'error', role: 'alert', hidden: true });
  const dialog = h('dialog', { 'aria-label': t('delete') },
    h('p', {}, t('askDelete'), ' ', h('strong', {}, h('bdi', {}, `${resource.kind} ${namespace ? `${namespace}/` : ''}${name}`))),
    error,
    h('div', { class: 'row' },
      button(t('delete'), async () => {
        try {
          await json(objectPath(resource, namespace, name), { method: 'DELETE' });
          dialog.close();
        } catch (failure) {
          error.hidden = false;
          error.textContent = failure.message;
        }
      }, { class: 'danger' }),
      button(t('cancel'), () => dialog.close(), { autofocus: true })));
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
