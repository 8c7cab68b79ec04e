/**
 * The playground: an expression in CEL (Common Expression Language), evaluated over the object as it is
 * now, with what it costs. The program that serves this page evaluates; the object is sent to it.
 */

import { button, h, replace } from '../dom.js';
import { json } from '../api.js';
import { withoutManagedFields } from '../blame.js';
import { stringifyExact } from '../json_exact.js';
import { LinesView } from '../lines_view.js';
import { toLines } from '../yaml_writer.js';
import { t } from '../strings.js';
import * as keys from '../keys.js';

const PATH = '/keelson/cel';
const WAIT_MS = 250;
const EXPRESSION_KEY = 'keelson.expression';
const EXAMPLES = [
  'object.metadata.name.startsWith("a")',
  'has(object.metadata.labels) && object.metadata.labels.size() > 0',
  'object.metadata.managedFields.map(f, f.manager)',
];

export function show({ body, signal, onObject }) {
  let object = null;
  let asked = 0;
  let timer = null;
  const input = h('textarea', {
    class: 'editor expression', rows: 4, spellcheck: 'false', 'aria-label': t('expression'),
    value: sessionStorage.getItem(EXPRESSION_KEY) ?? EXAMPLES[0], oninput: () => soon(),
  });
  const verdict = h('p', { class: 'status', role: 'status' });
  const cost = h('meter', { min: 0, 'aria-label': t('cost'), hidden: true });
  const result = new LinesView({ label: t('result') });
  const shown = new LinesView({ label: 'YAML' });

  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(evaluate, WAIT_MS);
  };
  const draw = (answer) => {
    verdict.classList.toggle('error', answer.error !== undefined);
    const price = answer.cost === undefined ? '' : ` · ${t('cost')} ${answer.cost.toLocaleString()} / ${answer.costLimit.toLocaleString()}`;
    verdict.textContent = `${answer.error === undefined ? answer.type : t('noValue')}${price}`;
    cost.hidden = answer.cost === undefined;
    cost.max = answer.costLimit ?? 1;
    cost.value = answer.cost ?? 0;
    result.setLines(toLines(answer.error ?? answer.value));
  };
  async function evaluate() {
    const expression = input.value;
    sessionStorage.setItem(EXPRESSION_KEY, expression);
    if (!object || !expression.trim()) return;
    asked += 1;
    const number = asked;
    let answer;
    try {
      const body = stringifyExact({ expression, object });
      answer = await json(PATH, { method: 'POST', type: 'application/json', body, signal, isProbe: true });
    } catch (error) {
      answer = { error: error.code === 403 || error.code === 404 ? `${t('noPlayground')} ${error.message}` : error.message };
    }
    // A later answer is shown already, or will be.
    if (number === asked && !signal.aborted) draw(answer);
  }

  replace(body, h('p', { class: 'hint' }, t('playgroundText')), input,
    h('div', { class: 'bar' }, EXAMPLES.map((text, at) => button(`${t('example')} ${at + 1}`, () => { input.value = text; evaluate(); }))),
    verdict, cost, h('div', { class: 'split even' }, result.element, shown.element));
  onObject((current) => {
    object = current;
    shown.setLines(toLines(withoutManagedFields(current)));
    evaluate();
  });
  keys.bind({ '/': { run: () => input.focus(), text: 'expression' } }, signal);
  signal.addEventListener('abort', () => {
    clearTimeout(timer);
    result.close();
    shown.close();
  });
}
