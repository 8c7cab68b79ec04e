/** Runs commands in a container: a plain terminal of lines, over a WebSocket. */

import { button, h, replace, select } from '../dom.js';
import { query, socket } from '../api.js';
import { CHANNEL, closeFrame, exitOf, frame, parseFrame, plainText, PROTOCOLS } from '../channels.js';
import { containersOf } from './logs_tab.js';
import { t } from '../strings.js';

const OUTPUT_CHARACTERS_MAX = 500_000;
const SHELL = 'sh';

export function show(context) {
  let terminal = null;
  context.onObject((pod) => { terminal ??= new Terminal(context, containersOf(pod)); });
}

class Terminal {
  constructor({ path, body, signal }, containers) {
    Object.assign(this, { path, container: containers[0] });
    this.history = [];
    this.output = h('pre', { class: 'terminal', tabindex: 0, role: 'log', 'aria-label': t('output') });
    this.command = h('input', { type: 'text', value: SHELL, spellcheck: 'false', 'aria-label': t('command') });
    this.input = h('input', {
      type: 'text', spellcheck: 'false', autocomplete: 'off', 'aria-label': t('input'), disabled: true,
      onkeydown: (event) => this.typed(event),
    });
    this.state = h('span', { class: 'count', role: 'status' });
    const start = (event) => { event.preventDefault(); this.start(); };
    replace(body,
      h('form', { class: 'bar', onsubmit: start },
        select(containers.map((name) => [name, name]), this.container, (name) => { this.container = name; }, { 'aria-label': t('container') }),
        this.command, h('button', { type: 'submit', class: 'primary' }, t('run')),
        button(t('end'), () => this.socket?.close()), this.state),
      this.output, h('div', { class: 'prompt' }, h('span', { 'aria-hidden': 'true' }, '›'), this.input));
    signal.addEventListener('abort', () => this.socket?.close());
    this.command.focus();
  }

  start() {
    this.socket?.close();
    this.output.textContent = '';
    const words = this.command.value.trim().split(/\s+/);
    const command = words.map((word) => `&command=${encodeURIComponent(word)}`).join('');
    const options = query({ container: this.container, stdin: true, stdout: true, stderr: true });
    const opened = socket(`${this.path}/exec${options}${command}`, PROTOCOLS);
    this.socket = opened;
    opened.binaryType = 'arraybuffer';
    const decoders = new Map([CHANNEL.stdout, CHANNEL.stderr, CHANNEL.error].map((one) => [one, new TextDecoder()]));
    opened.onopen = () => {
      this.state.textContent = t('connected');
      this.input.disabled = false;
      this.input.focus();
    };
    opened.onmessage = ({ data }) => this.receive(parseFrame(data), decoders);
    opened.onclose = (event) => {
      if (opened !== this.socket) return;
      this.input.disabled = true;
      if (this.state.textContent === '' || this.state.textContent === t('connected')) {
        this.state.textContent = event.code === 1000 ? t('ended') : `${t('refusedStream')} ${event.reason}`;
      }
    };
    this.state.textContent = '';
  }

  receive({ channel, bytes }, decoders) {
    const text = decoders.get(channel)?.decode(bytes, { stream: true });
    if (!text) return;
    if (channel !== CHANNEL.error) {
      this.print(text);
      return;
    }
    try {
      const { ok, code, message } = exitOf(JSON.parse(text));
      this.state.textContent = ok ? `${t('ended')} (0)` : `${t('ended')} (${code ?? message})`;
    } catch {
      this.state.textContent = text;
    }
  }

  print(text) {
    const all = this.output.textContent + plainText(text);
    this.output.textContent = all.slice(-OUTPUT_CHARACTERS_MAX);
    this.output.scrollTop = this.output.scrollHeight;
  }

  typed(event) {
    if (event.key === 'ArrowUp' && this.history.length) {
      this.input.value = this.history[this.history.length - 1];
      event.preventDefault();
    }
    if (event.key === 'd' && event.ctrlKey) {
      // Only v5 can close one direction; in v4 the end of the input cannot be said.
      if (this.socket.protocol === PROTOCOLS[0]) this.socket.send(closeFrame(CHANNEL.stdin));
      event.preventDefault();
    }
    if (event.key !== 'Enter') return;
    const line = this.input.value;
    this.history.push(line);
    this.print(`› ${line}\n`);
    this.socket.send(frame(CHANNEL.stdin, new TextEncoder().encode(`${line}\n`)));
    this.input.value = '';
  }
}
