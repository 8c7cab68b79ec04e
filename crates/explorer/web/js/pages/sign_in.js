/** Asks for a bearer token. It is kept in the session of this tab, and sent to this server only. */

import { button, field, h, replace } from '../dom.js';
import { setToken } from '../api.js';
import { t } from '../strings.js';

export function show({ main, error, onDone }) {
  // A server that cannot be reached has refused no token: the one that there is may be right.
  if (error && ![401, 403].includes(error.code)) {
    replace(main, h('main', {}, h('div', { class: 'sign-in' }, h('h1', {}, 'Keelson'),
      h('p', { class: 'error', role: 'alert' }, reason(error)),
      button(t('tryAgain'), onDone, { class: 'primary', autofocus: true }))));
    return;
  }
  const input = h('input', { type: 'password', autocomplete: 'off', spellcheck: 'false', id: 'token' });
  const submit = (event) => {
    event.preventDefault();
    setToken(input.value.trim());
    onDone();
  };
  const form = h('form', { class: 'sign-in', onsubmit: submit },
    h('h1', {}, 'Keelson'),
    error && h('p', { class: 'error', role: 'alert' }, reason(error)),
    h('p', {}, t('signInText')),
    field(t('token'), input),
    h('div', { class: 'row' },
      h('button', { type: 'submit', class: 'primary' }, t('signIn')),
      button(t('withoutToken'), () => { setToken(''); onDone(); })),
    h('details', {}, h('summary', {}, t('whichToken')),
      h('p', {}, t('whichTokenText')),
      h('pre', {}, 'kubectl create token NAME\nkeelson ui --kubeconfig ~/.kube/config')));
  replace(main, h('main', {}, form));
  input.focus();
}

function reason(error) {
  if (error.code === 401) return t('tokenRefused');
  if (error.code === 403) return `${t('noRights')} ${error.message}`;
  return `${t('unreachable')} ${error.message}`;
}
