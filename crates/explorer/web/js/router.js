/** Addresses of pages, in the fragment: `#/list/apps/deployments?ns=default`. `-` stands for nothing. */

const encode = (part) => (part === '' ? '-' : encodeURIComponent(part));
const decode = (part) => (part === '-' ? '' : decodeURIComponent(part));

/** Parses a fragment: `{parts, params}`. */
export function parse(fragment) {
  const [path, search = ''] = fragment.replace(/^#\/?/, '').split('?');
  let parts;
  try {
    parts = path === '' ? [] : path.split('/').map(decode);
  } catch {
    parts = [];
  }
  return { parts, params: new URLSearchParams(search) };
}

/** Makes a fragment. */
export function href(parts, params = {}) {
  const set = Object.entries(params).filter(([, value]) => value);
  const search = new URLSearchParams(set).toString();
  return `#/${parts.map(encode).join('/')}${search && `?${search}`}`;
}

export const listHref = (resource, params) => href(['list', resource.group, resource.plural], params);

export const objectHref = (resource, namespace, name, tab = 'yaml') =>
  href(['object', resource.group, resource.plural, namespace ?? '', name, tab]);

/** Goes to a page. */
export function go(fragment) {
  location.hash = fragment;
}
