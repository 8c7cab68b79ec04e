/** Reads YAML that a person has edited, by js-yaml with the types of JSON; long integers stay exact. */

import { CORE_SCHEMA, defineScalarTag, intCoreTag, load, NOT_RESOLVED } from '../vendor/js-yaml.mjs';

const DECIMAL = /^[-+]?[0-9]{16,}$/;

const exactInt = defineScalarTag(intCoreTag.tagName, {
  ...intCoreTag,
  resolve(source, isExplicit, tagName) {
    const value = intCoreTag.resolve(source, isExplicit, tagName);
    if (value === NOT_RESOLVED || Number.isSafeInteger(value) || !DECIMAL.test(source)) return value;
    return BigInt(source);
  },
  identify: () => false,
});

const SCHEMA = CORE_SCHEMA.withTags(exactInt);

/** Parses one document. @throws an Error with line and column */
export function parseYaml(text) {
  return load(text, { schema: SCHEMA });
}
