/**
 * Elements of the page. Text of the cluster becomes text nodes and attribute values only: nothing here
 * parses markup.
 */

const SVG = 'http://www.w3.org/2000/svg';

/**
 * Makes an element.
 * @param {string} tag
 * @param {Object<string, any>} [props] `class`, `on*` handlers, `style` as an object of CSS properties,
 *   booleans, other attributes. `null`, `undefined` and `false` leave an attribute out.
 * @param {...(Node|string|number|null|undefined|false|Array)} children
 * @returns {HTMLElement}
 */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** Makes an element of SVG; see {@link h}. */
export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) {
      node.addEventListener(name.slice(2), value);
    } else if (name === 'style') {
      for (const [property, text] of Object.entries(value)) node.style.setProperty(property, text);
    } else if (name === 'value' && 'value' in node) {
      node.value = value;
    } else {
      node.setAttribute(name, value === true ? '' : String(value));
    }
  }
  append(node, children);
  return node;
}

/** Adds children to a node; arrays are flattened, strings become text nodes. */
export function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
}

/** Replaces the children of a node. */
export function replace(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

/** A button with a text. */
export function button(text, onclick, props = {}) {
  return h('button', { type: 'button', onclick, ...props }, text);
}

/** A labelled field: the label contains the control. */
export function field(label, control) {
  return h('label', { class: 'field' }, h('span', {}, label), control);
}

/** A select of `[value, text]` pairs. */
export function select(options, value, onchange, props = {}) {
  const node = h('select', { onchange: () => onchange(node.value), ...props },
    options.map(([key, text]) => h('option', { value: key, selected: key === value }, text)));
  return node;
}

/** Text that screen readers announce. */
export function status(text = '') {
  return h('p', { class: 'status', role: 'status' }, text);
}
