/** What all pages share: the resources and namespaces of the server, and the choices of the user. */

import * as discovery from './discovery.js';
import { collectionPath } from './discovery.js';
import { ACCEPT, json } from './api.js';

const NAMESPACE_KEY = 'keelson.namespace';
const NAMESPACES_MAX = 5000;

export const state = {
  /** @type {discovery.Resource[]} */
  resources: [],
  /** @type {string[]} */
  namespaces: [],
  /** The namespace whose objects are shown; empty: all. */
  namespace: sessionStorage.getItem(NAMESPACE_KEY) ?? '',
  listeners: new Set(),
};

/** Calls `listener` when resources or namespaces change, until the signal aborts. */
export function onChange(listener, signal) {
  state.listeners.add(listener);
  signal.addEventListener('abort', () => state.listeners.delete(listener));
}

export function setNamespace(namespace) {
  state.namespace = namespace;
  sessionStorage.setItem(NAMESPACE_KEY, namespace);
}

/** Reads the resources and namespaces again. */
export async function refresh() {
  const resources = await discovery.load();
  if (resources) state.resources = resources;
  const namespaces = await namespaceNames();
  const hasNew = namespaces.join() !== state.namespaces.join();
  state.namespaces = namespaces;
  if (resources || hasNew) for (const listener of state.listeners) listener();
}

/** The names of all namespaces; none if the user may not list them. */
async function namespaceNames() {
  try {
    const path = `/api/v1/namespaces?limit=${NAMESPACES_MAX}`;
    const list = await json(path, { accept: ACCEPT.metadataList, isProbe: true });
    return (list.items ?? []).map((item) => item.metadata.name);
  } catch {
    return state.namespaces;
  }
}

/** Finds a resource by group and name. */
export const find = (group, plural) =>
  state.resources.find((resource) => resource.group === group && resource.plural === plural);

/** All items of a list, in chunks, at most `max`. Returns `{items, isPart}`. */
export async function listAll(resource, { namespace = '', accept = ACCEPT.json, selector = '', max = 5000, isProbe = true, signal } = {}) {
  const items = [];
  let next = '';
  do {
    const mark = next ? `&continue=${encodeURIComponent(next)}` : '';
    const path = `${collectionPath(resource, namespace)}?limit=500${selector}${mark}`;
    const list = await json(path, { accept, isProbe, signal });
    items.push(...(list.items ?? []));
    next = list.metadata?.continue ?? '';
  } while (next && items.length < max);
  return { items, isPart: next !== '' };
}
