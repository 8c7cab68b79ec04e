/**
 * The configuration to apply for an edit: the fields that the edit changes, and those that this page
 * applied before. Other fields are left out, so that the page becomes the manager of nothing that its
 * user has not touched.
 */

/** The name under which the page applies. */
export const MANAGER = 'keelson-explorer';

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);

/** Whether two values are equal; the order of members does not matter. */
export function equal(a, b) {
  if (a === b) return true;
  if (Array.isArray(a) && Array.isArray(b)) {
    return a.length === b.length && a.every((item, at) => equal(item, b[at]));
  }
  if (!isObject(a) || !isObject(b)) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => key in b && equal(a[key], b[key]));
}

/**
 * Returns the configuration to apply.
 * @param {object} before the object as it was, with managedFields
 * @param {object} edited the object as it shall be
 * @param {import('./schema.js').Schema|null} schema without one, lists are changed as a whole
 */
export function applyConfig(before, edited, schema) {
  const entry = (before.metadata?.managedFields ?? []).find(
    (one) => one.manager === MANAGER && one.operation === 'Apply' && !one.subresource);
  const changed = part(before, edited, schema, entry?.fieldsV1 ?? {}) ?? {};
  const { name, namespace } = before.metadata;
  const metadata = { ...changed.metadata, name, ...(namespace && { namespace }) };
  for (const key of ['managedFields', 'resourceVersion', 'uid', 'creationTimestamp', 'generation']) {
    delete metadata[key];
  }
  return { ...changed, apiVersion: before.apiVersion, kind: before.kind, metadata };
}

/** Returns the part of `after` that differs from `before` or that `owned` names; `undefined`: nothing. */
function part(before, after, schema, owned) {
  if (isObject(after) && isObject(before) && !schema?.isAtomicMap) {
    return partOfObject(before, after, schema, owned);
  }
  if (Array.isArray(after) && Array.isArray(before) && schema && schema.listType !== 'atomic') {
    return partOfList(before, after, schema, owned);
  }
  return equal(before, after) && !isOwned(owned) ? undefined : after;
}

const isOwned = (owned) => owned !== undefined && (Object.keys(owned).length === 0 ? owned !== NONE : '.' in owned);
const NONE = Object.freeze({});

function partOfObject(before, after, schema, owned) {
  const result = {};
  for (const [key, value] of Object.entries(after)) {
    const named = owned[`f:${key}`] ?? NONE;
    const member = key in before ? part(before[key], value, schema?.child(key) ?? null, named) : value;
    if (member !== undefined) result[key] = member;
  }
  const isEmpty = Object.keys(result).length === 0;
  return isEmpty && !isOwned(owned) ? undefined : result;
}

function partOfList(before, after, schema, owned) {
  const item = schema.child(0);
  const result = [];
  for (const value of after) {
    const name = schema.listType === 'set' ? `v:${JSON.stringify(value)}` : keyName(owned, value, schema.listKeys);
    const named = owned[name] ?? NONE;
    const old = schema.listType === 'set'
      ? before.find((one) => equal(one, value))
      : before.find((one) => schema.listKeys.every((key) => equal(one?.[key], value?.[key])));
    const changed = old === undefined ? value : part(old, value, item, named);
    if (changed === undefined) continue;
    if (!isObject(changed)) { result.push(changed); continue; }
    const keys = schema.listKeys.filter((key) => value[key] !== undefined).map((key) => [key, value[key]]);
    result.push({ ...Object.fromEntries(keys), ...changed });
  }
  return result.length === 0 && !isOwned(owned) ? undefined : result;
}

/** The name of an item in a set of fields. */
function keyName(owned, value, keys) {
  return Object.keys(owned).find((name) => {
    if (!name.startsWith('k:')) return false;
    const named = JSON.parse(name.slice(2));
    return keys.every((key) => value?.[key] === undefined || equal(named[key], value[key]));
  });
}

/** Paths that are in `before` and no longer in `after`: an apply does not remove those of others. */
export function removedPaths(before, after, path = []) {
  if (isObject(before) && isObject(after)) {
    return Object.keys(before).flatMap((key) => (key in after
      ? removedPaths(before[key], after[key], [...path, key]) : [[...path, key]]));
  }
  return Array.isArray(before) && Array.isArray(after) && after.length < before.length ? [path] : [];
}
