/**
 * The rejected requests of this session, and what rejected them. The steps are recognised by the wording
 * of kube-apiserver's messages, which Keelson has too.
 */

const KEPT_MAX = 100;

/** The rejected requests, newest first. */
export const rejections = {
  /** @type {Array<{time: Date, method: string, path: string, code: number, status: object}>} */
  all: [],
  listeners: new Set(),
  add(rejection) {
    this.all.unshift({ time: new Date(), ...rejection });
    this.all.length = Math.min(this.all.length, KEPT_MAX);
    for (const listener of this.listeners) listener();
  },
};

/** Message patterns in the order in which they are tried: `[step, pattern, names of the groups]`. */
const PATTERNS = [
  ['policy', /ValidatingAdmissionPolicy '([^']*)' with binding '([^']*)' denied request: ([^]*)$/,
    ['policy', 'binding', 'reason']],
  ['policy', /MutatingAdmissionPolicy '([^']*)'.*?: ([^]*)$/, ['policy', 'reason']],
  ['webhook', /admission webhook "([^"]*)" denied the request(?:: ([^]*))?$/, ['webhook', 'reason']],
  ['webhook', /failed calling webhook "([^"]*)": ([^]*)$/, ['webhook', 'reason']],
  ['podSecurity', /violates PodSecurity "([^"]*)": ([^]*)$/, ['level', 'reason']],
  ['quota', /exceeded quota: ([^,]*), ([^]*)$/, ['quota', 'reason']],
  ['limits', /((?:maximum|minimum) [^]* usage per [^]*)$/, ['reason']],
  ['rights', /User "([^"]*)" cannot ([a-z]+) (?:resource "([^"]*)"|path "([^"]*)")([^]*)$/,
    ['user', 'verb', 'resource', 'path', 'scope']],
  ['terminating', /because it is being terminated/, []],
  ['escalation', /attempting to grant RBAC permissions not currently held/, []],
];

const BY_CODE = {
  400: 'request', 401: 'credentials', 404: 'missing', 405: 'request', 406: 'request',
  409: 'conflict', 410: 'expired', 413: 'size', 415: 'request', 422: 'validation', 429: 'busy',
  500: 'server', 503: 'server', 504: 'server',
};

/**
 * Says which step of the server rejected a request.
 * @returns {{step: string, facts: Object<string, string>, causes: Array<{field, reason, message}>}}
 */
export function explain(code, status) {
  const message = status.message ?? '';
  const causes = status.details?.causes ?? [];
  for (const [step, pattern, names] of PATTERNS) {
    const found = pattern.exec(message);
    if (!found) continue;
    const groups = names.map((name, at) => [name, found[at + 1]?.trim()]);
    return { step, facts: Object.fromEntries(groups.filter(([, text]) => text)), causes };
  }
  return { step: BY_CODE[code] ?? (code === 403 ? 'rights' : 'server'), facts: {}, causes };
}
