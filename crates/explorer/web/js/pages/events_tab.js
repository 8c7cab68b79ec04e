/** The events of an object, newest last, live. */

import { h, replace } from '../dom.js';
import { json, query, watch } from '../api.js';
import { age } from '../table_model.js';
import { t } from '../strings.js';

const EVENTS_MAX = 1000;
/** Events of cluster-wide objects are in this namespace. */
const CLUSTER_EVENTS = 'default';

export async function show({ resource, namespace, name, body, signal }) {
  const list = h('tbody', {});
  const empty = h('p', { class: 'hint' }, t('noEvents'));
  replace(body, empty, h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': t('tab_events') },
    h('table', { class: 'plain' },
      h('thead', {}, h('tr', {}, ['lastSeen', 'type', 'reason', 'source', 'count', 'message'].map((key) => h('th', { scope: 'col' }, t(key))))),
      list)));
  const path = `/api/v1/namespaces/${namespace || CLUSTER_EVENTS}/events`;
  const selector = { fieldSelector: `involvedObject.name=${name},involvedObject.kind=${resource.kind}` };
  const events = new Map();
  const draw = () => {
    const sorted = [...events.values()].sort((a, b) => timeOf(a).localeCompare(timeOf(b)));
    empty.hidden = sorted.length > 0;
    replace(list, sorted.map((event) => h('tr', { class: event.type === 'Warning' ? 'warning' : '' },
      h('td', { title: timeOf(event) }, age(timeOf(event), Date.now())), h('td', {}, event.type),
      h('td', {}, event.reason), h('td', {}, event.source?.component || event.reportingComponent),
      h('td', {}, String(event.series?.count ?? event.count ?? 1)), h('td', {}, event.message))));
  };
  const first = await json(path + query({ ...selector, limit: EVENTS_MAX }), { signal });
  for (const event of first.items) events.set(event.metadata.uid, event);
  draw();
  await watch(path + query(selector), first.metadata.resourceVersion, {
    signal,
    onEvent: ({ type, object }) => {
      if (type === 'BOOKMARK') return;
      if (type === 'DELETED') events.delete(object.metadata.uid);
      else events.set(object.metadata.uid, object);
      draw();
    },
  });
}

const timeOf = (event) => event.series?.lastObservedTime ?? event.lastTimestamp ?? event.eventTime
  ?? event.metadata.creationTimestamp ?? '';
