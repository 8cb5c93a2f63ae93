// SPDX-License-Identifier: Apache-2.0

// What the tests of our pages in a real browser share: a list of tests, a page to run them on, and
// that the browser has nothing to complain of.
'use strict';
const puppeteer = require('puppeteer-core');

const tests = [];
/// Adds a test; its body may return a promise.
exports.test = (name, body) => tests.push([name, body]);

/// Opens a page, hands it to `begin`, which loads what is tested, runs all tests, then `finish`.
/// Returns how many failed. `scratch` is a directory for what the browser writes.
exports.run = async ({ chromium, scratch, begin, finish = () => {} }) => {
  const browser = await puppeteer.launch({ executablePath: chromium, headless: true, protocolTimeout: 300000,
    args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', ...(scratch ? ['--user-data-dir=' + scratch] : [])] });
  let failed = 0;
  try {
    const page = await browser.newPage();
    const complaints = [];
    // A test that goes off-line makes loads fail; the page has to bear it.
    page.on('console', m => { if (m.type() === 'error' && !/Failed to load resource|ERR_/.test(m.text())) complaints.push(m.text()); });
    page.on('pageerror', e => complaints.push(String(e)));
    await begin(page);
    for (const [name, body] of tests) {
      try {
        await body();
        console.log('ok      ' + name);
      } catch (e) {
        ++failed;
        console.log('FAILED  ' + name + '\n' + e.stack);
      }
    }
    if (complaints.length) {
      ++failed;
      console.log('FAILED  the browser complains:\n' + complaints.join('\n'));
    }
    await finish(page);
  } finally {
    await browser.close();
  }
  return failed;
};
