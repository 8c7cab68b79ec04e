/**
 * The changes of a namespace. A watch from an old version returns all changes since, in their order; a
 * list at that version returns what was there before. How far back the server goes it says itself, in
 * its refusal of a version that is too old.
 */

import { each, json, lines, query, send } from './api.js';
import { collectionPath } from './discovery.js';
import { parseExact } from './json_exact.js';

/** Resources that are read at once; browsers open six connections to a server. */
const READS_AT_ONCE = 4;
/** A watch has told all that there is when nothing comes for so long. */
const QUIET_MS = 400;
/** Changes of one resource that are read. */
export const CHANGES_MAX = 2000;
/** Resources whose objects only repeat what others say, or change all the time. */
const LEFT_OUT = new Set(['events', 'leases', 'endpoints', 'componentstatuses', 'bindings']);

/** The resources of a namespace whose changes can be read. */
export const readable = (resources) => resources.filter((resource) => resource.namespaced
  && ['list', 'watch'].every((verb) => resource.verbs.includes(verb)) && !LEFT_OUT.has(resource.plural));

/** The version in `too old resource version: 1 (235)`. */
export function oldestIn(message) {
  const found = /too old resource version: \d+ \((\d+)\)/.exec(message ?? '');
  return found ? found[1] : null;
}

/**
 * Reads the changes of a resource since a version, until nothing more comes.
 * @returns {Promise<{events: Array<{type: string, object: object}>, oldest: string|null}>} `oldest`: the version is too old
 */
async function changesSince(resource, namespace, version, signal) {
  const end = new AbortController();
  const stop = () => end.abort();
  signal.addEventListener('abort', stop, { once: true });
  const path = collectionPath(resource, namespace) + query({ watch: 'true', resourceVersion: version, timeoutSeconds: '5' });
  const events = [];
  let oldest = null;
  let timer = null;
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(stop, QUIET_MS);
  };
  try {
    const response = await send(path, { signal: end.signal });
    if (!response.ok) return { events, oldest: oldestIn(await response.text()) };
    wait();
    await lines(response.body, (line) => {
      if (!line) return;
      const event = parseExact(line);
      if (event.type === 'ERROR') oldest = oldestIn(event.object?.message);
      else if (event.type !== 'BOOKMARK') events.push(event);
      if (events.length >= CHANGES_MAX) stop();
      else wait();
    });
  } catch (error) {
    // The end of the wait is no failure.
    if (signal.aborted || !end.signal.aborted) throw error;
  } finally {
    clearTimeout(timer);
  }
  return { events, oldest };
}

/** Reads what the server still knows of a resource: `{resource, base, events}`. */
async function historyOf(resource, namespace, signal) {
  let since = '1';
  let read = await changesSince(resource, namespace, since, signal);
  if (read.oldest !== null) {
    since = read.oldest;
    read = await changesSince(resource, namespace, since, signal);
  }
  const exact = query({ resourceVersion: since, resourceVersionMatch: 'Exact' });
  const path = collectionPath(resource, namespace);
  let base = [];
  try {
    base = (await json(path + exact, { signal, isProbe: true })).items ?? [];
  } catch {
    // The store has compacted that version: objects that have not changed since are known.
    const changed = new Set(read.events.map(({ object }) => object.metadata.uid));
    const now = await json(path, { signal, isProbe: true });
    base = (now.items ?? []).filter((item) => !changed.has(item.metadata.uid));
  }
  return { resource, base, events: read.events };
}

/** Reads the history of a namespace: a {@link Timeline}, and the resources that could not be read. */
export async function readNamespace(resources, namespace, signal) {
  const histories = [];
  const failed = [];
  await each(readable(resources), READS_AT_ONCE, async (resource) => {
    try {
      histories.push(await historyOf(resource, namespace, signal));
    } catch {
      if (!signal.aborted) failed.push(resource.plural);
    }
  });
  return { timeline: new Timeline(histories), failed };
}

const keyOf = (resource, object) => `${resource.kind}/${resource.group}/${object.metadata.name}`;

/** The objects of a namespace at any of its changes. */
export class Timeline {
  /** @param {Array<{resource: object, base: object[], events: Array<{type: string, object: object}>}>} histories */
  constructor(histories) {
    /** What there is at `at`: `{resource, object}` by key. */
    this.objects = new Map();
    const changes = [];
    for (const { resource, base, events } of histories) {
      for (const object of base) this.objects.set(keyOf(resource, object), { resource, object });
      for (const { type, object } of events) changes.push({ type, resource, object, key: keyOf(resource, object) });
    }
    const version = (change) => BigInt(change.object.metadata.resourceVersion);
    changes.sort((a, b) => (version(a) < version(b) ? -1 : Number(version(a) > version(b))));
    /** Oldest first: `{type, resource, key, before, after}`; `before` and `after` are objects or null. */
    this.changes = changes;
    /** How many changes are applied. */
    this.at = 0;
    for (const change of changes) {
      change.before = this.objects.get(change.key)?.object ?? null;
      change.after = change.type === 'DELETED' ? null : change.object;
      this.put(change, change.after);
    }
    this.at = changes.length;
  }

  put({ key, resource }, object) {
    if (object) this.objects.set(key, { resource, object });
    else this.objects.delete(key);
  }

  /** Goes to the state after so many changes. */
  moveTo(at) {
    const goal = Math.max(0, Math.min(this.changes.length, at));
    for (; this.at < goal; this.at += 1) this.put(this.changes[this.at], this.changes[this.at].after);
    for (; this.at > goal; this.at -= 1) this.put(this.changes[this.at - 1], this.changes[this.at - 1].before);
  }

  /** The change that made this state; null at the beginning. */
  last() {
    return this.changes[this.at - 1] ?? null;
  }

  /** What there is, sorted, with what was just deleted: `{key, resource, object, kind}`. */
  rows() {
    const last = this.last();
    const rows = [...this.objects].map(([key, { resource, object }]) => {
      const kind = key !== last?.key ? '' : last.before ? 'changed' : 'added';
      return { key, resource, object, kind };
    });
    if (last && !last.after) rows.push({ key: last.key, resource: last.resource, object: last.object, kind: 'removed' });
    return rows.sort((a, b) => (a.key < b.key ? -1 : 1));
  }
}
