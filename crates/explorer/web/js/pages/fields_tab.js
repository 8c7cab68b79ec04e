/** Who manages which line: managedFields beside the YAML. */

import { h, replace } from '../dom.js';
import { managersOf, ownersOf, withoutManagedFields } from '../blame.js';
import { LinesView } from '../lines_view.js';
import { SchemaHelp } from '../schema_help.js';
import { age } from '../table_model.js';
import { toLines } from '../yaml_writer.js';
import { t } from '../strings.js';
import * as keys from '../keys.js';

/** Colours of managers repeat after this many; the names tell them apart. */
const COLOURS = 8;

export function show({ resource, body, signal, onObject }) {
  const help = new SchemaHelp(resource);
  let managers = [];
  let owners = [];
  const describe = (at) => {
    const one = managers[at];
    return `${one.manager} · ${one.operation}${one.subresource ? ` · ${one.subresource}` : ''} · ${one.time ?? ''}`;
  };
  const view = new LinesView({
    label: t('tab_fields'),
    gutter: (at) => {
      const [first, ...more] = owners[at] ?? [];
      if (first === undefined) return null;
      const isSame = at > 0 && String(owners[at - 1]) === String(owners[at]);
      return {
        text: isSame ? '│' : managers[first].manager + (more.length ? ` +${more.length}` : ''),
        class: `blame owner-${first % COLOURS}`, title: owners[at].map(describe).join('\n'),
      };
    },
    onCursor: (at) => help.show(view.lines[at]?.path ?? [], h('ul', { class: 'owners' },
      (owners[at] ?? []).map((one) => h('li', { class: `owner-${one % COLOURS}` }, describe(one))),
      !owners[at]?.length && h('li', {}, t('nobody')))),
  });
  view.element.classList.add('with-blame');
  const legend = h('ul', { class: 'legend', 'aria-label': t('managers') });
  replace(body, legend, h('div', { class: 'split' }, view.element, help.element));
  onObject((object) => {
    const lines = toLines(withoutManagedFields(object));
    managers = managersOf(object);
    owners = lines.map((line) => ownersOf(object, line.path));
    replace(legend, managers.map((one, at) => h('li', { class: `owner-${at % COLOURS}`, title: one.time },
      h('strong', {}, one.manager), ` ${one.operation}`, one.subresource && ` /${one.subresource}`,
      one.time && ` · ${age(one.time, Date.now())}`)));
    view.setLines(lines);
  });
  keys.bind(view.keys(), signal);
  signal.addEventListener('abort', () => view.close());
  view.element.focus({ preventScroll: true });
}
