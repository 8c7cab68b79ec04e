/** An object as YAML; the field under the cursor is explained by its schema. */

import { button, h, replace } from '../dom.js';
import { withoutManagedFields } from '../blame.js';
import { LinesView } from '../lines_view.js';
import { SchemaHelp } from '../schema_help.js';
import { toLines, toYaml } from '../yaml_writer.js';
import { t } from '../strings.js';
import * as keys from '../keys.js';

export function show({ resource, body, signal, onObject }) {
  const help = new SchemaHelp(resource);
  let shown = {};
  let withManaged = false;
  const view = new LinesView({ label: 'YAML', onCursor: (at) => help.show(view.lines[at]?.path ?? []) });
  const draw = () => view.setLines(toLines(withManaged ? shown : withoutManagedFields(shown)));
  const managed = button('managedFields', () => {
    withManaged = !withManaged;
    managed.setAttribute('aria-pressed', String(withManaged));
    draw();
  }, { 'aria-pressed': 'false' });
  const copy = button(t('copy'), async () => {
    await navigator.clipboard.writeText(toYaml(withoutManagedFields(shown)));
    copy.textContent = t('copied');
  });
  replace(body, h('div', { class: 'bar' }, managed, copy),
    h('div', { class: 'split' }, view.element, help.element));
  onObject((object) => { shown = object; draw(); });
  keys.bind({ ...view.keys(), c: { run: () => copy.click(), text: 'copy' } }, signal);
  signal.addEventListener('abort', () => view.close());
  view.element.focus({ preventScroll: true });
}
