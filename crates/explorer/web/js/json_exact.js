/**
 * JSON whose integers keep all their digits. The API has 64-bit integers; a number of JavaScript holds 53
 * bits. Larger integers become BigInt.
 */

const LONG_INTEGER = /[0-9]{16}/;

/** Parses JSON. Integers that a number cannot hold become BigInt where the browser shows their source. */
export function parseExact(text) {
  if (!LONG_INTEGER.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_key, value, context) => {
    const source = context?.source;
    const isLossy = typeof value === 'number' && source !== undefined && !Number.isSafeInteger(value);
    return isLossy && /^-?[0-9]+$/.test(source) ? BigInt(source) : value;
  });
}

/** Writes JSON; a BigInt is written as an integer. */
export function stringifyExact(value) {
  if (typeof value === 'bigint') return value.toString();
  if (Array.isArray(value)) return `[${value.map((item) => stringifyExact(item ?? null)).join(',')}]`;
  if (value !== null && typeof value === 'object') {
    const members = Object.entries(value).filter(([, member]) => member !== undefined);
    return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${stringifyExact(member)}`).join(',')}}`;
  }
  return JSON.stringify(value);
}
