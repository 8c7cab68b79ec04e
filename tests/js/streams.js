// exec, attach, logs and port-forward of the official JavaScript client: node streams.js KUBECONFIG.
//
// There is the pod `web` on the node `n1`, which runs commands on this machine. Prints what happened, one line of
// JSON for each step.
import { createHash } from 'node:crypto';
import { createServer } from 'node:net';
import { request } from 'node:https';
import { PassThrough, Readable, Writable } from 'node:stream';
import { once } from 'node:events';
import * as k8s from '@kubernetes/client-node';

const PIPE_BYTES = 8 << 20;
const TIME_MAX_MS = 200_000;
const [namespace, pod, container] = ['default', 'web', 'main'];
const LOG = '/api/v1/nodes/n1/proxy/testkit/log/default/web/main';

const config = new k8s.KubeConfig();
config.loadFromFile(process.argv[2]);

const say = (step, what) => console.log(JSON.stringify([step, what]));
const hash = (bytes) => createHash('sha256').update(bytes).digest('hex');

// Keeps what is written to it.
class Kept extends Writable {
  pieces = [];

  _write(piece, _, done) {
    this.pieces.push(Buffer.from(piece));
    this.emit('more');
    done();
  }

  get text() {
    return Buffer.concat(this.pieces).toString();
  }

  // Waits until the text has a part.
  async has(part) {
    while (!this.text.includes(part)) await once(this, 'more');
  }
}

// A terminal that knows its size.
class Terminal extends Kept {
  columns = 80;
  rows = 25;

  resize(columns, rows) {
    Object.assign(this, { columns, rows });
    this.emit('resize');
  }
}

// Returns what the client says about a request that is refused.
const refusal = async (promise) => {
  try {
    await promise;
  } catch (refused) {
    // The rest are headers.
    return refused.message.split('\n', 1)[0];
  }
  return 'not refused';
};

// Returns how a command ended: all that the server says.
const words = (status) => [status.status, status.reason, status.message, status.details?.causes]
  .filter((word) => word !== undefined);

// Runs a command. Returns its streams and how it ended.
const execute = async (command, { stdin = null, stdout = new Kept(), stderr = new Kept(), tty = false } = {}) => {
  let status;
  const ended = new Promise((resolve) => (status = resolve));
  const socket = await new k8s.Exec(config).exec(
    namespace, pod, container, command, stdout, tty ? null : stderr, stdin, tty, status);
  return { socket, stdout, stderr, end: words(await ended) };
};

const exec = async () => {
  for (const script of ['echo out; echo err >&2; exit 7', 'true', 'kill -9 $$', 'seq 200000 | tail -n 1']) {
    const did = await execute(['sh', '-c', script]);
    say('exec', [script, did.stdout.text, did.stderr.text, did.end]);
  }
  const absent = await execute(['/absent/program']);
  say('exec', absent.end.slice(0, 2));
  const all = Buffer.alloc(PIPE_BYTES);
  for (let at = 0; at < all.length; at += 4) all.writeUInt32LE(at * 2654435761 % 2 ** 32, at);
  const pieces = [];
  for (let at = 0; at < all.length; at += 65536) pieces.push(all.subarray(at, at + 65536));
  const piped = await execute(['cat'], { stdin: Readable.from(pieces) });
  const got = Buffer.concat(piped.stdout.pieces);
  say('exec', [piped.socket.protocol, got.length, hash(got) === hash(all), piped.end]);

  const gone = new k8s.Exec(config).exec(
    namespace, 'gone', container, ['true'], new Kept(), null, null, false);
  say('exec', await refusal(gone));
  const other = new k8s.Exec(config).exec(
    namespace, pod, 'other', ['true'], new Kept(), null, null, false);
  say('exec', await refusal(other));
};

const terminal = async () => {
  const stdin = new PassThrough();
  const stdout = new Terminal();
  const running = execute(['sh', '-c', 'echo ready; read line; echo got $line; exit 5'], { stdin, stdout, tty: true });
  await stdout.has('ready');
  stdout.resize(101, 43);
  stdin.write('word\r');
  const { end } = await running;
  say('terminal', [stdout.text, end]);
};

const attach = async () => {
  const stdin = new PassThrough();
  const stdout = new Kept();
  const socket = await new k8s.Attach(config).attach(
    namespace, pod, container, stdout, new Kept(), stdin, false);
  stdin.write('typed\n');
  await stdout.has('typed\n');
  const closed = once(socket, 'close');
  stdin.end();
  const [code] = await closed;
  say('attach', [stdout.text, socket.protocol, code]);
  const gone = new k8s.Attach(config).attach(
    namespace, 'gone', container, new Kept(), null, null, false);
  say('attach', await refusal(gone));
};

// Sends a request to the node's page of logs.
const page = async (method, body) => {
  const options = { method, headers: { 'content-type': 'text/plain' } };
  await config.applyToHTTPSOptions(options);
  const sending = request(`${config.getCurrentCluster().server}${LOG}?stream=stdout`, options);
  sending.end(body);
  const [answer] = await once(sending, 'response');
  answer.resume();
  if (answer.statusCode !== 200) throw new Error(`${method} ${LOG}: ${answer.statusCode}`);
};

const read = async (options, name = container) => {
  const stream = new Kept();
  const ended = once(stream, 'finish');
  await new k8s.Log(config).log(namespace, pod, name, stream, options);
  await ended;
  return stream.text;
};

const logs = async () => {
  await page('DELETE');
  await page('POST', 'first');
  const followed = new Kept();
  const ended = once(followed, 'finish');
  await new k8s.Log(config).log(namespace, pod, container, followed, { follow: true });
  await followed.has('first\n');
  await page('POST', 'second');
  await followed.has('second\n');
  say('logs', [await read({ tailLines: 1 }), await read({ limitBytes: 3 })]);
  await page('DELETE');
  await ended;
  say('logs', followed.text);
  await page('POST', 'third');
  say('logs', [await read({}), await read({ previous: true })]);
  say('logs', await refusal(read({}, 'other')));
};

const forward = async (port, input, socketIs) => {
  const output = new Kept();
  const err = new Kept();
  const socket = await new k8s.PortForward(config).portForward(
    namespace, pod, [port], output, err, input);
  await socketIs({ socket, output, err });
  return { socket, output, err };
};

const portForward = async () => {
  const echo = createServer((connection) => connection.pipe(connection));
  echo.listen(0, '127.0.0.1');
  await once(echo, 'listening');
  const { port } = echo.address();
  const sent = '0123456789'.repeat(100_000);
  const input = new PassThrough();
  input.write(sent);
  input.write('end');
  const { socket, output, err } = await forward(port, input, ({ output }) => output.has('end'));
  const closed = once(socket, 'close');
  input.end();
  await closed;
  say('port-forward', [socket.protocol, output.text === `${sent}end`, err.text]);
  echo.close();
  await once(echo, 'close');
  // Nobody listens there any more.
  const refused = await forward(port, new PassThrough(), ({ err }) => err.has('refused'));
  say('port-forward', refused.err.text.replace(String(port), 'PORT').replace(/(uid :).*/, '$1'));
  refused.socket.close();
  const gone = new k8s.PortForward(config).portForward(namespace, 'gone', [80], new Kept(), null, new PassThrough());
  say('port-forward', await refusal(gone));
};

setTimeout(() => {
  throw new Error('a stream does not end');
}, TIME_MAX_MS);
for (const step of [exec, terminal, attach, logs, portForward]) await step();
process.exit(0);
