/** Who may do what: the answer of the authorizers, and the rules of RBAC behind it. */

import { field, h, replace } from '../dom.js';
import { post } from '../api.js';
import { fullName, matching } from '../discovery.js';
import { objectHref, go, href } from '../router.js';
import { find, listAll, state } from '../state.js';
import { allowing, grantsOf, impliedGroups, isSubject, nearest, whoMay } from '../rbac.js';
import { t } from '../strings.js';

const RBAC = 'rbac.authorization.k8s.io';
const VERBS = ['get', 'list', 'watch', 'create', 'update', 'patch', 'delete', 'deletecollection', '*'];
const SHOWN_MAX = 200;

export function show({ route, main, signal }) {
  const { params } = route;
  const input = (name, props = {}) => h('input', {
    type: 'text', name, value: params.get(name) ?? '', spellcheck: 'false', autocomplete: 'off', ...props,
  });
  const result = h('div', { class: 'cards wide', 'aria-live': 'polite' });
  const form = h('form', { class: 'bar ask', onsubmit: (event) => { event.preventDefault(); send(form); } },
    field(t('verb'), input('verb', { list: 'verbs', value: params.get('verb') ?? 'get' })),
    field(t('resource'), input('resource', { list: 'all-resources', placeholder: 'pods/log', value: resourceText(params) })),
    field(t('namespace'), input('ns', { list: 'all-namespaces' })),
    field(t('name'), input('name')),
    field(t('user'), input('user', { placeholder: t('you') })),
    field(t('groups'), input('groups', { placeholder: 'a, b' })),
    h('button', { type: 'submit', class: 'primary' }, t('ask')),
    datalist('verbs', VERBS), datalist('all-namespaces', state.namespaces),
    datalist('all-resources', state.resources.map(fullName)));
  replace(main, h('div', { class: 'bar' }, h('h1', {}, t('whoMay'))), form, result);
  if (params.get('resource')) answer(params, result, signal);
  else ownRules(params.get('ns') || state.namespace || 'default', result, signal);
  return t('whoMay');
}

const datalist = (id, words) => h('datalist', { id }, words.map((word) => h('option', { value: word })));

function resourceText(params) {
  const [resource = '', group = ''] = [params.get('resource') ?? '', params.get('group') ?? ''];
  return group && !resource.includes('.') ? `${resource}.${group}` : resource;
}

function send(form) {
  const data = Object.fromEntries(new FormData(form));
  go(href(['access'], data));
}

/** The question of the form: `pods/log`, `deployments.apps`, or a path. */
function askOf(params) {
  const text = resourceText(params);
  if (text.startsWith('/')) return { verb: params.get('verb') || 'get', path: text };
  const [word, subresource = ''] = text.split('/');
  const [plural, ...rest] = word.split('.');
  const resource = find(rest.join('.'), plural) ?? matching(state.resources, word)[0];
  return {
    verb: params.get('verb') || 'get', group: resource?.group ?? rest.join('.'), resource: resource?.plural ?? plural,
    subresource, namespace: resource?.namespaced === false ? '' : params.get('ns') ?? '', name: params.get('name') ?? '',
  };
}

async function answer(params, result, signal) {
  const ask = askOf(params);
  const user = params.get('user') ?? '';
  const groups = (params.get('groups') ?? '').split(',').map((group) => group.trim()).filter(Boolean);
  replace(result, t('state_loading'));
  const cards = [];
  const show = () => { if (!signal.aborted) replace(result, cards); };
  let isAllowed = null;
  try {
    const review = await sendReview(ask, user, groups, signal);
    isAllowed = review.status.allowed === true;
    cards.push(verdict(ask, user, review.status));
  } catch (error) {
    cards.push(h('p', { class: 'error', role: 'alert' }, error.message));
  }
  show();
  const rbac = await readRbac(signal).catch((error) => error);
  if (rbac instanceof Error) cards.push(h('p', { class: 'error', role: 'alert' }, `${t('noRbac')} ${rbac.message}`));
  else cards.push(...explainByRbac(grantsOf(rbac), ask, user, groups, isAllowed));
  show();
}

function sendReview(ask, user, groups, signal) {
  const attributes = ask.path
    ? { nonResourceAttributes: { path: ask.path, verb: ask.verb } }
    : { resourceAttributes: {
      verb: ask.verb, group: ask.group, resource: ask.resource, subresource: ask.subresource,
      namespace: ask.namespace, name: ask.name,
    } };
  const kind = user ? 'SubjectAccessReview' : 'SelfSubjectAccessReview';
  const subject = user ? { user, groups: [...new Set([...groups, ...impliedGroups(user)])] } : {};
  return post(`/apis/authorization.k8s.io/v1/${kind.toLowerCase()}s`,
    { apiVersion: 'authorization.k8s.io/v1', kind, spec: { ...attributes, ...subject } }, { signal });
}

const askText = (ask) => (ask.path ? `${ask.verb} ${ask.path}`
  : `${ask.verb} ${ask.resource}${ask.subresource && `/${ask.subresource}`}${ask.group && `.${ask.group}`}`
    + `${ask.name && ` ${ask.name}`}${ask.namespace && ` (${ask.namespace})`}`);

function verdict(ask, user, status) {
  const word = status.allowed ? t('allowed') : status.denied ? t('denied') : t('notAllowed');
  return h('section', { class: `card ${status.allowed ? 'success' : 'warning'}` },
    h('h2', {}, `${user || t('you')}: ${word}`), h('p', {}, h('code', {}, askText(ask))),
    status.reason && h('p', {}, status.reason),
    status.evaluationError && h('p', { class: 'error' }, status.evaluationError));
}

async function readRbac(signal) {
  const read = async (plural) => {
    const { items } = await listAll(find(RBAC, plural), { signal, isProbe: false });
    return items;
  };
  const [roles, clusterRoles, roleBindings, clusterRoleBindings] = await Promise.all(
    ['roles', 'clusterroles', 'rolebindings', 'clusterrolebindings'].map(read));
  return { roles, clusterRoles, roleBindings, clusterRoleBindings };
}

function explainByRbac(grants, ask, user, groups, isAllowed) {
  const cards = [];
  if (user) {
    const all = [...groups, ...impliedGroups(user)];
    const own = allowing(grants, ask).filter(({ binding, subjects }) =>
      subjects.some((subject) => isSubject(subject, binding.metadata.namespace, user, all)));
    if (own.length) cards.push(h('section', { class: 'card' }, h('h2', {}, t('allowedBy')), own.map(grantView)));
    const near = isAllowed ? [] : nearest(grants, ask, user, all);
    if (!own.length) {
      cards.push(h('section', { class: 'card' }, h('h2', {}, t('noRule')),
        near.length ? [h('p', {}, t('nearRules')), near.map(({ grant, missing }) =>
          h('div', {}, grantView(grant), h('p', { class: 'warning' }, `${t('lacks')} ${missing.map((part) => t(`part_${part}`)).join(', ')}`)))]
          : h('p', {}, t('noNearRule'))));
    }
  }
  const subjects = whoMay(grants, ask);
  cards.push(h('section', { class: 'card' }, h('h2', {}, `${t('allWhoMay')} (${subjects.length})`),
    h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': t('allWhoMay') }, h('table', { class: 'plain' },
      h('thead', {}, h('tr', {}, ['kind', 'name', 'namespace', 'binding', 'role'].map((key) => h('th', { scope: 'col' }, t(key))))),
      h('tbody', {}, subjects.slice(0, SHOWN_MAX).map(({ kind, name, namespace, via }) => h('tr', {},
        h('td', {}, kind), h('td', {}, name), h('td', {}, namespace), h('td', {}, bindingLink(via.binding)),
        h('td', {}, roleLink(via.role))))))),
    h('p', { class: 'hint' }, t('rbacOnly'))));
  return cards;
}

function bindingLink(binding) {
  const { namespace, name } = binding.metadata;
  const resource = find(RBAC, namespace ? 'rolebindings' : 'clusterrolebindings');
  return h('a', { href: objectHref(resource, namespace, name) }, name);
}

function roleLink(role) {
  const { namespace, name } = role.metadata;
  return h('a', { href: objectHref(find(RBAC, namespace ? 'roles' : 'clusterroles'), namespace, name) }, name);
}

function ruleText(rule) {
  const parts = [(rule.verbs ?? []).join(', ')];
  const resources = rule.nonResourceURLs ?? rule.resources ?? [];
  parts.push(resources.join(', '));
  const groups = (rule.apiGroups ?? []).filter(Boolean);
  if (groups.length) parts.push(groups.join(', '));
  if (rule.resourceNames?.length) parts.push(`[${rule.resourceNames.join(', ')}]`);
  return parts.join(' · ');
}

function grantView({ binding, role, rule }) {
  return h('p', {}, bindingLink(binding), ' → ', roleLink(role), ': ', h('code', {}, ruleText(rule)));
}

/** What the user of the page may do in a namespace. */
async function ownRules(namespace, result, signal) {
  replace(result, t('state_loading'));
  try {
    const review = await post('/apis/authorization.k8s.io/v1/selfsubjectrulesreviews', {
      apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectRulesReview', spec: { namespace },
    }, { signal });
    const { resourceRules = [], nonResourceRules = [], incomplete, evaluationError } = review.status;
    replace(result, h('section', { class: 'card' }, h('h2', {}, `${t('youMay')} ${namespace}`),
      incomplete && h('p', { class: 'warning' }, `${t('incomplete')} ${evaluationError ?? ''}`),
      h('ul', {}, [...resourceRules, ...nonResourceRules].slice(0, SHOWN_MAX).map((rule) => h('li', {}, h('code', {}, ruleText(rule)))))));
  } catch (error) {
    if (!signal.aborted) replace(result, h('p', { class: 'error', role: 'alert' }, error.message));
  }
}
