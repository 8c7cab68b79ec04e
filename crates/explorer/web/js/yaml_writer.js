/**
 * Writes objects as YAML, line by line with the path of each line, so that a line can be explained,
 * blamed and compared. Strings are quoted whenever a reader of YAML 1.1 or 1.2 could take them for
 * something else, and control and direction characters are escaped: what is shown is what there is.
 */

/** Members that come first, in this order; the others follow by name. */
const FIRST = ['apiVersion', 'kind', 'metadata', 'type', 'immutable', 'spec', 'data', 'status'];

/** Texts that some reader takes for another type. */
const AMBIGUOUS = /^(?:~|null|true|false|yes|no|y|n|on|off|[-+]?\.inf|\.nan|[-+]?[0-9][0-9_,.:eExXoObB+-]*|[-+]?0x[0-9a-fA-F_]+|[-+]?\.[0-9].*|[0-9]{4}-.*|=|<<)$/i;
const PLAIN = /^[A-Za-z0-9_./(][^\u0000-\u001f\u007f-\u009f]*$/;
/** C0 and C1 controls, marks of direction and invisible characters. */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/;
const HIDDEN_ALL = new RegExp(`${HIDDEN.source}|[\\t\\n]`, 'g');

/**
 * @typedef {{text: string, path: Array<string|number>, isList?: boolean}} Line
 */

/**
 * Returns the lines of a value.
 * @param {any} value
 * @returns {Line[]}
 */
export function toLines(value) {
  const lines = [];
  if (isEmpty(value) || !isCollection(value)) {
    writeScalar(lines, '', value, '', []);
  } else {
    writeCollection(lines, value, '', []);
  }
  return lines;
}

/** Returns the YAML text of a value, with a line break at its end. */
export const toYaml = (value) => `${toLines(value).map((line) => line.text).join('\n')}\n`;

const isCollection = (value) => value !== null && typeof value === 'object';
const isEmpty = (value) => isCollection(value) && Object.keys(value).length === 0;

/** Names of the members of an object, in the order in which they are written. */
function sortedKeys(object, isTop) {
  const keys = Object.keys(object).sort();
  if (!isTop) return keys;
  const rank = (key) => { const at = FIRST.indexOf(key); return at < 0 ? FIRST.length : at; };
  return keys.sort((a, b) => rank(a) - rank(b));
}

function writeCollection(lines, value, indent, path) {
  if (Array.isArray(value)) {
    value.forEach((item, at) => writeMember(lines, `${indent}- `, item, indent, [...path, at]));
    return;
  }
  for (const key of sortedKeys(value, path.length === 0)) {
    writeMember(lines, `${indent}${scalar(key)}: `, value[key], indent, [...path, key]);
  }
}

/** Writes a member whose first line starts with `lead`: `key: ` or `- `. */
function writeMember(lines, lead, value, indent, path) {
  const isItem = typeof path[path.length - 1] === 'number';
  if (!isCollection(value) || isEmpty(value)) {
    writeScalar(lines, lead, value, indent, path);
  } else if (!isItem) {
    lines.push({ text: lead.trimEnd(), path });
    // Lists stand at the indent of their member, as kubectl writes them.
    writeCollection(lines, value, Array.isArray(value) ? indent : `${indent}  `, path);
  } else {
    const at = lines.length;
    writeCollection(lines, value, `${indent}  `, path);
    lines[at].text = lead + lines[at].text.slice(lead.length);
  }
}

function writeScalar(lines, lead, value, indent, path) {
  if (typeof value !== 'string' || !isBlock(value)) {
    lines.push({ text: lead + scalar(value), path });
    return;
  }
  const chomp = !value.endsWith('\n') ? '-' : value.endsWith('\n\n') ? '+' : '';
  lines.push({ text: `${lead}|${chomp}`, path });
  const body = chomp === '-' ? value : value.slice(0, -1);
  const inner = `${indent}  `;
  for (const line of body.split('\n')) {
    lines.push({ text: line && inner + line, path, isContinuation: true });
  }
}

/** Whether a text is written as a literal block. */
function isBlock(text) {
  if (!text.includes('\n') || HIDDEN.test(text) || text.includes('\t')) return false;
  return !/^[\s]/.test(text) && text.trim() !== '';
}

/** Returns a scalar, or an empty collection, in one line. */
export function scalar(value) {
  if (value === null || value === undefined) return 'null';
  if (Array.isArray(value)) return '[]';
  if (typeof value === 'object') return '{}';
  if (typeof value !== 'string') return String(value);
  return isPlain(value) ? value : quoted(value);
}

function isPlain(text) {
  return PLAIN.test(text) && !AMBIGUOUS.test(text) && !HIDDEN.test(text)
    && !text.includes(': ') && !text.includes(' #') && !/[\s:]$/.test(text) && !text.startsWith('...');
}

/** Returns a text in double quotes. */
export function quoted(text) {
  const escaped = JSON.stringify(text).replace(HIDDEN_ALL, (char) => {
    const code = char.charCodeAt(0).toString(16).padStart(4, '0');
    return `\\u${code}`;
  });
  return escaped;
}
