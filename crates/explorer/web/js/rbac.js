/** Which roles and bindings of RBAC allow a request, and which nearly do. */

/**
 * @typedef {{verb: string, group: string, resource: string, subresource?: string, namespace?: string,
 *   name?: string, path?: string}} Ask
 * @typedef {{binding: object, role: object, rule: object, subjects: object[]}} Grant
 */

/**
 * Returns all rules that are granted to somebody, with the binding that grants them.
 * @param {{roles: object[], clusterRoles: object[], roleBindings: object[],
 *   clusterRoleBindings: object[]}} objects
 * @returns {Grant[]}
 */
export function grantsOf(objects) {
  const clusterRoles = new Map(objects.clusterRoles.map((role) => [role.metadata.name, role]));
  const key = (namespace, name) => `${namespace}/${name}`;
  const roles = new Map(objects.roles.map(
    (role) => [key(role.metadata.namespace, role.metadata.name), role]));
  return [...objects.clusterRoleBindings, ...objects.roleBindings].flatMap((binding) => {
    const { kind, name } = binding.roleRef ?? {};
    const role = kind === 'Role' ? roles.get(key(binding.metadata.namespace, name)) : clusterRoles.get(name);
    const subjects = binding.subjects ?? [];
    return (role?.rules ?? []).map((rule) => ({ binding, role, rule, subjects }));
  });
}

/** Which parts of a question a rule allows. All four: it allows the request. */
export function compare(rule, ask) {
  if (ask.path) {
    const paths = rule.nonResourceURLs ?? [];
    const covers = (path) => path === '*' || path === ask.path
      || (path.endsWith('*') && ask.path.startsWith(path.slice(0, -1)));
    return { verb: has(rule.verbs, ask.verb), group: true, resource: paths.some(covers), name: true };
  }
  const resource = ask.subresource ? `${ask.resource}/${ask.subresource}` : ask.resource;
  const covers = (one) => one === '*' || one === resource
    || (ask.subresource !== undefined && ask.subresource !== '' && one === `*/${ask.subresource}`);
  const names = rule.resourceNames ?? [];
  return {
    verb: has(rule.verbs, ask.verb),
    group: has(rule.apiGroups, ask.group),
    resource: (rule.resources ?? []).some(covers),
    name: names.length === 0 || names.includes(ask.name ?? ''),
  };
}

const has = (list = [], word) => list.includes('*') || list.includes(word);

/** Whether a binding applies where the request is made. */
export const reaches = (binding, ask) =>
  !binding.metadata.namespace || (binding.metadata.namespace === ask.namespace && !ask.path);

/** Whether a subject of a binding is a user or one of its groups. */
export function isSubject(subject, bindingNamespace, user, groups) {
  if (subject.kind === 'User') return subject.name === user;
  if (subject.kind === 'Group') return groups.includes(subject.name);
  const namespace = subject.namespace ?? bindingNamespace;
  return user === `system:serviceaccount:${namespace}:${subject.name}`;
}

/** The grants that allow a request, to whomever. */
export function allowing(grants, ask) {
  return grants.filter(({ binding, rule }) =>
    reaches(binding, ask) && Object.values(compare(rule, ask)).every(Boolean));
}

/**
 * The grants of a user that come closest to a request without allowing it, best first, with what is
 * missing: `verb`, `group`, `resource`, `name` or `namespace`.
 */
export function nearest(grants, ask, user, groups, count = 8) {
  const own = grants.filter(({ binding, subjects }) =>
    subjects.some((subject) => isSubject(subject, binding.metadata.namespace, user, groups)));
  const judged = own.map((grant) => {
    const parts = { ...compare(grant.rule, ask), namespace: reaches(grant.binding, ask) };
    const missing = Object.keys(parts).filter((part) => !parts[part]);
    return { grant, missing };
  });
  const near = judged.filter(({ missing }) => missing.length > 0 && !missing.includes('resource'));
  return near.sort((a, b) => a.missing.length - b.missing.length).slice(0, count);
}

/** The groups that a user has without being listed: every authenticated user, every service account. */
export function impliedGroups(user) {
  if (user === 'system:anonymous') return ['system:unauthenticated'];
  const account = /^system:serviceaccount:([^:]+):/.exec(user);
  const groups = ['system:authenticated'];
  return account ? [...groups, 'system:serviceaccounts', `system:serviceaccounts:${account[1]}`] : groups;
}

/** Lists who may make a request: `[{kind, name, namespace, via: Grant}]`, each subject once. */
export function whoMay(grants, ask) {
  const found = new Map();
  for (const grant of allowing(grants, ask)) {
    for (const subject of grant.subjects) {
      const namespace = subject.kind === 'ServiceAccount'
        ? subject.namespace ?? grant.binding.metadata.namespace : undefined;
      const key = `${subject.kind} ${namespace ?? ''} ${subject.name}`;
      if (!found.has(key)) found.set(key, { kind: subject.kind, name: subject.name, namespace, via: grant });
    }
  }
  return [...found.values()];
}
