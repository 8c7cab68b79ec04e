/** How objects of a namespace relate: owners, dependents, selectors, references. No requests, no DOM. */

/** Objects of a kind beside one node above which they become one node. */
const GROUPED_ABOVE = 6;

/**
 * @typedef {{id: string, kind: string, name: string, namespace?: string, level: number, count?: number,
 *   object?: object}} Node
 * @typedef {{from: string, to: string, why: string}} Edge
 */

/** Whether the labels of an object satisfy a selector: a map, or matchLabels and matchExpressions. */
export function selects(selector, labels = {}) {
  if (!selector) return false;
  const isLabelSelector = 'matchLabels' in selector || 'matchExpressions' in selector;
  const pairs = Object.entries(isLabelSelector ? selector.matchLabels ?? {} : selector);
  const expressions = (isLabelSelector && selector.matchExpressions) || [];
  if (pairs.length === 0 && expressions.length === 0) return false;
  return pairs.every(([key, value]) => labels[key] === value)
    && expressions.every((one) => satisfies(one, labels));
}

function satisfies({ key, operator, values = [] }, labels) {
  if (operator === 'Exists') return key in labels;
  if (operator === 'DoesNotExist') return !(key in labels);
  if (operator === 'In') return values.includes(labels[key]);
  return operator === 'NotIn' && !values.includes(labels[key]);
}

/** The objects that a pod spec names: `[{kind, name, why}]`. */
export function referencesOf(object) {
  const spec = object.kind === 'Pod' ? object.spec : object.spec?.template?.spec ?? object.spec?.jobTemplate?.spec?.template?.spec;
  const found = [];
  const add = (kind, name, why) => {
    if (name && !found.some((one) => one.kind === kind && one.name === name)) found.push({ kind, name, why });
  };
  if (spec?.containers) {
    add('ServiceAccount', spec.serviceAccountName, 'serviceAccountName');
    add('Node', spec.nodeName, 'nodeName');
    for (const volume of spec.volumes ?? []) {
      add('ConfigMap', volume.configMap?.name, 'volume');
      add('Secret', volume.secret?.secretName, 'volume');
      add('PersistentVolumeClaim', volume.persistentVolumeClaim?.claimName, 'volume');
      for (const source of volume.projected?.sources ?? []) {
        add('ConfigMap', source.configMap?.name, 'volume');
        add('Secret', source.secret?.name, 'volume');
      }
    }
    for (const container of [...spec.containers, ...(spec.initContainers ?? [])]) {
      for (const source of container.envFrom ?? []) {
        add('ConfigMap', source.configMapRef?.name, 'env');
        add('Secret', source.secretRef?.name, 'env');
      }
      for (const { valueFrom } of container.env ?? []) {
        add('ConfigMap', valueFrom?.configMapKeyRef?.name, 'env');
        add('Secret', valueFrom?.secretKeyRef?.name, 'env');
      }
    }
  }
  const target = object.spec?.scaleTargetRef;
  if (target) add(target.kind, target.name, 'scaleTargetRef');
  if (object.kind === 'PersistentVolumeClaim') add('PersistentVolume', object.spec?.volumeName, 'volumeName');
  if (object.roleRef) add(object.roleRef.kind, object.roleRef.name, 'roleRef');
  for (const rule of object.kind === 'Ingress' ? object.spec?.rules ?? [] : []) {
    for (const path of rule.http?.paths ?? []) add('Service', path.backend?.service?.name, 'backend');
  }
  return found;
}

const SERVICE_NAME = 'kubernetes.io/service-name';

/**
 * Makes the graph around an object. Level 0 is the object, negative levels are what it depends on, positive
 * ones what depends on it.
 * @param {object} object
 * @param {object[]} others all objects that may relate to it; metadata, and spec where it matters
 * @returns {{nodes: Node[], edges: Edge[]}}
 */
export function graphOf(object, others) {
  const graph = new Graph(object);
  const byUid = new Map(others.map((other) => [other.metadata.uid, other]));
  const byOwner = new Map();
  for (const other of others) {
    for (const { uid } of other.metadata.ownerReferences ?? []) addTo(byOwner, uid, other);
  }
  graph.addOwners(object, byUid);
  graph.addDependents(object, byOwner);
  const pods = others.filter((other) => other.kind === 'Pod');
  for (const other of others) {
    if (other.kind === 'EndpointSlice' && object.kind === 'Service'
      && other.metadata.labels?.[SERVICE_NAME] === object.metadata.name) {
      graph.add(other, 1);
      graph.connect(object, other, 'endpoints');
    }
    if (referencesOf(other).some((one) => one.kind === object.kind && one.name === object.metadata.name)) {
      graph.add(other, 1);
      graph.connect(other, object, 'reference');
    }
  }
  const own = selectorOf(object);
  for (const pod of own ? pods.filter((one) => selects(own, one.metadata.labels)) : []) {
    // A workload owns the pods that it selects: one line says it.
    if (graph.nodes.has(pod.metadata.uid)) continue;
    graph.add(pod, 1);
    graph.connect(object, pod, 'selector');
  }
  graph.addSelecting(others);
  for (const { kind, name, why } of referencesOf(object)) {
    const found = others.find((other) => other.kind === kind && other.metadata.name === name);
    const node = found ?? { kind, metadata: { name, uid: `${kind}/${name}` }, isMissing: true };
    graph.add(node, -1);
    graph.connect(object, node, why);
  }
  return graph.grouped();
}

/** Adds an element to a list of a map. */
function addTo(map, key, element) {
  const list = map.get(key);
  if (list) list.push(element);
  else map.set(key, [element]);
}

/** The selector of pods that an object has, if it has one. */
function selectorOf(object) {
  const selecting = ['Service', 'NetworkPolicy', 'PodDisruptionBudget', 'Deployment', 'ReplicaSet', 'StatefulSet',
    'DaemonSet', 'Job', 'ReplicationController'];
  if (!selecting.includes(object.kind)) return null;
  return object.kind === 'NetworkPolicy' ? object.spec?.podSelector : object.spec?.selector;
}

/** Adds an edge between two nodes that have none in this direction. */
function addEdge(edges, edge) {
  const key = `${edge.from} ${edge.to}`;
  if (edge.from !== edge.to && !edges.has(key)) edges.set(key, edge);
}

class Graph {
  constructor(center) {
    this.nodes = new Map();
    /** By the two ends: nodes have one edge in a direction. */
    this.edges = new Map();
    this.add(center, 0);
  }

  add(object, level) {
    const id = object.metadata.uid;
    if (this.nodes.has(id)) return false;
    const { name, namespace } = object.metadata;
    this.nodes.set(id, { id, kind: object.kind, name, namespace, level, object, isMissing: object.isMissing });
    return true;
  }

  connect(from, to, why) {
    addEdge(this.edges, { from: from.metadata.uid, to: to.metadata.uid, why });
  }

  addOwners(object, byUid, level = -1) {
    for (const reference of object.metadata.ownerReferences ?? []) {
      const owner = byUid.get(reference.uid)
        ?? { kind: reference.kind, metadata: { name: reference.name, uid: reference.uid }, isMissing: true };
      if (this.add(owner, level)) this.addOwners(owner, byUid, level - 1);
      this.connect(owner, object, 'owner');
    }
  }

  addDependents(object, byOwner, level = 1) {
    for (const other of byOwner.get(object.metadata.uid) ?? []) {
      if (this.add(other, level)) this.addDependents(other, byOwner, level + 1);
      this.connect(object, other, 'owner');
    }
  }

  /** Adds what selects pods of the graph: services, budgets, policies. */
  addSelecting(others) {
    const pods = [...this.nodes.values()].filter((node) => node.kind === 'Pod' && node.object);
    for (const other of others) {
      const selector = this.nodes.has(other.metadata.uid) ? null : selectorOf(other);
      const selected = selector ? pods.filter((pod) => selects(selector, pod.object.metadata.labels)) : [];
      if (selected.length === 0) continue;
      this.add(other, selected[0].level + 1);
      for (const pod of selected) this.connect(other, pod.object, 'selector');
    }
  }

  /** Replaces many nodes of a kind on a level, which have the same neighbour, by one. */
  grouped() {
    const groups = new Map();
    for (const node of this.nodes.values()) {
      if (node.level === 0) continue;
      addTo(groups, `${node.level} ${node.kind}`, node);
    }
    const replaced = new Map();
    const nodes = [...this.nodes.values()].filter((node) => node.level === 0);
    for (const [key, members] of groups) {
      if (members.length <= GROUPED_ABOVE) {
        nodes.push(...members);
        continue;
      }
      const [first] = members;
      nodes.push({ id: key, kind: first.kind, name: '', namespace: first.namespace, level: first.level, count: members.length });
      for (const member of members) replaced.set(member.id, key);
    }
    const edges = new Map();
    for (const { from, to, why } of this.edges.values()) {
      addEdge(edges, { from: replaced.get(from) ?? from, to: replaced.get(to) ?? to, why });
    }
    return { nodes, edges: [...edges.values()] };
  }
}

/** Places nodes in columns by level: adds `x` and `y` (0 and up, in cells) and returns the size. */
export function place({ nodes }) {
  const levels = [...new Set(nodes.map((node) => node.level))].sort((a, b) => a - b);
  let rows = 0;
  const columns = levels.map((level) => nodes.filter((node) => node.level === level)
    .sort((a, b) => a.kind.localeCompare(b.kind) || a.name.localeCompare(b.name)));
  for (const column of columns) rows = Math.max(rows, column.length);
  columns.forEach((column, x) => column.forEach((node, at) => {
    node.x = x;
    node.y = at + (rows - column.length) / 2;
  }));
  return { columns: columns.length, rows };
}
