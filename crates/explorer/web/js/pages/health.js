/** The health of the server: its checks, and its metrics as plots. */

import { h, replace } from '../dom.js';
import { json, pause, send } from '../api.js';
import { checksOf, parse, quantile, rate, sum, sumBy } from '../metrics_parser.js';
import { Plot } from '../plot.js';
import { t } from '../strings.js';

const EVERY_MS = 3_000;
const REQUESTS = 'apiserver_request_total';
const DURATION = 'apiserver_request_duration_seconds';
const LASTING = 'apiserver_longrunning_requests';
const MEMORY = 'process_resident_memory_bytes';
const INFLIGHT = 'apiserver_current_inflight_requests';
const NAMES = new Set([REQUESTS, `${DURATION}_bucket`, LASTING, MEMORY, INFLIGHT, 'apiserver_storage_objects']);
/** Series of a plot of verbs: the others are left out. */
const VERBS = ['GET', 'LIST', 'WATCH', 'POST', 'PUT', 'PATCH', 'APPLY', 'DELETE'];

const milliseconds = (value) => `${(value * 1000).toFixed(value < 0.01 ? 2 : 0)} ms`;
const perSecond = (value) => `${value.toFixed(1)}/s`;
const megabytes = (value) => `${(value / 1e6).toFixed(0)} MB`;
const whole = (value) => value.toFixed(0);

export function show({ main, signal }) {
  const version = h('span', { class: 'count' });
  const checks = h('div', { class: 'checks' });
  const note = h('p', { class: 'error', role: 'alert', hidden: true });
  const plots = {
    rate: new Plot(t('requestRate'), perSecond), errors: new Plot(t('errorRate'), perSecond),
    latency: new Plot(t('latency'), milliseconds), memory: new Plot(t('memory'), megabytes),
    watches: new Plot(t('streams'), whole), inflight: new Plot(t('inFlight'), whole),
  };
  replace(main, h('div', { class: 'bar' }, h('h1', {}, t('health')), version), note, checks,
    h('div', { class: 'cards' }, Object.values(plots).map((plot) => plot.element)));
  json('/version', { signal }).then((one) => { version.textContent = `${one.gitVersion} · ${one.compiler} · ${one.platform}`; }, () => {});
  keepMeasuring(plots, checks, note, signal);
  return t('health');
}

async function keepMeasuring(plots, checks, note, signal) {
  let before = null;
  while (!signal.aborted) {
    try {
      if (!document.hidden) {
        await showChecks(checks, signal);
        const response = await send('/metrics', { signal, accept: 'text/plain' });
        if (!response.ok) throw new Error(`/metrics: ${(await response.json().catch(() => ({}))).message ?? response.status}`);
        const now = { time: performance.now(), metrics: parse(await response.text(), NAMES) };
        if (before) addPoints(plots, before, now);
        before = now;
        note.hidden = true;
      }
    } catch (error) {
      if (signal.aborted) return;
      note.hidden = false;
      note.textContent = error.message;
    }
    await pause(EVERY_MS, signal);
  }
}

async function showChecks(checks, signal) {
  const groups = await Promise.all(['/readyz', '/livez'].map(async (path) => {
    const response = await send(`${path}?verbose`, { signal, accept: '*/*' });
    return [path, response.ok, checksOf(await response.text())];
  }));
  replace(checks, groups.map(([path, ok, all]) => h('details', { class: ok ? 'success' : 'error' },
    h('summary', {}, `${path}: ${ok ? t('ok') : t('failing')} (${all.filter((one) => one.ok).length}/${all.length})`),
    h('ul', {}, all.map((one) => h('li', { class: one.ok ? '' : 'error' }, `${one.ok ? '✓' : '✗'} ${one.name} ${one.why === 'ok' ? '' : one.why}`))))));
}

function addPoints(plots, before, now) {
  const seconds = (now.time - before.time) / 1000;
  const totals = [before, now].map(({ metrics }) => sumBy(metrics, REQUESTS, 'verb'));
  const rates = VERBS.filter((verb) => totals[1].has(verb))
    .map((verb) => [verb, rate(totals[0].get(verb) ?? 0, totals[1].get(verb), seconds)]);
  plots.rate.add(Object.fromEntries(rates));
  const failed = (digit) => [before, now].map(({ metrics }) => sum(metrics, REQUESTS, ({ code = '' }) => code.startsWith(digit)));
  plots.errors.add({ '4xx': rate(...failed('4'), seconds), '5xx': rate(...failed('5'), seconds) });
  const isShort = ({ verb }) => !['WATCH', 'CONNECT'].includes(verb);
  const at = (q) => quantile(q, before.metrics, now.metrics, DURATION, isShort);
  plots.latency.add({ p50: at(0.5), p99: at(0.99) });
  plots.memory.add({ resident: sum(now.metrics, MEMORY) });
  plots.watches.add(Object.fromEntries(sumBy(now.metrics, LASTING, 'verb')));
  plots.inflight.add(Object.fromEntries(sumBy(now.metrics, INFLIGHT, 'request_kind')));
}
