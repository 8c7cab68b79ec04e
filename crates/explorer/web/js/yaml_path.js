/** Which field a line of YAML text is about, by its indent: for text that is being edited. */

const KEY = /^((?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s:#'"-][^:#]*?|[^\s:#'"][^\s:#]+?))\s*:(?:\s|$)/;

/**
 * Returns the path of a line.
 * @param {string[]} lines
 * @param {number} at the index of the line
 * @returns {Array<string|number>}
 */
export function pathAt(lines, at) {
  const path = [];
  let limit = Infinity;
  let isInItem = false;
  for (let line = at; line >= 0 && (limit > 0 || isInItem); line -= 1) {
    for (const part of partsOf(lines[line]).reverse()) {
      // A list may stand at the indent of its member; everything else stands deeper than its parent.
      const isParent = part.indent < limit || (isInItem && !part.isItem && part.indent === limit);
      if (!isParent) continue;
      path.unshift(part.isItem ? itemIndex(lines, line, part.indent) : part.key);
      limit = part.indent;
      isInItem = part.isItem;
    }
  }
  return path;
}

/** The parts of a line from left to right: `- - a: b` has two items and a key. */
function partsOf(line) {
  const parts = [];
  let indent = line.length - line.trimStart().length;
  let rest = line.trimStart();
  while (/^-(\s|$)/.test(rest)) {
    parts.push({ indent, isItem: true });
    const inner = rest.slice(1);
    indent += inner.length - inner.trimStart().length + 1;
    rest = inner.trimStart();
  }
  const key = KEY.exec(rest);
  if (key) parts.push({ indent, isItem: false, key: unquoted(key[1]) });
  return parts;
}

function unquoted(key) {
  if (key.startsWith('"')) {
    try { return JSON.parse(key); } catch { return key; }
  }
  return key.startsWith("'") ? key.slice(1, -1) : key;
}

/** The index of the item that starts in a line: how many items of its list start above. */
function itemIndex(lines, at, indent) {
  // The first item of a list that starts in the line of its parent: `- - a`.
  if (partsOf(lines[at])[0].indent < indent) return 0;
  let index = 0;
  for (let line = at - 1; line >= 0; line -= 1) {
    const parts = partsOf(lines[line]);
    if (parts.some((part) => part.isItem && part.indent === indent)) index += 1;
    const first = parts[0];
    if (first && (first.indent < indent || (first.indent === indent && !first.isItem))) break;
  }
  return index;
}
