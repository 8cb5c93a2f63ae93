// SPDX-License-Identifier: Apache-2.0

// Looks at every page of the site at 1280 and at 400 pixels, light and dark, and takes pictures. A page must
// load nothing from elsewhere, report no error, and not be wider than the screen; its text must have
// contrast; the drawings must move, and stand still for readers that ask for that.
//
// usage: node look.js CHROMIUM HTML PICTURES [PAGE,..]

'use strict';
const fs = require('fs');
const path = require('path');
const puppeteer = require('puppeteer-core');

const [chromium, html, pictures, only] = process.argv.slice(2);
const all = fs.readdirSync(html, { recursive: true }).filter((f) => f.endsWith('.html') && f !== '404.html')
  .map((f) => f.slice(0, -'.html'.length)).sort();
const pages = only ? only.split(',') : all;
const widths = [1280, 400];
const themes = ['light', 'dark'];
const faults = [];
const check = (right, what) => { if (!right) faults.push(what); };

// Of a colour "rgb(r, g, b)" or "rgba(...)": its relative luminance, by WCAG.
const luminance = (colour) => {
  const [r, g, b] = colour.match(/[\d.]+/g).slice(0, 3).map((c) => {
    const s = c / 255;
    return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => {
  const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
};

// A reader with a screen and a taste, and no theme chosen yet.
async function reader(browser, width, theme, motion) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  await page.setViewport({ width, height: width === 400 ? 800 : 900 });
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: theme },
    { name: 'prefers-reduced-motion', value: motion }]);
  const at = { name: '' };
  page.on('pageerror', (e) => faults.push(`${at.name}: ${e.message}`));
  page.on('request', (r) => check(/^(file|data|blob):/.test(r.url()), `${at.name} loads ${r.url()}`));
  return { page, at, close: () => context.close() };
}

async function look({ page, at }, name, width, theme, motion) {
  const where = `${name} at ${width}, ${theme}`;
  at.name = where;
  await page.goto(`file://${html}/${name}.html`, { waitUntil: 'load' });
  // The theme's script chooses the palette when it has loaded.
  await page.waitForFunction((scheme) => document.body.getAttribute('data-md-color-scheme') === scheme,
    { timeout: 20000 }, theme === 'dark' ? 'slate' : 'default')
    .catch(() => faults.push(`${where}: the theme does not follow the system`));
  const seen = await page.evaluate(() => {
    const text = document.querySelector('.md-typeset p') || document.querySelector('.md-typeset');
    // What is cut off: a word, a figure or a line of code that is wider than what it is in, and that cannot
    // be scrolled to.
    const cut = [...document.querySelectorAll('.md-content h1, .md-content h2, .md-content h3, .md-content p, .md-content li, ' +
      '.md-content td, .md-content th')].filter((e) => {
      if (!e.offsetParent || e.closest('svg') || e.scrollWidth <= e.clientWidth + 1) return false;
      for (let up = e; up && up !== document.body; up = up.parentElement)
        if (/auto|scroll/.test(getComputedStyle(up).overflowX)) return false;
      return getComputedStyle(e).overflowX === 'hidden' || e.getBoundingClientRect().right > innerWidth;
    }).map((e) => e.textContent.trim().slice(0, 40));
    // Links and code have other colours than the text.
    const inks = [...new Set([...document.querySelectorAll('.md-content a:not(.headerlink), .md-content td, .md-content code span')]
      .slice(0, 400).map((e) => getComputedStyle(e).color))];
    return {
      cut,
      inks,
      pictures: [...document.querySelectorAll('.md-content img')].filter((i) => !i.complete || !i.naturalWidth).map((i) => i.src),
      wide: document.documentElement.scrollWidth,
      ink: getComputedStyle(text).color,
      paper: getComputedStyle(document.body).backgroundColor,
      size: parseFloat(getComputedStyle(text).fontSize),
      heading: (document.querySelector('h1') || { textContent: '' }).textContent.length,
      moving: document.getAnimations().filter((a) => a.playState === 'running' &&
        a.effect.target.closest('svg[role=img]')).length,
      pairs: [...document.querySelectorAll('.side-by-side')].map((d) =>
        [...d.querySelectorAll('.highlight')].map((h) => Math.round(h.getBoundingClientRect().top))),
      drawings: document.querySelectorAll('svg[role=img]').length,
    };
  });
  check(seen.wide <= width, `${where} is ${seen.wide} pixels wide`);
  check(seen.size >= 12, `${where}: the text has ${seen.size} pixels`);
  check(seen.heading > 0, `${where} has no heading`);
  check(contrast(seen.ink, seen.paper) >= 4.5,
    `${where}: ${seen.ink} on ${seen.paper} has a contrast of ${contrast(seen.ink, seen.paper).toFixed(1)}`);
  for (const text of seen.cut) check(false, `${where}: "${text}" is cut off`);
  for (const src of seen.pictures) check(false, `${where}: ${src} is not shown`);
  // Less than for text: code has colours of its own, on a paper of its own.
  for (const ink of seen.inks) check(contrast(ink, seen.paper) >= 3, `${where}: ${ink} on ${seen.paper}`);
  check((luminance(seen.paper) < 0.2) === (theme === 'dark'), `${where}: the paper is ${seen.paper}`);
  if (name === 'how-timers-are-stored') {
    check(seen.drawings === 4, `${where} has ${seen.drawings} drawings`);
    check((seen.moving > 0) === (motion === 'no-preference'), `${where}: ${seen.moving} parts move with ${motion}`);
  }
  for (const [before, after] of seen.pairs)
    check((before === after) === (width === 1280), `${where}: before and after are at ${before} and ${after}`);
  const file = `${name.replaceAll('/', '-')}-${width}-${theme}${motion === 'reduce' ? '-still' : ''}.png`;
  if (motion === 'reduce' || name !== 'how-timers-are-stored')
    await page.screenshot({ path: path.join(pictures, file), fullPage: width === 400 });
}

(async () => {
  const browser = await puppeteer.launch({ executablePath: chromium, headless: 'new',
    args: ['--no-sandbox', '--disable-gpu', '--allow-file-access-from-files'] });
  try {
    check(only || pages.length > 80, `there are ${pages.length} pages only`);
    const readers = [];
    for (const width of widths)
      for (const theme of themes)
        readers.push(async () => {
          const one = await reader(browser, width, theme, 'no-preference');
          for (const name of pages) await look(one, name, width, theme, 'no-preference');
          await one.close();
          const still = await reader(browser, width, theme, 'reduce');
          if (pages.includes('how-timers-are-stored')) await look(still, 'how-timers-are-stored', width, theme, 'reduce');
          await still.close();
        });
    for (let i = 0; i < readers.length; i += 2) await Promise.all(readers.slice(i, i + 2).map((r) => r()));
  } finally {
    await browser.close();
  }
  for (const fault of faults) console.error(`site: ${fault}`);
  console.log(`site: looked at ${pages.length} pages, ${widths.join(' and ')} pixels, ${themes.join(' and ')}: pictures in ${pictures}`);
  process.exit(faults.length ? 1 : 0);
})();
