/**
 * Who manages which field, from `metadata.managedFields`. A set of fields is a tree: `f:NAME` a member,
 * `k:{...}` the item of a list with these keys, `v:VALUE` the item of a set, `i:INDEX` an item by its
 * place, `.` the node itself.
 */

/**
 * A manager as managedFields has it.
 * @typedef {{manager: string, operation: string, subresource?: string, time?: string}} Manager
 */

/** Returns the managers of an object in a fixed order, each once. */
export function managersOf(object) {
  return (object.metadata?.managedFields ?? []).map((entry) => ({
    manager: entry.manager ?? '', operation: entry.operation ?? '',
    subresource: entry.subresource, time: entry.time,
  }));
}

/**
 * Returns the indices of the managers of a field: of the entries that name it, or, if none does, of those
 * that own what it is in as a whole.
 * @param {object} object an object with managedFields
 * @param {Array<string|number>} path
 * @returns {number[]}
 */
export function ownersOf(object, path) {
  const owners = [];
  (object.metadata?.managedFields ?? []).forEach((entry, at) => {
    if (owns(entry.fieldsV1 ?? {}, object, path)) owners.push(at);
  });
  return owners;
}

/** Whether a set of fields names a path or an atomic parent of it. */
function owns(fields, value, path) {
  let node = fields;
  let current = value;
  for (const step of path) {
    const child = childOf(node, current, step);
    // An empty node is a field that is owned as a whole, with what is in it.
    if (child === undefined) return isLeaf(node) && node !== fields;
    node = child;
    current = current?.[step];
  }
  if (isLeaf(node)) return path.length > 0;
  return '.' in node;
}

const isLeaf = (node) => Object.keys(node).length === 0;

function childOf(node, value, step) {
  if (typeof step === 'string') return node[`f:${step}`];
  const item = value?.[step];
  for (const [key, child] of Object.entries(node)) {
    if (key.startsWith('i:') && Number(key.slice(2)) === step) return child;
    if (key.startsWith('v:') && sameJson(key.slice(2), item)) return child;
    if (key.startsWith('k:') && hasKeys(item, key.slice(2))) return child;
  }
  return undefined;
}

function sameJson(text, value) {
  try {
    return JSON.stringify(JSON.parse(text)) === JSON.stringify(value);
  } catch {
    return false;
  }
}

function hasKeys(item, text) {
  try {
    return Object.entries(JSON.parse(text)).every(([key, value]) => item?.[key] === value
      // A key that is not written has its default: the protocol of a port.
      || (item?.[key] === undefined && key === 'protocol' && value === 'TCP'));
  } catch {
    return false;
  }
}

/** An object without what every write changes: for comparisons. */
export function withoutBookkeeping(object) {
  const { resourceVersion: _, managedFields: __, generation: ___, ...metadata } = object.metadata;
  return { ...object, metadata };
}

/** Removes managedFields from a copy of an object: for display and edit. */
export function withoutManagedFields(object) {
  if (!object?.metadata?.managedFields) return object;
  const { managedFields: _, ...metadata } = object.metadata;
  return { ...object, metadata };
}
