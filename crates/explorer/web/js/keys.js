/** The keys of the page. Pages add theirs; those of an open dialog are its own. */

const layers = [];

/**
 * Adds keys until the signal aborts.
 * @param {Object<string, {run: () => void, text?: string}>} keys by `event.key`
 */
export function bind(keys, signal) {
  layers.push(keys);
  signal?.addEventListener('abort', () => layers.splice(layers.indexOf(keys), 1));
}

/** All keys that work now with what they do, those of the innermost page first. */
export function active() {
  const seen = new Map();
  for (const layer of [...layers].reverse()) {
    for (const [key, entry] of Object.entries(layer)) {
      if (entry.text && !seen.has(key)) seen.set(key, entry.text);
    }
  }
  return [...seen];
}

const isTyping = (target) => target.closest?.('input, textarea, select, [contenteditable]');

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (document.querySelector('dialog[open]')) return;
  const typing = isTyping(event.target);
  if (typing && event.key !== 'Escape') return;
  if (typing) {
    event.target.blur();
    return;
  }
  // Enter on a link or button is its own.
  if (event.key === 'Enter' && event.target.closest?.('a, button, summary')) return;
  for (const layer of [...layers].reverse()) {
    const entry = layer[event.key];
    if (!entry) continue;
    event.preventDefault();
    entry.run();
    return;
  }
});
