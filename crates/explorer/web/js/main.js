/** The frame of the page: header, keys, and the page that the address names. */

import { button, h, replace, select } from './dom.js';
import { hasToken, setToken, ApiError, pause } from './api.js';
import { language, languages, setLanguage, t } from './strings.js';
import { setNamespace, state, refresh } from './state.js';
import { go, href, parse } from './router.js';
import { rejections } from './rejections.js';
import * as keys from './keys.js';
import * as palette from './palette.js';
import * as help from './pages/help.js';
import * as signIn from './pages/sign_in.js';
import * as overview from './pages/overview.js';
import * as list from './pages/list.js';
import * as object from './pages/object.js';
import * as access from './pages/access.js';
import * as rejected from './pages/rejected.js';
import * as health from './pages/health.js';
import * as schemaPage from './pages/schema.js';
import * as timeline from './pages/timeline.js';

const REFRESH_MS = 10_000;
const THEME_KEY = 'keelson.theme';
const THEMES = ['auto', 'light', 'dark'];
const PAGES = { '': overview, list, object, access, rejected, health, timeline, schema: schemaPage };

const app = document.getElementById('app');
const main = h('main', { id: 'main', tabindex: -1 });
let current = new AbortController();
let shownPath = null;

/** Takes the token that `keelson ui` puts into the address out of it. */
function takeToken() {
  const found = /^#token=([^&]+)/.exec(location.hash);
  if (!found) return;
  setToken(decodeURIComponent(found[1]));
  history.replaceState(null, '', `${location.pathname}#/`);
}

function setTheme(theme) {
  localStorage.setItem(THEME_KEY, theme);
  document.documentElement.dataset.theme = theme;
}

function header() {
  const link = (page, key, extra) => h('a', {
    href: href(page ? [page] : []), 'data-page': page,
  }, t(key), extra);
  const count = h('span', { class: 'badge', hidden: true });
  const showCount = () => {
    count.textContent = String(rejections.all.length);
    count.hidden = rejections.all.length === 0;
  };
  rejections.listeners.clear();
  rejections.listeners.add(showCount);
  showCount();
  return h('header', { class: 'top' },
    h('a', { class: 'skip', href: '#main', onclick: (event) => { event.preventDefault(); main.focus(); } }, t('skip')),
    h('a', { class: 'brand', href: '#/' }, h('img', { src: 'icon.svg', alt: '', width: 20, height: 20 }), 'Keelson'),
    h('nav', { 'aria-label': t('pages') },
      link('', 'resources'), link('timeline', 'timeline'), link('access', 'whoMay'), link('rejected', 'whyNot', count), link('health', 'health')),
    h('div', { class: 'tools' },
      namespaceSelect(),
      button(':', () => palette.open(), { title: t('goTo'), 'aria-label': t('goTo') }),
      button('?', () => help.open(), { title: t('help'), 'aria-label': t('help') }),
      select(languages, language(), (code) => { setLanguage(code); start(); }, { 'aria-label': t('language') }),
      select(THEMES.map((name) => [name, t(`theme_${name}`)]), localStorage.getItem(THEME_KEY) ?? 'auto',
        setTheme, { 'aria-label': t('theme') }),
      hasToken() && button(t('signOut'), () => { setToken(''); location.reload(); })));
}

function namespaceSelect() {
  const options = [['', t('allNamespaces')], ...state.namespaces.map((name) => [name, name])];
  return select(options, state.namespace, (name) => { setNamespace(name); show(true); }, {
    'aria-label': t('namespace'), class: 'namespace',
  });
}

/** Shows the page of the address. Pages that can keep their state when only their part changes do so. */
function show(isForced = false) {
  const route = parse(location.hash);
  const page = PAGES[route.parts[0] ?? ''] ?? overview;
  const path = location.hash;
  if (!isForced && path === shownPath) return;
  shownPath = path;
  current.abort();
  current = new AbortController();
  replace(main);
  for (const link of app.querySelectorAll('nav [data-page]')) {
    const isCurrent = link.dataset.page === (route.parts[0] ?? '');
    if (isCurrent) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  const title = page.show({ route, main, signal: current.signal });
  document.title = title ? `${title} · Keelson` : 'Keelson';
}

/** The first request: it shows whether the server accepts the user. */
async function start() {
  document.documentElement.lang = language();
  try {
    await refresh();
  } catch (error) {
    const isRefusal = error instanceof ApiError && [401, 403].includes(error.code);
    // Without a token a refusal is expected: the page asks for one.
    signIn.show({ main: app, error: isRefusal && !hasToken() ? null : error, onDone: start });
    return;
  }
  replace(app, header(), main);
  shownPath = null;
  show();
}

/** Keeps resources and namespaces up to date while the page is in sight. */
async function keepFresh() {
  for (;;) {
    await pause(REFRESH_MS);
    if (document.hidden || !main.isConnected) continue;
    try {
      const before = state.namespaces.join();
      await refresh();
      if (before !== state.namespaces.join()) {
        app.querySelector('.namespace')?.replaceWith(namespaceSelect());
      }
    } catch { /* The pages show what fails; the next round asks again. */ }
  }
}

keys.bind({
  ':': { run: () => palette.open(), text: 'goTo' },
  '?': { run: () => help.open(), text: 'help' },
  Escape: { run: () => go(href([])), text: 'back' },
  H: { run: () => go(href([])), text: 'resources' },
});
window.addEventListener('hashchange', () => { takeToken(); if (main.isConnected) show(); else start(); });
setTheme(localStorage.getItem(THEME_KEY) ?? 'auto');
takeToken();
start();
keepFresh();
