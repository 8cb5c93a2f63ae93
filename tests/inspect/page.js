// SPDX-License-Identifier: Apache-2.0

// The inspector's page in a real browser: what it shows, wide and narrow, light and dark.
// usage: node page.js CHROMIUM URL SCRATCH [PICTURES]
'use strict';
const assert = require('assert');
const path = require('path');
const { run, test } = require('./page_tests.js');

const [chromium, url, scratch, pictures] = process.argv.slice(2);
let page;
const elsewhere = [];

const until = (f, ...args) => page.waitForFunction(f, { timeout: 120000, polling: 100 }, ...args);
const label = id => page.$eval('#' + id, e => e.getAttribute('aria-label'));
/// How many different colours a canvas has: one that is drawn has several.
const colours = id => page.$eval('#' + id, c => {
  const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, seen = new Set();
  for (let i = 0; i < data.length; i += 4) seen.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
  return seen.size;
});

test('is live, and loads nothing from elsewhere', async () => {
  await until(() => document.getElementById('status').textContent === 'live');
  assert.deepStrictEqual(elsewhere, []);
});
test('shows how many timers are pending', async () => {
  await until(() => /^\d+ timers are pending/.test(document.getElementById('due').getAttribute('aria-label')));
  assert.ok(Number((await label('due')).match(/^\d+/)[0]) > 1000);
  assert.ok(await colours('due') > 3);
});
test('shows how late they fired', async () => {
  await until(() => /^[1-9]\d* timers fired/.test(document.getElementById('heat').getAttribute('aria-label')));
  assert.ok(await colours('heat') > 4);
});
test('has a lane for each processor', async () => {
  const lanes = await page.$$eval('.lane', all => all.map(l => l.children[2].textContent));
  assert.ok(lanes.length >= 1);
  for (const l of lanes) assert.match(l, /% busy, \d+ ready/);
});
test('shows what happens in a second', async () => {
  await until(() => /^per second: [1-9][\d.\u202f]*( k)? fired, [\d.\u202f]+( k)? wake-ups, [\d.\u202f]+( k)? steals$/.test(document.getElementById('rates').getAttribute('aria-label')));
  assert.ok(await colours('rates') > 3);
});
test('shows the wheel', async () => {
  assert.match(await label('wheel'), /^[1-9]\d* slots in use/);
  assert.ok(await colours('wheel') > 3);
});
test('names labels and tasks', async () => {
  await until(() => document.getElementById('labels').textContent.includes('reminder'));
  await until(() => document.getElementById('labels').textContent.includes('idle time-out'));
  await until(() => /courier.*sleep/.test(document.getElementById('tasks').textContent));
  // How many have fired, and how many do in a second; where a label comes from.
  await until(() => [...document.querySelectorAll('#labels tr')].some(r => r.children[0].textContent === 'reminder' &&
    r.children[2].textContent !== '' && r.children[3].textContent !== ''));
  assert.match(await page.$$eval('#labels td', all => all.find(d => d.textContent === 'reminder').title), /^live_shop\.cc:\d+ /);
});
test('shows a stall and where it was', async () => {
  await until(() => document.getElementById('stalls').textContent.includes('the report that takes too long'));
  assert.match(await page.$eval('#stalls', e => e.textContent), /\(live_shop\.cc:\d+ /);
  assert.ok(await page.$eval('#stalls pre', e => e.textContent.split('\n').length) > 2);
});
test('fits on a phone', async () => {
  await page.setViewport({ width: 400, height: 900, deviceScaleFactor: 2 });
  await new Promise(done => setTimeout(done, 1500));
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 400), 'it is wider than the screen');
});
test('says that there is no answer', async () => {
  await page.setOfflineMode(true);
  await until(() => document.getElementById('status').textContent === 'no answer');
  await page.setOfflineMode(false);
  await until(() => document.getElementById('status').textContent === 'live');
});

async function take(name, width, height, scheme) {
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
  await page.setViewport({ width, height, deviceScaleFactor: 1 });
  await new Promise(done => setTimeout(done, 2500));
  await page.screenshot({ path: path.join(pictures, name + '.png'), fullPage: width < 600 });
}

run({
  chromium, scratch,
  begin: async opened => {
    page = opened;
    page.on('request', r => { if (!r.url().startsWith(url) && !r.url().startsWith('data:')) elsewhere.push(r.url()); });
    await page.setViewport({ width: 1280, height: 1100 });
    await page.goto(url);
  },
  finish: async () => {
    if (!pictures) return;
    for (const scheme of ['light', 'dark']) {
      await take('wide-' + scheme, 1280, 1100, scheme);
      await take('narrow-' + scheme, 400, 900, scheme);
    }
  },
}).then(failed => process.exit(failed ? 1 : 0), e => { console.error(e); process.exit(1); });
