/** The dialog with the keys that work now. */

import { button, h } from '../dom.js';
import { t } from '../strings.js';
import * as keys from '../keys.js';

const NAMES = { Escape: 'Esc', ArrowDown: '↓', ArrowUp: '↑' };

export function open() {
  const rows = keys.active().map(([key, text]) =>
    h('tr', {}, h('th', { scope: 'row' }, h('kbd', {}, NAMES[key] ?? key)), h('td', {}, t(text))));
  const dialog = h('dialog', { class: 'help', 'aria-label': t('help') },
    h('h2', {}, t('keys')),
    h('table', {}, h('tbody', {}, rows)),
    h('p', {}, t('helpText')),
    button(t('close'), () => dialog.close(), { autofocus: true }));
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
