import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { EN } from '../../web/js/strings_en.js';
import { ZH } from '../../web/js/strings_zh.js';

const FOLDER = new URL('../../web/js/', import.meta.url).pathname;
const files = readdirSync(FOLDER, { recursive: true }).filter((name) => name.endsWith('.js')).map((name) => join(FOLDER, name));
const sources = files.map((file) => [file, readFileSync(file, 'utf8')]);
const texts = sources.map(([, text]) => text).join('\n');

test('both languages have the same texts', () => {
  assert.deepEqual(Object.keys(ZH), Object.keys(EN));
  for (const table of [EN, ZH]) {
    for (const [key, text] of Object.entries(table)) assert.ok(text.trim(), key);
  }
});

test('each text that is used is there, and each that is there is used', () => {
  const used = [...texts.matchAll(/\bt\('([A-Za-z_]+)'/g)].map((found) => found[1]);
  const missing = used.filter((key) => !(key in EN));
  assert.deepEqual(missing, []);
  // Names in tables and parts of names: `step_${step}`.
  const isUsed = (key) => texts.includes(`'${key}'`) || texts.includes(`\`${key.split('_')[0]}_\${`);
  assert.deepEqual(Object.keys(EN).filter((key) => !isUsed(key)), []);
});

test('nothing that is stored becomes markup', () => {
  const markup = /innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc|\beval\(|new Function/;
  assert.deepEqual(sources.filter(([, text]) => markup.test(text)).map(([file]) => file), []);
});

test('the page loads its modules at once, but for those that it needs later', () => {
  const page = readFileSync(join(FOLDER, '../index.html'), 'utf8');
  const loaded = [...page.matchAll(/<link rel="modulepreload" href="([^"]*)">/g)].map((found) => found[1]);
  const later = ['js/main.js', 'js/yaml_reader.js'];
  const all = files.map((file) => `js/${file.slice(FOLDER.length)}`).filter((file) => !later.includes(file));
  assert.deepEqual(loaded.sort(), all.sort());
});

test('files are short', () => {
  const long = sources.filter(([, text]) => text.split('\n').length > 400).map(([file]) => file);
  assert.deepEqual(long, []);
});
