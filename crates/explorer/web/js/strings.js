/** The texts of the page, in its languages. */

import { ZH } from './strings_zh.js';
import { EN } from './strings_en.js';

const LANGUAGE_KEY = 'keelson.language';
const TABLES = { en: EN, 'zh-CN': ZH };

/** The languages as `[code, name]`. */
export const languages = [['en', 'English'], ['zh-CN', '中文']];

let chosen = initial();

function initial() {
  const kept = globalThis.localStorage?.getItem(LANGUAGE_KEY);
  if (kept in TABLES) return kept;
  return globalThis.navigator?.language?.startsWith('zh') ? 'zh-CN' : 'en';
}

export const language = () => chosen;

export function setLanguage(code) {
  chosen = code in TABLES ? code : 'en';
  globalThis.localStorage?.setItem(LANGUAGE_KEY, chosen);
}

/** The text of a key. An unknown key is its own text: it is seen, and nothing breaks. */
export function t(key) {
  return TABLES[chosen][key] ?? EN[key] ?? key;
}
