/** Starts a server, `keelson ui` and a browser for the tests of the explorer, and stops them. */

import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import puppeteer from 'puppeteer-core';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const PROGRAM = process.env.KEELSON_PROGRAM;
const BROWSER = process.env.KEELSON_BROWSER ?? '/usr/bin/chromium';
/** Where screenshots go. */
export const SHOTS = process.env.KEELSON_SHOTS ?? join(process.cwd(), '../../target/explorer');
export const TIMEOUT_MS = 20_000;

/** Starts a program and returns its first line of output. */
function start(args) {
  const child = spawn(PROGRAM, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const first = new Promise((resolve, reject) => {
    createInterface({ input: child.stdout }).once('line', resolve);
    child.once('exit', (code) => reject(new Error(`${args.join(' ')} ended with ${code}`)));
  });
  return { child, first };
}

/** Everything that the tests need; `close` ends it. */
export async function setUp() {
  mkdirSync(SHOTS, { recursive: true });
  const dir = mkdtempSync(join(tmpdir(), 'keelson-explorer-'));
  const kubeconfig = join(dir, 'kubeconfig');
  const server = start(['serve', '--ephemeral', '--simulate', '--ui', '--kubeconfig', kubeconfig]);
  const { url, token } = JSON.parse(await server.first);
  const ui = await openUi(kubeconfig);
  const browser = await puppeteer.launch({
    executablePath: BROWSER, acceptInsecureCerts: true, args: ['--no-sandbox', '--disable-dev-shm-usage'],
  });
  return {
    url, token, dir, kubeconfig, browser, address: ui.address, api: ui.api,
    async close() {
      await browser.close();
      server.child.stdin.end();
      await Promise.all([ui.stop(), ended(server.child)]);
      rmSync(dir, { recursive: true });
    },
  };
}

/** Starts `keelson ui` with a kubeconfig. */
export async function openUi(kubeconfig) {
  const { child, first } = start(['ui', '--kubeconfig', kubeconfig, '--no-open']);
  const address = new URL(await first);
  const stop = () => {
    child.kill('SIGINT');
    return ended(child);
  };
  return { address, api: new Api(address), stop };
}

function ended(child) {
  return new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) resolve();
    else child.once('exit', resolve);
  });
}

/** Starts an HTTP proxy that knows CONNECT only, and counts its tunnels. */
export async function startProxy() {
  const proxy = http.createServer();
  proxy.tunnels = 0;
  proxy.on('connect', ({ url }, near) => {
    const { hostname, port } = new URL(`http://${url}`);
    const far = connect(port, hostname, () => {
      proxy.tunnels += 1;
      near.write('HTTP/1.1 200 OK\r\n\r\n');
      near.pipe(far).pipe(near);
    });
    for (const [one, other] of [[near, far], [far, near]]) one.on('error', () => other.destroy());
  });
  await new Promise((resolve) => { proxy.listen(0, '127.0.0.1', resolve); });
  return proxy;
}

/** Requests through `keelson ui`. */
class Api {
  constructor(address) {
    this.address = address;
    this.token = address.hash.replace('#token=', '');
    this.agent = new http.Agent({ keepAlive: true, maxSockets: 16 });
  }

  /** Sends a request with exactly these headers: `{status, headers, text}`. */
  raw(method, path, headers, body) {
    const { hostname, port } = this.address;
    return new Promise((resolve, reject) => {
      const request = http.request({ hostname, port, path, method, headers, agent: this.agent, setHost: !headers.Host }, (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (part) => { text += part; });
        response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, text }));
      });
      request.on('error', reject).end(body);
    });
  }

  async send(method, path, value, type = 'application/json') {
    const headers = { Authorization: `Bearer ${this.token}`, 'Content-Type': type };
    const { status, text } = await this.raw(method, path, headers, value && JSON.stringify(value));
    if (status >= 300) throw new Error(`${method} ${path}: ${text}`);
    return JSON.parse(text);
  }
}

/** A page of the browser with what the tests do to it. */
export class Tab {
  static async open(browser, url, size = { width: 1280, height: 800 }) {
    const page = await browser.newPage();
    await page.setViewport(size);
    const tab = new Tab(page);
    page.on('pageerror', (error) => tab.faults.push(String(error)));
    page.on('console', (message) => {
      // A refused request is part of some tests; the browser reports it as an error.
      const isRefusal = /^Failed to load resource|^WebSocket connection .* failed/.test(message.text());
      if (message.type() === 'error' && !isRefusal) tab.faults.push(message.text());
    });
    await page.goto(url, { waitUntil: 'domcontentloaded' });
    return tab;
  }

  constructor(page) {
    this.page = page;
    /** Errors of scripts and violations of the policy. */
    this.faults = [];
  }

  /** Goes to a page of the explorer. */
  go(hash) { return this.page.evaluate((to) => { location.hash = to; }, hash); }

  /** A hidden tab does not watch; it goes on where it was when it is seen again. */
  setHidden(isHidden) {
    return this.page.evaluate((value) => {
      Object.defineProperty(document, 'hidden', { value, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    }, isHidden);
  }

  /** Waits until a function in the page returns something. */
  async until(what, fn, ...args) {
    try {
      const handle = await this.page.waitForFunction(fn, { timeout: TIMEOUT_MS, polling: 50 }, ...args);
      return await handle.jsonValue();
    } catch (error) {
      await this.shot('failure');
      throw new Error(`${what}: ${error.message}\n${await this.text('body')}`);
    }
  }

  /** Waits until an element's text contains a text. */
  see(selector, text) {
    return this.until(`${selector} has ${JSON.stringify(text)}`, (css, wanted) =>
      [...document.querySelectorAll(css)].some((node) => node.textContent.includes(wanted)), selector, text);
  }

  text(selector) { return this.page.$eval(selector, (node) => node.innerText); }

  click(selector, text) {
    return this.page.evaluate((css, wanted) => {
      const found = [...document.querySelectorAll(css)].find((node) => node.textContent.includes(wanted ?? ''));
      if (!found) throw new Error(`no ${css} with ${wanted}`);
      found.click();
    }, selector, text);
  }

  /** Saves what is seen, or its upper part. */
  shot(name, height) {
    const clip = height && { x: 0, y: 0, width: this.page.viewport().width, height };
    return this.page.screenshot({ path: join(SHOTS, `${name}.png`), clip });
  }

  /** The serious faults that axe finds. */
  async axe() {
    // Through the protocol, not as a script of the page: its policy allows none.
    await this.page.evaluate(AXE);
    return this.page.evaluate(async () => {
      const { violations } = await globalThis.axe.run(document, { resultTypes: ['violations'] });
      return violations.filter(({ impact }) => ['serious', 'critical'].includes(impact))
        .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(' | ')}`);
    });
  }

  close() { return this.page.close(); }
}
