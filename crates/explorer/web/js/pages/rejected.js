/** The rejected requests of this session: what the server said, and which of its steps said it. */

import { h, replace } from '../dom.js';
import { explain, rejections } from '../rejections.js';
import { t } from '../strings.js';

export function show({ main, signal }) {
  const list = h('div', { class: 'cards wide' });
  replace(main, h('div', { class: 'bar' }, h('h1', {}, t('whyNot'))), h('p', { class: 'hint' }, t('whyNotText')), list);
  const draw = () => replace(list, rejections.all.map(card));
  rejections.listeners.add(draw);
  signal.addEventListener('abort', () => rejections.listeners.delete(draw));
  draw();
  return t('whyNot');
}

function card({ time, method, path, code, status, warnings }) {
  const { step, facts, causes } = explain(code, status);
  const address = path.split('?')[0];
  return h('article', { class: 'card' },
    h('h2', {}, h('span', { class: 'badge' }, String(code)), ' ', t(`step_${step}`)),
    h('p', {}, h('code', {}, `${method} ${address}`), ' ', h('small', {}, time.toLocaleTimeString())),
    h('p', {}, status.message),
    Object.keys(facts).length > 0 && h('dl', {}, Object.entries(facts).map(
      ([name, text]) => [h('dt', {}, t(`fact_${name}`)), h('dd', {}, text)])),
    causes.length > 0 && h('ul', {}, causes.map((cause) => h('li', {},
      cause.field && h('code', {}, cause.field), ' ', cause.reason && h('small', {}, cause.reason), ' ', cause.message))),
    warnings && h('p', { class: 'warning' }, warnings),
    h('p', { class: 'hint' }, t(`advice_${step}`)));
}
