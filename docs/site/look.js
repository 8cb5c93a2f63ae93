// Looks at pages of the site at 1280 and at 400 pixels, light and dark, and takes pictures. A page must
// load nothing from elsewhere, report no error, and not be wider than the screen; its text must have
// contrast; the drawings must move, and stand still for readers that ask for that.
//
// usage: node look.js CHROMIUM HTML PICTURES [PAGE,..]

'use strict';
const path = require('path');
const puppeteer = require('puppeteer-core');

const [chromium, html, pictures, only] = process.argv.slice(2);
const pages = only ? only.split(',') : ['index', 'guide/first-timer', 'guide/server', 'cookbook/rpc-client', 'migrating', 'guarantees',
  'how-timers-are-stored', 'reference/index', 'reference/time', 'reference/group', 'benchmarks', 'tasks', 'readme'];
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

async function look(browser, name, width, theme, motion) {
  const where = `${name} at ${width}, ${theme}`;
  const reader = await browser.createBrowserContext();  // that has chosen no theme yet
  const page = await reader.newPage();
  await page.setViewport({ width, height: width === 400 ? 800 : 900 });
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: theme },
    { name: 'prefers-reduced-motion', value: motion }]);
  page.on('pageerror', (e) => faults.push(`${where}: ${e.message}`));
  page.on('request', (r) => check(/^(file|data|blob):/.test(r.url()), `${where} loads ${r.url()}`));
  await page.goto(`file://${html}/${name}.html`, { waitUntil: 'load' });
  // The theme's script chooses the palette when it has loaded.
  await page.waitForFunction((scheme) => document.body.getAttribute('data-md-color-scheme') === scheme,
    { timeout: 20000 }, theme === 'dark' ? 'slate' : 'default')
    .catch(() => faults.push(`${where}: the theme does not follow the system`));
  const seen = await page.evaluate(() => {
    const text = document.querySelector('.md-typeset p');
    return {
      wide: document.documentElement.scrollWidth,
      ink: getComputedStyle(text).color,
      paper: getComputedStyle(document.body).backgroundColor,
      size: parseFloat(getComputedStyle(text).fontSize),
      heading: document.querySelector('h1').textContent.length,
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
  check((luminance(seen.paper) < 0.2) === (theme === 'dark'), `${where}: the paper is ${seen.paper}`);
  if (name === 'how-timers-are-stored') {
    check(seen.drawings === 4, `${where} has ${seen.drawings} drawings`);
    check((seen.moving > 0) === (motion === 'no-preference'), `${where}: ${seen.moving} parts move with ${motion}`);
  }
  for (const [before, after] of seen.pairs)
    check((before === after) === (width === 1280), `${where}: before and after are at ${before} and ${after}`);
  const file = `${name.replace('/', '-')}-${width}-${theme}${motion === 'reduce' ? '-still' : ''}.png`;
  if (motion === 'reduce' || name !== 'how-timers-are-stored')
    await page.screenshot({ path: path.join(pictures, file), fullPage: width === 400 });
  await reader.close();
}

(async () => {
  const browser = await puppeteer.launch({ executablePath: chromium, headless: 'new',
    args: ['--no-sandbox', '--disable-gpu', '--allow-file-access-from-files'] });
  try {
    for (const name of pages)
      for (const width of widths)
        for (const theme of themes) {
          await look(browser, name, width, theme, 'no-preference');
          if (name === 'how-timers-are-stored') await look(browser, name, width, theme, 'reduce');
        }
  } finally {
    await browser.close();
  }
  for (const fault of faults) console.error(`site: ${fault}`);
  console.log(`site: looked at ${pages.length} pages, ${widths.join(' and ')} pixels, ${themes.join(' and ')}: pictures in ${pictures}`);
  process.exit(faults.length ? 1 : 0);
})();
