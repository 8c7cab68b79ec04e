/** The resources that the server has, from aggregated discovery: built in, custom and aggregated. */

import { ACCEPT, ApiError, send } from './api.js';

/**
 * A resource.
 * @typedef {{group: string, version: string, plural: string, kind: string, singular: string,
 *   namespaced: boolean, verbs: string[], shortNames: string[], categories: string[],
 *   subresources: string[], freshness: string}} Resource
 */

const TAGS = new Map();
const DOCUMENTS = new Map();

/** Reads `/api` and `/apis`. Returns the resources, or `null` if nothing has changed since the last call. */
export async function load() {
  let hasChanged = false;
  for (const path of ['/api', '/apis']) {
    const response = await send(path, { accept: ACCEPT.discovery, tag: TAGS.get(path) });
    if (response.status === 304) continue;
    if (!response.ok) {
      const status = await response.json().catch(() => ({}));
      throw new ApiError(response.status, status);
    }
    const document = await response.json();
    TAGS.set(path, response.headers.get('ETag'));
    DOCUMENTS.set(path, document);
    hasChanged = true;
  }
  return hasChanged ? [...DOCUMENTS.values()].flatMap(resourcesOf) : null;
}

/**
 * Returns the resources of a document of aggregated discovery, each in its preferred version.
 * @returns {Resource[]}
 */
export function resourcesOf(document) {
  const found = [];
  for (const group of document.items ?? []) {
    const name = group.metadata?.name ?? '';
    const known = new Set();
    for (const version of group.versions ?? []) {
      for (const resource of version.resources ?? []) {
        if (known.has(resource.resource)) continue;
        known.add(resource.resource);
        found.push(one(name, version, resource));
      }
    }
  }
  return found;
}

function one(group, version, resource) {
  return {
    group,
    version: version.version,
    plural: resource.resource,
    kind: resource.responseKind?.kind ?? resource.resource,
    singular: resource.singularResource ?? '',
    namespaced: resource.scope === 'Namespaced',
    verbs: resource.verbs ?? [],
    shortNames: resource.shortNames ?? [],
    categories: resource.categories ?? [],
    subresources: (resource.subresources ?? []).map((sub) => sub.subresource),
    freshness: version.freshness ?? 'Current',
  };
}

/** `pods`, or `deployments.apps`. */
export const fullName = (resource) =>
  (resource.group ? `${resource.plural}.${resource.group}` : resource.plural);

/** `v1`, or `apps/v1`. */
export const apiVersion = (resource) =>
  (resource.group ? `${resource.group}/${resource.version}` : resource.version);

/** The path of a collection, of all namespaces if `namespace` is empty. */
export function collectionPath(resource, namespace = '') {
  const root = resource.group ? `/apis/${resource.group}` : '/api';
  const scope = resource.namespaced && namespace ? `/namespaces/${encodeURIComponent(namespace)}` : '';
  return `${root}/${resource.version}${scope}/${resource.plural}`;
}

/** The path of an object. */
export const objectPath = (resource, namespace, name) =>
  `${collectionPath(resource, namespace)}/${encodeURIComponent(name)}`;

/** The resource of a kind, or `undefined`. */
export function ofKind(resources, version, kind) {
  const group = version.includes('/') ? version.split('/')[0] : '';
  return resources.find((resource) => resource.group === group && resource.kind === kind);
}

/**
 * Returns the resources that a typed word names, best first: a short name or name, then what begins with
 * it, then what contains it.
 */
export function matching(resources, word) {
  const wanted = word.trim().toLowerCase();
  const listable = resources.filter((resource) => resource.verbs.includes('list'));
  if (!wanted) return listable;
  const rank = (resource) => {
    const names = [...resource.shortNames, resource.plural, resource.singular, fullName(resource)];
    if (names.some((name) => name.toLowerCase() === wanted)) return resource.group ? 1 : 0;
    if (names.some((name) => name.toLowerCase().startsWith(wanted))) return 2;
    return fullName(resource).includes(wanted) || resource.kind.toLowerCase().includes(wanted) ? 3 : 9;
  };
  const ranked = listable.map((resource) => [rank(resource), resource]).filter(([order]) => order < 9);
  return ranked.sort((a, b) => a[0] - b[0]).map(([, resource]) => resource);
}
