/**
 * The client of the API. All requests of the page are sent here, with the token of the session; those
 * that the server rejects are kept for the page "why not".
 */

import { parseExact } from './json_exact.js';
import { rejections } from './rejections.js';

export const ACCEPT = {
  json: 'application/json',
  table: 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json',
  metadataList: 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json',
  discovery: 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json',
};

const TOKEN_PROTOCOL = 'base64url.bearer.authorization.k8s.io.';
const TOKEN_KEY = 'keelson.token';
/** A line of a watch may be as long as the largest object and its table row. */
const WATCH_LINE_CHARACTERS_MAX = 16 << 20;
/** Wait before a watch that ended is opened again, in milliseconds. */
const WATCH_RETRY_MS = [250, 1000, 3000, 10000];

/** A response that is no success. */
export class ApiError extends Error {
  /** @param {number} code @param {object} status the `Status`, or `{message}` */
  constructor(code, status) {
    super(status.message || `HTTP ${code}`);
    this.code = code;
    this.status = status;
  }
}

// Unit tests run without a browser.
let token = globalThis.sessionStorage?.getItem(TOKEN_KEY) ?? '';

/** Sets the bearer token of the session; an empty one means the certificate of the browser, or nobody. */
export function setToken(text) {
  token = text;
  if (text) sessionStorage.setItem(TOKEN_KEY, text);
  else sessionStorage.removeItem(TOKEN_KEY);
}

export const hasToken = () => token !== '';

function headersOf({ accept = ACCEPT.json, type, tag }) {
  const headers = { Accept: accept };
  if (type) headers['Content-Type'] = type;
  if (token) headers.Authorization = `Bearer ${token}`;
  if (tag) headers['If-None-Match'] = tag;
  return headers;
}

/**
 * Sends a request and returns the response, whatever its status.
 * @param {string} path
 * @param {{method?: string, body?: string, type?: string, accept?: string, tag?: string,
 *   signal?: AbortSignal}} [options]
 */
export function send(path, options = {}) {
  return fetch(path, {
    method: options.method ?? 'GET',
    body: options.body,
    headers: headersOf(options),
    signal: options.signal,
    cache: 'no-store',
    redirect: 'error',
    credentials: token ? 'omit' : 'same-origin',
  });
}

/** Makes the error of a response, and keeps it unless the caller expects it. */
async function failure(path, options, response) {
  const text = await response.text();
  let status = { message: text.trim() };
  try {
    const parsed = JSON.parse(text);
    if (parsed?.kind === 'Status') status = parsed;
  } catch { /* Not every refusal is a Status: the text is its message. */ }
  const warnings = response.headers.get('Warning');
  if (!options.isProbe) {
    rejections.add({ method: options.method ?? 'GET', path, code: response.status, status, warnings });
  }
  return new ApiError(response.status, status);
}

/** Sends a request and returns its text; other statuses than 2xx are an {@link ApiError}. */
export async function text(path, options = {}) {
  const response = await send(path, options);
  if (!response.ok) throw await failure(path, options, response);
  return response.text();
}

/** Sends a request and returns the parsed body. Options are those of {@link send}, and `isProbe`: a
 * rejection is part of the question and is not kept. */
export async function json(path, options = {}) {
  return parseExact(await text(path, options));
}

/** Sends a request with a body of JSON. */
export function post(path, value, options = {}) {
  return json(path, { method: 'POST', type: 'application/json', body: JSON.stringify(value), ...options });
}

/** Calls `onLine` with each line of a response body while it arrives. */
export async function lines(body, onLine) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
    let from = 0;
    for (let end = rest.indexOf('\n'); end >= 0; end = rest.indexOf('\n', from)) {
      onLine(rest.slice(from, end));
      from = end + 1;
    }
    rest = rest.slice(from);
    if (rest.length > WATCH_LINE_CHARACTERS_MAX) throw new Error('a line is too long');
    if (done) {
      if (rest) onLine(rest);
      return;
    }
  }
}

/** Aborts when the tab is hidden. */
function whileVisible(signal) {
  const controller = new AbortController();
  const end = () => controller.abort();
  signal.addEventListener('abort', end, { once: true });
  const onChange = () => { if (document.hidden) end(); };
  document.addEventListener('visibilitychange', onChange, { signal: controller.signal });
  onChange();
  return controller;
}

/** Waits until the tab is in sight. */
function visible(signal) {
  return new Promise((resolve) => {
    const done = () => { if (!document.hidden || signal.aborted) resolve(); };
    document.addEventListener('visibilitychange', done, { signal });
    signal.addEventListener('abort', () => resolve(), { once: true });
    done();
  });
}

/**
 * Watches until `signal` aborts, also over disconnects. A hidden tab does not watch: over HTTP/1.1 a
 * browser opens six connections to a server, for all tabs together. Calls `onEvent({type, object})`, read from
 * a line by `parse`, and returns `'expired'` when the version is too old, so that the caller lists again.
 */
export async function watch(url, version, { accept, signal, onEvent, onState = () => {}, parse = JSON.parse }) {
  let since = version;
  for (let failures = 0; !signal.aborted;) {
    await visible(signal);
    const open = whileVisible(signal);
    try {
      const mark = url.includes('?') ? '&' : '?';
      const path = `${url}${mark}watch=true&allowWatchBookmarks=true&resourceVersion=${since}`;
      const response = await send(path, { accept, signal: open.signal });
      if (response.status === 410) return 'expired';
      if (!response.ok) throw await failure(path, {}, response);
      onState('live');
      let isExpired = false;
      await lines(response.body, (line) => {
        if (!line) return;
        const event = parse(line);
        if (event.type === 'ERROR') {
          isExpired = event.object?.code === 410;
          return;
        }
        failures = 0;
        since = versionOf(event.object) ?? since;
        onEvent(event);
      });
      if (isExpired) return 'expired';
    } catch (error) {
      if (signal.aborted) return 'aborted';
      if (open.signal.aborted) continue;
      if (error instanceof ApiError && [401, 403].includes(error.code)) throw error;
      failures += 1;
    } finally {
      open.abort();
    }
    onState('waiting');
    await pause(WATCH_RETRY_MS[Math.min(failures, WATCH_RETRY_MS.length - 1)], signal);
  }
  return 'aborted';
}

/** Whether a state of an object is later than another. */
export function isNewer(object, than) {
  return BigInt(object.metadata.resourceVersion) > BigInt(than.metadata.resourceVersion);
}

/** The version of an object, or of the row in a table of one row. */
function versionOf(object) {
  return object?.metadata?.resourceVersion || object?.rows?.[0]?.object?.metadata?.resourceVersion;
}

/** Waits, or returns at once when the signal aborts. */
export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}

/** Opens a WebSocket. The token travels as a subprotocol, since a browser sends no other header. */
export function socket(path, protocols) {
  const url = new URL(path, location.href);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  const encoded = btoa(token).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
  return new WebSocket(url, token ? [...protocols, TOKEN_PROTOCOL + encoded] : protocols);
}

/** Runs `work` for each item, at most `width` at a time. */
export async function each(items, width, work) {
  const queue = [...items];
  const run = async () => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: Math.min(width, items.length) }, run));
}

/** `?a=b&c=d` of the members that are set. */
export function query(members) {
  const set = Object.entries(members).filter(([, value]) => value !== undefined && value !== '');
  const text = new URLSearchParams(set).toString();
  return text && `?${text}`;
}
