// The page in a real browser: put, see it count down, kick, cancel, go off-line and come back, narrow
// and dark. usage: node page.js CHROMIUM VERGE DIRECTORY [PICTURES]
'use strict';
const assert = require('assert');
const { execFileSync, spawn } = require('child_process');
const fs = require('fs');
const path = require('path');
const { run, test } = require('./page_tests.js');

const [chromium, verge, directory, pictures] = process.argv.slice(2);

/// A server of our own. With a port it comes back where it was.
function serve(port = 0, data = 'tasks', ...more) {
  const server = spawn(verge, ['serve', '--listen', '127.0.0.1:0', '--http', `127.0.0.1:${port}`,
    '--data', path.join(directory, data), ...more], { stdio: ['ignore', 'pipe', 'inherit'] });
  return new Promise((done, fail) => {
    let text = '';
    server.on('exit', status => fail(new Error(`the server has ended: ${status}`)));
    server.stdout.on('data', bytes => {
      text += bytes;
      const at = text.match(/http:\/\/127\.0\.0\.1:(\d+)\//);
      if (at) done({ server, port: Number(at[1]), url: at[0] });
    });
  });
}
function end(server) {
  return new Promise(done => { server.removeAllListeners('exit'); server.on('exit', done); server.kill('SIGTERM'); });
}

let page, at;
/// Requests of the page that change something, in the order in which it sent them.
const sent = [];

const text = id => page.$eval('#' + id, e => e.textContent);
/// Waits, for as long as it takes, until a function of the page holds.
const until = (f, ...args) => page.waitForFunction(f, { timeout: 120000, polling: 50 }, ...args);
/// Only what an operator sees can be clicked on.
const click = id => page.$eval('#' + id, e => { if (!e.checkVisibility()) throw new Error(e.id + ' is not to be seen'); e.click(); });
const fill = (id, value) => page.$eval('#' + id, (e, v) => { e.value = v; }, value);
const api = async (method, target, body) => {
  const r = await fetch(at.url.slice(0, -1) + target, { method, body: body && JSON.stringify(body), headers: body ? { 'Content-Type': 'application/json' } : {} });
  return r.json();
};
const openTube = async name => {
  await until(n => [...document.querySelectorAll('#tube-rows button')].some(b => b.textContent === n), name);
  await page.evaluate(n => [...document.querySelectorAll('#tube-rows button')].find(b => b.textContent === n).click(), name);
};
const putByHand = async (body, key, delay) => {
  await fill('put-body', body);
  await fill('put-key', key);
  await fill('put-delay', String(delay));
  await page.$eval('#put', e => e.requestSubmit());
};

test('has no two elements of the same id', async () => {
  const ids = await page.$$eval('[id]', all => all.map(e => e.id));
  assert.deepEqual(ids.filter((id, i) => ids.indexOf(id) !== i), []);
});

test('is live', () => until(() => document.getElementById('status').textContent === 'live'));

test('puts a task and counts down until it is due', async () => {
  await api('POST', '/v1/tubes/orders/tasks', { body: 'cancel order 1', key: 'order-1', delay: 3600000 });
  await openTube('orders');
  await putByHand('cancel order 2', 'order-2', 3);
  await until(() => /in [0-9.]+ (s|ms)/.test(document.getElementById('task-fields').textContent));
  const left = () => text('task-fields').then(t => t.match(/in ([0-9.]+) (s|ms)/));
  const first = await left();
  await until(() => document.getElementById('task-fields').textContent.includes('Stateready'));
  assert(first[2] === 'ms' || Number(first[1]) <= 3);
});

test('shows the tube with its counts', () => until(() => {
  const row = [...document.querySelectorAll('#tube-rows tr')].find(r => r.dataset.name === 'orders');
  return row && row.children[1].textContent === '1' && row.children[2].textContent === '1';
}));

test('finds a task by its key, reschedules it and kicks it', async () => {
  await fill('find-id', '');
  await fill('find-tube', 'orders');
  await fill('find-key', 'order-1');
  await page.$eval('#find', e => e.requestSubmit());
  await until(() => document.getElementById('task-fields').textContent.includes('order-1'));
  await fill('task-delay', '7200');
  await click('task-reschedule');
  await until(() => /in 1 h 59 min|in 2 h 0 min/.test(document.getElementById('task-fields').textContent));
  await click('task-kick');
  await until(() => document.getElementById('task-fields').textContent.includes('Stateready'));
});

test('asks before it cancels, and does not if told no', async () => {
  await click('task-cancel');
  await until(() => document.getElementById('confirm').open);
  assert.equal(await page.evaluate(() => document.activeElement.id), 'confirm-no');
  await page.keyboard.press('Enter');
  await until(() => !document.getElementById('confirm').open);
  assert.equal((await api('GET', '/v1/tubes/orders/keys/order-1')).state, 'ready');
  await click('task-cancel');
  await until(() => document.getElementById('confirm').open);
  await click('confirm-yes');
  await until(() => document.getElementById('said').textContent.includes('cancelled'));
  assert.equal((await api('GET', '/v1/tubes/orders/keys/order-1')).status, 404);
});

test('lists tasks, and what is in a body stays text', async () => {
  await api('POST', '/v1/tubes/orders/tasks', { body: '<img src=x onerror="document.title=1">', delay: 1800000, key: '<b>' });
  await fill('list-state', 'delayed');
  await click('list');
  await until(() => document.querySelectorAll('#list-rows tr').length === 1);
  assert.match(await text('list-rows'), /<img src=x/);
  assert.equal(await page.evaluate(() => document.images.length), 0);
  assert.equal(await page.title(), 'verge tasks');
});

test('pauses a tube and ends the pause', async () => {
  await fill('pause-for', '600');
  await click('pause');
  await until(() => document.getElementById('tube-rows').textContent.includes('paused for'));
  await click('resume');
  await until(() => !document.getElementById('tube-rows').textContent.includes('paused for'));
});

test('lets a tube take no more tasks, and again', async () => {
  await click('drain-tube');
  await until(() => document.getElementById('tube-rows').textContent.includes('takes no tasks'));
  await click('undrain-tube');
  await until(() => !document.getElementById('tube-rows').textContent.includes('takes no tasks'));
});

test('draws what is due in the next hour', () => until(() =>
  [...document.querySelectorAll('#forecast rect')].some(r => Number(r.getAttribute('height')) > 0) &&
  document.getElementById('forecast').getAttribute('aria-label').includes('due in the next hour')));

test('says what was wrong', async () => {
  await fill('find-id', '999999');
  await page.$eval('#find', e => e.requestSubmit());
  await until(() => document.getElementById('said').className.includes('bad'));
  assert.match(await text('said'), /no such task/);
  await fill('find-id', '');
});

test('sends nothing when it is told not to drain the server', async () => {
  sent.length = 0;
  await click('drain-server');
  await until(() => document.getElementById('confirm').open);
  await click('confirm-no');
  await until(() => !document.getElementById('confirm').open);
  // A request of the page that begins after all that it has begun by now.
  await page.evaluate(() => fetch('/v1/tubes/orders/kick', { method: 'POST' }));
  assert.deepEqual(sent, ['POST /v1/tubes/orders/kick']);
  assert.equal((await api('GET', '/v1/tubes/orders')).max_tasks, undefined);
  assert.equal((await api('GET', '/v1/server')).draining, false);
});

test('takes no more tasks when asked to, and warns', async () => {
  sent.length = 0;
  await click('drain-server');
  await until(() => document.getElementById('confirm').open);
  await click('confirm-yes');
  await until(() => document.getElementById('alerts').textContent.includes('takes no more tasks'));
  await click('drain-server');
  await until(() => document.getElementById('alerts').textContent === '');
  assert.deepEqual(sent, ['POST /v1/server/drain', 'POST /v1/server/drain']);
  assert.equal((await api('GET', '/v1/tubes/orders')).max_tasks, undefined);
});

test('shows the interface', async () => {
  await page.$eval('#api', e => { e.open = true; });
  await until(() => document.getElementById('api-rows').textContent.includes('/v1/tubes/{tube}/reserve'));
  await page.$eval('#api', e => { e.open = false; });
});

test('can be used with the keyboard alone', async () => {
  await page.reload();
  await until(() => document.getElementById('tube-rows').textContent.includes('orders'));
  const seen = [];
  for (let i = 0; i < 6; ++i) {
    await page.keyboard.press('Tab');
    seen.push(await page.evaluate(() => document.activeElement.id || document.activeElement.textContent.trim()));
  }
  assert(seen.includes('To the tubes') && seen.includes('drain-server') && seen.includes('orders'), seen.join(', '));
  const unnamed = await page.evaluate(() => [...document.querySelectorAll('button, input, select, svg[role=img]')]
    .filter(e => !(e.textContent.trim() || e.getAttribute('aria-label') || (e.labels && e.labels.length))).map(e => e.id));
  assert.deepEqual(unnamed.filter(id => id !== 'confirm-yes'), [], 'every control has a name');
});

test('shows many tubes and a rush', async () => {
  for (let i = 0; i < 12; ++i) {
    const tasks = Array.from({ length: 40 * (i + 1) }, (_, n) => ({ body: `mail ${n}`, delay: 60000 + (n * 7919 * (i + 3)) % 3500000, key: `k${n}` }));
    await api('POST', `/v1/tubes/mail-${i}/tasks`, tasks);
    await api('POST', `/v1/tubes/mail-${i}/tasks`, Array.from({ length: 5 + i }, () => ({ body: 'now' })));
    const { tasks: got } = await api('POST', `/v1/tubes/mail-${i}/reserve?max=5`);
    for (const t of got.slice(0, i % 4)) await api('POST', `/v1/leases/${t.lease}/bury`);
  }
  await until(() => document.querySelectorAll('#tube-rows tr').length >= 14);
  await openTube('mail-3');
  await click('download');
  await until(() => document.getElementById('said').textContent.includes('3 buried tasks downloaded'));
});

test('goes off-line and comes back', async () => {
  await end(at.server);
  await until(() => document.getElementById('status').textContent.startsWith('off-line'));
  at = await serve(at.port);
  await until(() => document.getElementById('status').textContent === 'live');
});

test('counts leases that outlast a restart', () => until(() => {
  const row = [...document.querySelectorAll('#tube-rows tr')].find(r => r.dataset.name === 'mail-0');
  return row.children[1].textContent === '0' && row.children[3].textContent === '5';
}));

test('asks for a token, says if it is wrong, and goes on with a right one', async () => {
  const file = path.join(directory, 'tokens.json');
  const token = execFileSync(verge, ['token', '--file', file, 'add', 'operator', '--scope', 'read,put,work,admin']).toString().trim();
  const closed = await serve(0, 'closed', '--tokens', file);
  try {
    await page.goto(closed.url);
    await until(() => document.getElementById('token-dialog').open);
    await fill('token', 'vt_wrong');
    await page.$eval('#token-form', e => e.requestSubmit());
    await until(() => document.getElementById('token-wrong').textContent.includes('not accepted'));
    await fill('token', token);
    await page.$eval('#token-form', e => e.requestSubmit());
    await until(() => document.getElementById('status').textContent === 'live');
    await openTube('default');
    await putByHand('with a token', '', 0);
    await until(() => document.getElementById('task-body').textContent === 'with a token');
    await page.reload();
    await until(() => document.getElementById('status').textContent === 'live');
  } finally {
    await end(closed.server);
    await page.goto(at.url);
  }
});

test('fits into 400 pixels, light and dark', async () => {
  await until(() => [...document.querySelectorAll('#forecast rect')].some(r => Number(r.getAttribute('height')) > 0));
  await until(() => document.getElementById('said').textContent === '');
  for (const scheme of ['light', 'dark']) {
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
    for (const width of [1280, 400]) {
      await page.setViewport({ width, height: 900 });
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert(overflow <= 0, `${overflow} pixels too wide at ${width}`);
      if (pictures) await page.screenshot({ path: path.join(pictures, `page-${scheme}-${width}.png`), fullPage: true });
    }
  }
});

(async () => {
  fs.mkdirSync(directory, { recursive: true });
  at = await serve();
  try {
    const scratch = path.join(directory, 'browser');
    const failed = await run({ chromium, scratch, begin: opened => {
      page = opened;
      page.on('request', r => { if (r.method() !== 'GET') sent.push(r.method() + ' ' + new URL(r.url()).pathname); });
      return page.goto(at.url);
    } });
    process.exitCode = failed ? 1 : 0;
  } finally {
    await end(at.server);
  }
})().catch(e => { console.error(e); process.exit(1); });
