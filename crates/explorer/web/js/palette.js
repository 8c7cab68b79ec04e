/** The dialog that goes to a resource or page by name (`:`), with completion. */

import { h, replace } from './dom.js';
import { t } from './strings.js';
import { state } from './state.js';
import { fullName, matching } from './discovery.js';
import { go, href, listHref } from './router.js';

const SHOWN_MAX = 12;
const PAGES = [['access', 'whoMay'], ['rejected', 'whyNot'], ['health', 'health'], ['', 'resources']];

/** Opens the dialog. */
export function open() {
  let chosen = 0;
  let found = [];
  const input = h('input', {
    type: 'text', role: 'combobox', 'aria-expanded': 'true', 'aria-controls': 'palette-list',
    'aria-autocomplete': 'list', 'aria-label': t('goTo'), placeholder: t('goToHint'),
    spellcheck: 'false', autocomplete: 'off',
  });
  const list = h('ul', { id: 'palette-list', role: 'listbox', 'aria-label': t('resources') });
  const dialog = h('dialog', { class: 'palette', 'aria-label': t('goTo') }, input, list);

  const show = () => {
    found = entries(input.value).slice(0, SHOWN_MAX);
    chosen = Math.max(0, Math.min(chosen, found.length - 1));
    replace(list, found.map((entry, at) => h('li', {
      role: 'option', id: `palette-${at}`, 'aria-selected': String(at === chosen),
      onclick: () => choose(at),
    }, h('span', {}, entry.text), h('small', {}, entry.hint))));
    input.setAttribute('aria-activedescendant', found.length ? `palette-${chosen}` : '');
  };
  const choose = (at) => {
    if (!found[at]) return;
    dialog.close();
    go(found[at].href);
  };
  input.addEventListener('input', () => { chosen = 0; show(); });
  input.addEventListener('keydown', (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { chosen += step; show(); event.preventDefault(); }
    if (event.key === 'Tab' && found[chosen]) { input.value = found[chosen].text; show(); event.preventDefault(); }
    if (event.key === 'Enter') choose(chosen);
  });
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  show();
  dialog.showModal();
}

function entries(word) {
  const resources = matching(state.resources, word).map((resource) => ({
    text: fullName(resource), hint: [resource.kind, ...resource.shortNames].join(' · '),
    href: listHref(resource),
  }));
  const wanted = word.trim().toLowerCase();
  const pages = PAGES.map(([part, key]) => ({ text: t(key), hint: '', href: href(part ? [part] : []) }))
    .filter((page) => wanted && page.text.toLowerCase().startsWith(wanted));
  return [...pages, ...resources];
}
