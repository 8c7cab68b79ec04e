/**
 * Measures the list of many objects, by hand: `KEELSON_PROGRAM=... node measure.js [COUNT [SECONDS]]`. Prints
 * the time to the first rows, to all rows, frames while it scrolls, and the memory of the page under events.
 */

import { setUp, Tab } from './harness.js';
import { fill } from './objects.js';

const COUNT = Number(process.argv[2] ?? 100_000);
const EVENTS_SECONDS = Number(process.argv[3] ?? 60);
const SCROLL_MS = 3000;
const EVENTS_IN_A_SECOND = 1000;
/** Objects that change, one after the other. */
const CHANGED_OBJECTS = 5000;
const CLIENTS = 16;
/** Times that the memory is printed. */
const MEMORY_SAMPLES = 10;

const print = (name, value) => process.stdout.write(`${name}: ${value}\n`);

/** Scrolls through the whole list, and returns the frames in a second and the longest frame. */
function scroll(page) {
  return page.evaluate((duration) => new Promise((resolve) => {
    const grid = document.querySelector('[role=grid]');
    const times = [];
    const begin = performance.now();
    const step = (now) => {
      times.push(now);
      grid.scrollTop = (grid.scrollHeight * (now - begin)) / duration;
      if (now - begin < duration) requestAnimationFrame(step);
      else {
        const gaps = times.slice(1).map((time, at) => time - times[at]);
        resolve({ fps: (times.length / (now - begin)) * 1000, longest: Math.max(...gaps) });
      }
    };
    requestAnimationFrame(step);
  }), SCROLL_MS);
}

async function heap(page) {
  const session = await page.createCDPSession();
  await session.send('HeapProfiler.collectGarbage');
  const { usedSize } = await session.send('Runtime.getHeapUsage');
  await session.detach();
  return usedSize / 1e6;
}

/** Changes objects at a steady rate, and prints the memory of the page and the rate that was reached. */
async function underEvents(api, page) {
  const begin = performance.now();
  const seconds = () => (performance.now() - begin) / 1000;
  let sent = 0;
  const client = async () => {
    while (seconds() < EVENTS_SECONDS) {
      const ahead = sent / EVENTS_IN_A_SECOND - seconds();
      if (ahead > 0) await new Promise((resolve) => { setTimeout(resolve, ahead * 1000); });
      const at = sent % Math.min(COUNT, CHANGED_OBJECTS);
      sent += 1;
      await api.send('PATCH', `/api/v1/namespaces/many/configmaps/many-${String(at).padStart(6, '0')}`,
        { data: { a: `${sent}` } }, 'application/merge-patch+json');
    }
  };
  const clients = Promise.all(Array.from({ length: CLIENTS }, client));
  for (let sample = 0; sample <= MEMORY_SAMPLES; sample += 1) {
    const due = (EVENTS_SECONDS * sample) / MEMORY_SAMPLES;
    await Promise.race([clients, new Promise((resolve) => { setTimeout(resolve, (due - seconds()) * 1000); })]);
    print(`memory after ${sent} events, MB`, (await heap(page)).toFixed(1));
  }
  await clients;
  print('events in a second', (sent / seconds()).toFixed(0));
}

const all = await setUp();
try {
  await fill(all.api, 'many', COUNT, 32);
  print('objects', COUNT);
  const tab = await Tab.open(all.browser, all.address.href);
  await tab.see('nav', 'Resources');
  // The counts of the first page end before the measurement.
  await tab.until('counts', () => document.querySelectorAll('.count:empty').length === 0);
  const begin = await tab.page.evaluate(() => {
    location.hash = '#/list/-/configmaps?ns=many';
    return performance.now();
  });
  await tab.until('rows', () => document.querySelector('.grid-row'));
  const first = await tab.page.evaluate(() => performance.getEntriesByName('keelson-first-rows')[0].startTime);
  print('first rows after, ms', (first - begin).toFixed(0));
  const partly = await scroll(tab.page);
  print('frames in a second while it loads', `${partly.fps.toFixed(0)}, longest ${partly.longest.toFixed(0)} ms`);
  for (let isDone = false; !isDone;) {
    isDone = await tab.page.evaluate((wanted) => document.querySelector('.count').textContent.startsWith(wanted), `${(COUNT + 1).toLocaleString('en')} live`);
    await new Promise((resolve) => { setTimeout(resolve, 200); });
  }
  const end = await tab.page.evaluate(() => performance.now());
  print('all rows after, ms', (end - begin).toFixed(0));
  const whole = await scroll(tab.page);
  print('frames in a second', `${whole.fps.toFixed(0)}, longest ${whole.longest.toFixed(0)} ms`);
  print('rows in the document', await tab.page.$$eval('.grid-row', (rows) => rows.length));
  await underEvents(all.api, tab.page);
  for (const fault of tab.faults) print('fault', fault);
} finally {
  await all.close();
}
