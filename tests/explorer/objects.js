/** The objects of the tests, and how they are created. */

/** A text that would run if it were taken for markup, and that hides its direction. */
export const HOSTILE = '<img src=x onerror="globalThis.hurt=1"><script>globalThis.hurt=1</script>\u202egnp.exe';
/** With the rest of its object, nearly the megabyte that an object may hold. */
export const LARGE_CHARACTERS = 950_000;

const labels = { app: 'web' };
const CONTAINER = {
  name: 'web', image: 'example.org/web:1', ports: [{ containerPort: 80 }],
  env: [{ name: 'A', valueFrom: { configMapKeyRef: { name: 'settings', key: 'a' } } }],
};

const OBJECTS = [
  ['/api/v1/namespaces', { metadata: { name: 'shop' } }],
  ['/api/v1/namespaces/shop/configmaps', { metadata: { name: 'settings' }, data: { a: '0' } }],
  ['/apis/apps/v1/namespaces/shop/deployments', {
    metadata: { name: 'web', labels },
    spec: { replicas: 3, selector: { matchLabels: labels }, template: { metadata: { labels }, spec: { containers: [CONTAINER] } } },
  }],
  ['/api/v1/namespaces/shop/services', { metadata: { name: 'web' }, spec: { selector: labels, ports: [{ port: 80 }] } }],
  ['/api/v1/namespaces/shop/configmaps', {
    metadata: { name: 'hostile', annotations: { 'example.org/text': HOSTILE } },
    data: { markup: HOSTILE, large: 'x'.repeat(LARGE_CHARACTERS), lines: 'one\n'.repeat(20_000) },
  }],
  ['/api/v1/namespaces/shop/serviceaccounts', { metadata: { name: 'nobody' } }],
  ['/apis/apiextensions.k8s.io/v1/customresourcedefinitions', {
    metadata: { name: 'ships.example.org' },
    spec: {
      group: 'example.org', scope: 'Namespaced', names: { plural: 'ships', singular: 'ship', kind: 'Ship', listKind: 'ShipList' },
      versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: { type: 'object', properties: {
        spec: {
          type: 'object', required: ['sails'], description: 'What the ship is like.',
          properties: { sails: { type: 'integer', minimum: 1 }, tonnage: { type: 'integer' } },
          'x-kubernetes-validations': [{ rule: 'self.sails < 10', message: 'too many sails' }],
        },
      } } } }],
    },
  }],
];

/** Creates the objects, and some revisions of one. */
export async function seed(api) {
  for (const [path, value] of OBJECTS) await api.send('POST', path, value);
  const settings = '/api/v1/namespaces/shop/configmaps/settings';
  for (const a of ['1', '2', '3']) {
    await api.send('PATCH', `${settings}?fieldManager=team-a&force=true`,
      { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'settings' }, data: { a } }, 'application/apply-patch+yaml');
  }
}

/** Creates many small objects; the first owns the others. */
export async function fill(api, namespace, count, at = 16) {
  await api.send('POST', '/api/v1/namespaces', { metadata: { name: namespace } });
  const create = (number, ownerReferences) => api.send('POST', `/api/v1/namespaces/${namespace}/configmaps`,
    { metadata: { name: `many-${String(number).padStart(6, '0')}`, ownerReferences }, data: { a: '1' } });
  const { metadata: { name, uid } } = await create(0);
  let next = 1;
  const work = async () => {
    for (let number = next++; number < count; number = next++) {
      await create(number, [{ apiVersion: 'v1', kind: 'ConfigMap', name, uid }]);
    }
  };
  await Promise.all(Array.from({ length: at }, work));
}
