/** The graph around an object: owners, dependents, selectors, references. */

import { h, replace, s } from '../dom.js';
import { ACCEPT, each } from '../api.js';
import { fullName, apiVersion, ofKind } from '../discovery.js';
import { graphOf, place } from '../relations.js';
import { listHref, objectHref } from '../router.js';
import { listAll, state } from '../state.js';
import { t } from '../strings.js';

const REQUESTS_AT_ONCE = 6;
const OBJECTS_OF_A_KIND_MAX = 10_000;
/** Resources whose spec or other members say what they relate to; of others metadata is enough. */
const WHOLE = ['pods', 'services', 'ingresses.networking.k8s.io', 'networkpolicies.networking.k8s.io',
  'poddisruptionbudgets.policy', 'horizontalpodautoscalers.autoscaling', 'persistentvolumeclaims',
  'rolebindings.rbac.authorization.k8s.io', 'deployments.apps', 'statefulsets.apps', 'daemonsets.apps',
  'jobs.batch', 'cronjobs.batch'];
/** Resources that hold copies or records of others. */
const LEFT_OUT = ['events', 'events.events.k8s.io', 'endpoints'];
const BOX = { width: 190, height: 44, gapX: 70, gapY: 16 };

export async function show({ resource, namespace, body, signal, onObject }) {
  const note = h('p', { class: 'status', role: 'status' }, t('state_loading'));
  const canvas = h('div', { class: 'graph scroll', tabindex: 0, role: 'region', 'aria-label': t('tab_relations') });
  replace(body, note, canvas);
  const object = await new Promise((resolve) => onObject(resolve));
  const { others, hidden, parts } = await neighbours(resource, namespace, signal);
  if (signal.aborted) return;
  const known = { ...object, kind: object.kind ?? resource.kind };
  const graph = graphOf(known, others.filter((other) => other.metadata.uid !== object.metadata.uid));
  draw(canvas, graph, namespace);
  note.textContent = graph.nodes.length === 1 ? t('noRelations') : '';
  if (hidden.length) note.textContent += ` ${t('notReadable')} ${hidden.join(', ')}`;
  if (parts.length) note.textContent += ` ${t('onlyFirst')} (${OBJECTS_OF_A_KIND_MAX}): ${parts.join(', ')}`;
}

/** All objects that may relate to one of a namespace, or to a cluster-wide one. */
async function neighbours(resource, namespace, signal) {
  const others = [];
  const hidden = [];
  const parts = [];
  const wanted = state.resources.filter((one) => one.verbs.includes('list')
    && !LEFT_OUT.includes(fullName(one)) && (namespace ? one.namespaced : !one.namespaced));
  await each(wanted, REQUESTS_AT_ONCE, async (one) => {
    const accept = WHOLE.includes(fullName(one)) ? ACCEPT.json : ACCEPT.metadataList;
    try {
      const { items, isPart } = await listAll(one, { namespace, accept, max: OBJECTS_OF_A_KIND_MAX, signal });
      if (isPart) parts.push(fullName(one));
      // Items of a list leave out what the list says once.
      for (const item of items) others.push({ ...item, apiVersion: apiVersion(one), kind: one.kind });
    } catch {
      hidden.push(fullName(one));
    }
  });
  return { others, hidden, parts };
}

function draw(canvas, graph, namespace) {
  const { columns, rows } = place(graph);
  const stepX = BOX.width + BOX.gapX;
  const stepY = BOX.height + BOX.gapY;
  const width = columns * stepX;
  const height = Math.max(1, rows) * stepY + BOX.gapY;
  const at = new Map(graph.nodes.map((node) => [node.id, { x: 10 + node.x * stepX, y: BOX.gapY + node.y * stepY }]));
  const edges = graph.edges.map(({ from, to, why }) => {
    const [left, right] = [at.get(from), at.get(to)].sort((a, b) => a.x - b.x);
    const start = { x: left.x + BOX.width, y: left.y + BOX.height / 2 };
    const end = { x: right.x, y: right.y + BOX.height / 2 };
    const middle = (start.x + end.x) / 2;
    return s('g', { class: `edge ${why}` },
      s('path', { d: `M${start.x},${start.y} C${middle},${start.y} ${middle},${end.y} ${end.x},${end.y}` }),
      s('title', {}, why));
  });
  const boxes = graph.nodes.map((node) => box(node, at.get(node.id), namespace));
  replace(canvas, s('svg', { width, height, viewBox: `0 0 ${width} ${height}`, 'aria-label': t('tab_relations') }, edges, boxes));
}

function box(node, { x, y }, namespace) {
  const resource = state.resources.find((one) => one.kind === node.kind
    && (!node.object?.apiVersion || apiVersion(one) === node.object.apiVersion)) ?? ofKind(state.resources, 'v1', node.kind);
  const scope = resource?.namespaced ? node.namespace ?? namespace : '';
  const name = node.count ? `× ${node.count}` : node.name;
  const shape = [
    s('rect', { width: BOX.width, height: BOX.height, rx: 6 }),
    s('text', { x: 10, y: 17, class: 'kind' }, node.kind),
    s('text', { x: 10, y: 34 }, name.length > 26 ? `${name.slice(0, 25)}…` : name),
    s('title', {}, `${node.kind} ${node.name}${node.isMissing ? ` (${t('notFound')})` : ''}`),
  ];
  const kind = `${node.level === 0 ? 'center' : ''} ${node.isMissing ? 'missing' : ''}`;
  const transform = `translate(${x} ${y})`;
  if (!resource || node.isMissing) return s('g', { class: `node ${kind}`, transform }, shape);
  const href = node.count ? listHref(resource, { ns: scope }) : objectHref(resource, scope, node.name, 'relations');
  return s('a', { href, class: `node ${kind}`, transform }, shape);
}
