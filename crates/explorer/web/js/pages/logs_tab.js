/** The logs of a pod, followed. */

import { button, h, replace, select } from '../dom.js';
import { ApiError, lines, query, send } from '../api.js';
import { plainText } from '../channels.js';
import { LinesView } from '../lines_view.js';
import { LogBuffer } from '../log_buffer.js';
import { t } from '../strings.js';
import * as keys from '../keys.js';

const TAIL_LINES = 1000;

/** The containers of a pod, those that are asked for most first. */
export const containersOf = (pod) => [
  ...(pod.spec.containers ?? []), ...(pod.spec.initContainers ?? []), ...(pod.spec.ephemeralContainers ?? []),
].map((one) => one.name);

export function show(context) {
  let logs = null;
  context.onObject((pod) => { logs ??= new Logs(context, containersOf(pod)); });
}

class Logs {
  constructor({ path, body, signal }, containers) {
    Object.assign(this, { path, signal, container: containers[0] });
    this.options = { previous: false, timestamps: false };
    this.sticks = true;
    this.state = h('span', { class: 'count', role: 'status' });
    this.view = new LinesView({ label: t('tab_logs'), isYaml: false });
    this.view.element.addEventListener('scroll', () => {
      const { scrollTop, clientHeight, scrollHeight } = this.view.element;
      this.sticks = scrollTop + clientHeight >= scrollHeight - 30;
    });
    const filter = h('input', {
      type: 'search', 'aria-label': t('filter'), placeholder: t('filter'),
      oninput: () => { this.buffer.setFilter(filter.value); this.draw(); },
    });
    const toggle = (name) => {
      const node = button(t(name), () => {
        this.options[name] = !this.options[name];
        node.setAttribute('aria-pressed', String(this.options[name]));
        this.restart();
      }, { 'aria-pressed': 'false' });
      return node;
    };
    replace(body, h('div', { class: 'bar' },
      select(containers.map((name) => [name, name]), this.container, (name) => { this.container = name; this.restart(); }, { 'aria-label': t('container') }),
      filter, toggle('previous'), toggle('timestamps'), this.state), this.view.element);
    keys.bind({ '/': { run: () => filter.focus(), text: 'filter' }, ...this.view.keys() }, signal);
    signal.addEventListener('abort', () => { this.current?.abort(); this.view.close(); });
    this.restart();
  }

  restart() {
    this.current?.abort();
    this.current = new AbortController();
    this.buffer = new LogBuffer();
    this.follow(this.current.signal);
  }

  async follow(signal) {
    const { previous, timestamps } = this.options;
    const path = `${this.path}/log${query({
      container: this.container, follow: !previous, tailLines: TAIL_LINES,
      ...(previous && { previous }), ...(timestamps && { timestamps }),
    })}`;
    try {
      this.state.textContent = t('state_live');
      const response = await send(path, { signal, accept: '*/*' });
      if (!response.ok) throw new ApiError(response.status, await response.json().catch(() => ({})));
      let isScheduled = false;
      await lines(response.body, (line) => {
        this.buffer.push(plainText(line));
        if (isScheduled) return;
        isScheduled = true;
        requestAnimationFrame(() => { isScheduled = false; this.draw(); });
      });
      this.state.textContent = t('ended');
    } catch (error) {
      if (!signal.aborted) this.state.textContent = error.message;
    }
  }

  draw() {
    this.view.setLines(this.buffer.view.map((text) => ({ text })));
    if (this.sticks) this.view.list.scrollToEnd();
  }
}
