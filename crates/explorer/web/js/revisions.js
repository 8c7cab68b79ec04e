/**
 * The revisions of an object that the server still has. A list at an exact version returns the object as
 * it was then, with the version of its last change; the list just before that version returns the
 * revision before. So each request finds one more, until the server has no older version or the object
 * did not exist.
 */

import { ApiError, json, query } from './api.js';
import { collectionPath } from './discovery.js';

/**
 * Returns the object as it was at a version.
 * @returns {Promise<{object: object|null, end?: 'expired'|'absent'}>}
 */
export async function objectAt({ resource, namespace, name, signal }, version) {
  const path = collectionPath(resource, namespace) + query({
    fieldSelector: `metadata.name=${name}`, resourceVersion: String(version), resourceVersionMatch: 'Exact', limit: 1,
  });
  try {
    const list = await json(path, { signal, isProbe: true });
    const object = list.items?.[0];
    if (!object) return { object: null, end: 'absent' };
    return { object: { apiVersion: list.apiVersion, kind: resource.kind, ...object } };
  } catch (error) {
    if (error instanceof ApiError && (error.code === 410 || error.code === 504)) return { object: null, end: 'expired' };
    throw error;
  }
}

/** Returns up to `count` revisions before a version, newest first, and why there are no more. */
export async function olderThan(context, version, count) {
  const found = [];
  let current = BigInt(version);
  while (found.length < count) {
    if (current <= 1n) return { found, end: 'absent' };
    const { object, end } = await objectAt(context, current - 1n);
    if (!object) return { found, end };
    const next = BigInt(object.metadata.resourceVersion);
    if (next >= current) return { found, end: 'expired' };
    found.push(object);
    current = next;
  }
  return { found, end: null };
}

/**
 * The entry of managedFields that a revision changed: it differs from those of the revision before. If
 * none does, or there is no revision before, that with the latest time.
 */
export function lastChange(object, previous = null) {
  const entries = object.metadata?.managedFields ?? [];
  const before = new Set((previous?.metadata?.managedFields ?? []).map((entry) => JSON.stringify(entry)));
  const changed = entries.filter((entry) => !before.has(JSON.stringify(entry)));
  const candidates = changed.length > 0 ? changed : [...entries];
  candidates.sort((a, b) => String(b.time ?? '').localeCompare(String(a.time ?? '')));
  return candidates[0] ?? null;
}
