/** The schema of a kind from `/openapi/v3`: descriptions of fields, and how lists merge. */

import { json } from './api.js';
import { apiVersion } from './discovery.js';

const DOCUMENTS = new Map();

/**
 * Loads the schema of a resource. Documents are kept.
 * @returns {Promise<Schema|null>}
 */
export async function load(resource) {
  const version = apiVersion(resource);
  const path = `/openapi/v3/${resource.group ? 'apis' : 'api'}/${version}`;
  if (!DOCUMENTS.has(path)) DOCUMENTS.set(path, json(path));
  let document;
  try {
    document = await DOCUMENTS.get(path);
  } catch (error) {
    DOCUMENTS.delete(path);
    throw error;
  }
  return Schema.ofKind(document, resource.group, resource.version, resource.kind);
}

/** A node of a schema within its document. */
export class Schema {
  constructor(document, node) {
    this.document = document;
    this.node = resolve(document, node);
  }

  /** The schema of a kind, or `null`. */
  static ofKind(document, group, version, kind) {
    const schemas = Object.values(document.components?.schemas ?? {});
    const found = schemas.find((node) => (node['x-kubernetes-group-version-kind'] ?? []).some(
      (gvk) => (gvk.group ?? '') === group && gvk.version === version && gvk.kind === kind));
    return found ? new Schema(document, found) : null;
  }

  /** The member or item, or `null`. */
  child(step) {
    if (typeof step === 'number') {
      return this.node.items ? new Schema(this.document, this.node.items) : null;
    }
    const member = this.node.properties?.[step] ?? this.node.additionalProperties;
    return member && typeof member === 'object' ? new Schema(this.document, member) : null;
  }

  /** The node at a path, or `null`. */
  at(path) {
    return path.reduce((schema, step) => schema && schema.child(step), this);
  }

  /** Members as `[name, Schema]`. */
  members() {
    return Object.entries(this.node.properties ?? {})
      .map(([name, node]) => [name, new Schema(this.document, node)]);
  }

  /** The items of a list or the values of a map, or `null`. */
  inner() {
    const node = this.node.items ?? this.node.additionalProperties;
    return node && typeof node === 'object' ? new Schema(this.document, node) : null;
  }

  /** `string`, `integer (int64)`, `[]Container`, `map[string]string`. */
  typeName() {
    const { type, format, items, additionalProperties } = this.node;
    if (type === 'array') return `[]${items ? new Schema(this.document, items).typeName() : ''}`;
    if (additionalProperties && typeof additionalProperties === 'object') {
      return `map[string]${new Schema(this.document, additionalProperties).typeName()}`;
    }
    if (this.node['x-kubernetes-int-or-string'] || this.node.format === 'int-or-string') return 'int or string';
    if (this.node.name) return this.node.name;
    return format ? `${type} (${format})` : type ?? 'object';
  }

  /** Whether a map is changed as a whole by server-side apply. */
  get isAtomicMap() {
    return this.node['x-kubernetes-map-type'] === 'atomic';
  }

  /** `atomic`, `set` or `map`. */
  get listType() {
    return this.node['x-kubernetes-list-type'] ?? 'atomic';
  }

  get listKeys() {
    return this.node['x-kubernetes-list-map-keys'] ?? [];
  }

  /** Rules of a custom resource, limits and allowed values, as short texts. */
  rules() {
    const { node } = this;
    const rules = (node['x-kubernetes-validations'] ?? []).map(
      (rule) => (rule.message ? `${rule.rule} (${rule.message})` : rule.rule));
    for (const name of ['minimum', 'maximum', 'minLength', 'maxLength', 'minItems', 'maxItems', 'pattern']) {
      if (node[name] !== undefined) rules.push(`${name}: ${node[name]}`);
    }
    if (node.enum) rules.push(`enum: ${node.enum.join(', ')}`);
    if (node.default !== undefined) rules.push(`default: ${JSON.stringify(node.default)}`);
    return rules;
  }

  get description() {
    return this.node.description ?? '';
  }

  get required() {
    return this.node.required ?? [];
  }
}

/** Follows `$ref`, and the one member of `allOf` that OpenAPI wraps a reference in. */
function resolve(document, node) {
  const own = {};
  let name;
  let current = node;
  for (let depth = 0; depth < 8 && current; depth += 1) {
    const { $ref: reference, allOf, ...rest } = current;
    for (const [key, value] of Object.entries(rest)) own[key] ??= value;
    const next = reference ?? (allOf?.length === 1 ? allOf[0].$ref : undefined);
    if (!next) break;
    const full = next.slice(next.lastIndexOf('/') + 1);
    name = full.slice(full.lastIndexOf('.') + 1);
    current = document.components.schemas[full];
  }
  // Named types that are scalars (Time, Quantity) show their type, structures their name.
  return own.properties && name ? { ...own, name } : own;
}
