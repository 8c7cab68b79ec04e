/** A schema as a tree that opens level by level, with descriptions, rules and limits. */

import { h } from './dom.js';
import { t } from './strings.js';

/** Levels that are open at first. */
const OPEN_LEVELS = 1;

/** Makes the tree of a schema. */
export function schemaTree(schema) {
  return h('div', { class: 'schema-tree' }, level(schema, 0));
}

function level(schema, depth) {
  const members = schema.members();
  const inner = schema.inner();
  if (members.length > 0) {
    return h('ul', {}, members.map(([name, member]) => entry(name, member, schema.required.includes(name), depth)));
  }
  return inner && hasMembers(inner) ? level(inner, depth) : null;
}

const hasMembers = (schema) => schema.members().length > 0 || (schema.inner() && hasMembers(schema.inner()));

function entry(name, schema, isRequired, depth) {
  const head = [
    h('code', {}, name), ' ', h('span', { class: 'type' }, schema.typeName()),
    isRequired && h('span', { class: 'badge' }, t('required')),
  ];
  const text = [
    schema.description && h('p', {}, schema.description),
    schema.rules().map((rule) => h('p', { class: 'rule' }, h('code', {}, rule))),
  ];
  if (!hasMembers(schema)) return h('li', {}, head, text);
  const children = h('div', {});
  const details = h('details', { open: depth < OPEN_LEVELS }, h('summary', {}, head), text, children);
  // A schema may contain itself: a level is made when it is opened.
  const fill = () => { if (details.open && !children.hasChildNodes()) children.append(level(schema, depth + 1) ?? ''); };
  details.addEventListener('toggle', fill);
  if (depth < OPEN_LEVELS) fill();
  return h('li', {}, details);
}
