// SPDX-License-Identifier: Apache-2.0

// The page in a real browser: put, see it count down, kick, cancel, go off-line and come back, narrow
// and dark. usage: node page.js CHROMIUM VERGE DIRECTORY [PICTURES]
'use strict';
const assert = require('assert');
const { execFileSync, spawn } = require('child_process');
const fs = require('fs');
const http = require('http');
const path = require('path');
const axe = require('axe-core');
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

/// The same server through a proxy, which lets a test change what its stream of events says, and
/// answer paths itself.
function proxied(change, answers = {}) {
  const proxy = http.createServer((asked, answer) => {
    if (answers[asked.url]) {
      answer.writeHead(200, { 'Content-Type': 'application/json' });
      answer.end(JSON.stringify(answers[asked.url]()));
      return;
    }
    const on = http.request(at.url.slice(0, -1) + asked.url, { method: asked.method, headers: asked.headers }, got => {
      answer.writeHead(got.statusCode, got.headers);
      if (asked.url !== '/v1/events') { got.pipe(answer); return; }
      let text = '';
      got.setEncoding('utf8');
      got.on('data', bytes => {
        text += bytes;
        for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
          const event = text.slice(0, end), from = event.indexOf('data: ');
          const isState = event.startsWith('event: state');
          answer.write(isState ? event.slice(0, from) + 'data: ' + JSON.stringify(change(JSON.parse(event.slice(from + 6)))) + '\n\n' : event + '\n\n');
        }
      });
      got.on('end', () => answer.end());
    });
    on.on('error', () => answer.destroy());
    answer.on('close', () => on.destroy());
    asked.pipe(on);
  });
  return new Promise(done => proxy.listen(0, '127.0.0.1', () => done({
    url: `http://127.0.0.1:${proxy.address().port}/`,
    close: () => new Promise(closed => { proxy.close(closed); proxy.closeAllConnections(); }),
  })));
}

let page, at;
/// Requests of the page that change something, in the order in which it sent them.
const sent = [];

const text = id => page.$eval('#' + id, e => e.textContent);
/// Waits, for as long as it takes, until a function of the page holds.
const until = (f, ...args) => page.waitForFunction(f, { timeout: 120000, polling: 50 }, ...args)
  .catch(e => { throw new Error(`${e.message}: ${f} ${args}`); });
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

/// What axe-core has against what is shown now.
const faults = async what => {
  await page.evaluate(axe.source);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  assert.deepEqual(found.violations.map(v => `${what}: ${v.id}: ${v.help}: ${v.nodes.map(n => n.target.join(' ')).join(', ')}`), []);
};
/// A picture, wide and narrow, light and dark; nothing is wider than the window, and axe-core is content.
const look = async name => {
  for (const scheme of ['light', 'dark']) {
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
    for (const width of [1280, 400]) {
      await page.setViewport({ width, height: 900 });
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert(overflow <= 0, `${name}: ${overflow} pixels too wide at ${width}`);
      await faults(`${name}, ${scheme}, ${width}`);
      if (pictures) await page.screenshot({ path: path.join(pictures, `${name}-${scheme}-${width}.png`), fullPage: true });
    }
  }
  await page.emulateMediaFeatures([]);
  await page.setViewport({ width: 1280, height: 900 });
};

test('has no two elements of the same id', async () => {
  const ids = await page.$$eval('[id]', all => all.map(e => e.id));
  assert.deepEqual(ids.filter((id, i) => ids.indexOf(id) !== i), []);
});

test('is live', () => until(() => document.getElementById('status').textContent === 'live'));

test('warns of nothing at first', async () => {
  assert.equal(await text('alerts'), '');
  await api('POST', '/v1/tubes/slow/tasks', { body: 'nobody fetches this', key: 'old' });  // see below
});

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

test('asks before it forgets the limit of a tube', async () => {
  await api('PUT', '/v1/tubes/orders/limits', { max_tasks: 5000 });
  await until(() => document.getElementById('tube-rows').textContent.includes('takes 5,000'));
  await click('drain-tube');
  await until(() => document.getElementById('confirm').open);
  await click('confirm-no');
  await until(() => !document.getElementById('confirm').open);
  assert.equal((await api('GET', '/v1/tubes/orders')).max_tasks, 5000);
  await click('undrain-tube');
  await until(() => !document.getElementById('tube-rows').textContent.includes('takes 5,000'));
});

test('shows leases, and kicks the buried of a tube', async () => {
  await api('POST', '/v1/tubes/graves/tasks', Array.from({ length: 5 }, (_, n) => ({ body: `grave ${n}`, ttr: 3600000 })));
  const { tasks } = await api('POST', '/v1/tubes/graves/reserve?max=5');
  for (const t of tasks.slice(0, 3)) await api('POST', `/v1/leases/${t.lease}/bury`);
  await openTube('graves');
  await fill('list-state', 'reserved');
  await click('list');
  await until(() => document.querySelectorAll('#list-rows tr').length === 2);
  assert.match(await text('list-rows'), /lease ends in 59 min/);
  assert(!(await text('list-rows')).includes(tasks[4].lease.split('.')[1]), 'the token stays with the worker');
  const row = () => page.evaluate(() => [...[...document.querySelectorAll('#tube-rows tr')].find(r => r.dataset.name === 'graves').children].slice(1, 5).map(c => c.textContent).join(' '));
  await until(() => [...document.querySelectorAll('#tube-rows tr')].find(r => r.dataset.name === 'graves').children[4].textContent === '3');
  assert.equal(await row(), '0 0 2 3');
  await fill('kick-max', '2');
  await click('kick-tube');
  await until(() => document.getElementById('said').textContent === '2 kicked.');
  await until(() => [...document.querySelectorAll('#tube-rows tr')].find(r => r.dataset.name === 'graves').children[4].textContent === '1');
  assert.equal(await row(), '2 0 2 1');
  // Many at once are asked about.
  await fill('kick-max', '1000');
  await click('kick-tube');
  await until(() => document.getElementById('confirm').open);
  await click('confirm-no');
  await until(() => !document.getElementById('confirm').open);
  assert.equal((await api('GET', '/v1/tubes/graves')).buried, 1);
  await click('kick-tube');
  await until(() => document.getElementById('confirm').open);
  await faults('a question');
  await click('confirm-yes');
  await until(() => document.getElementById('said').textContent === '1 kicked.');
  await openTube('orders');
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
  await until(() => !document.getElementById('alerts').textContent.includes('takes no more tasks'));
  assert.deepEqual(sent, ['POST /v1/server/drain', 'POST /v1/server/drain']);
  assert.equal((await api('GET', '/v1/tubes/orders')).max_tasks, undefined);
});

test('warns of a clock that was set, and of a disk that has failed', async () => {
  let alerts = [{ kind: 'clock', text: 'The clock was set at 2030-01-01T00:00:00Z: due times moved with it' }];
  let failed = false;
  const proxy = await proxied(state => failed ? { alerts } : { ...state, alerts });
  try {
    await page.goto(proxy.url);
    await until(() => document.getElementById('status').textContent === 'live');
    await until(() => document.querySelector('#alerts li.clock') !== null);
    assert.equal(await page.$eval('#alerts', e => e.parentElement.getAttribute('role')), 'alert');
    assert.match(await text('alerts'), /The clock was set at/);
    alerts = [];
    await until(() => document.getElementById('alerts').children.length === 0);
    // As the server says it when it cannot ask its broker any more.
    alerts = [{ kind: 'write-stopped', text: 'The disk has failed: nothing is written any more' }];
    failed = true;
    await until(() => document.querySelector('#alerts li.write-stopped') !== null);
    assert.match(await text('alerts'), /The disk has failed/);
    assert.equal(await text('status'), 'not writing');
    assert.notEqual(await text('tiles'), '', 'what was known is still shown');
    await look('alert');
  } finally {
    await page.goto(at.url);
    await proxy.close();
    await until(() => document.getElementById('status').textContent === 'live');
  }
});

test('shows no cluster where there is none, and the servers and shards of one', async () => {
  assert.equal(await page.$eval('#cluster', e => e.checkVisibility()), false);
  const server = name => ({ name, shards: 1, up: 90000, tasks: '127.0.0.1:11300', peer: '127.0.0.1:40000' });
  const cluster = { answers: 'aaaa', servers: [server('aaaa'), { ...server('bbbb'), http: '127.0.0.1:11381' }],
    shards: [{ shard: 0, epoch: 7, owner: 'aaaa', lease_left: 9000, lag: 0 }, { shard: 1, epoch: 3, owner: 'bbbb', lease_left: 8000, lag: 250 },
      { shard: 2, epoch: 12, lease_left: 0, lag: 65000 }] };
  const proxy = await proxied(state => state, { '/v1/cluster': () => cluster });
  try {
    await page.goto(proxy.url);
    await until(() => document.getElementById('cluster').checkVisibility());
    assert.equal(await text('cluster-note'), '2 servers, 3 shards, 1 without an owner, lag 1 min 5 s at most. aaaa answers.');
    const rows = id => page.$$eval('#' + id + ' tr', all => all.map(r => [...r.children].map(c => c.textContent).join(' ')));
    assert.deepEqual(await rows('cluster-servers'), ['aaaa 1 0.0 s 1 min 30 s 127.0.0.1:11300 –', 'bbbb 1 250 ms 1 min 30 s 127.0.0.1:11300 127.0.0.1:11381']);
    assert.deepEqual(await rows('cluster-shards'), ['0 aaaa 7 9.0 s 0.0 s', '1 bbbb 3 8.0 s 250 ms', '2 none 12 0.0 s 1 min 5 s']);
    await page.$eval('#cluster-details', e => { e.open = true; });
    await look('cluster');
    // What changes is seen without a reload.
    cluster.shards[2] = { ...cluster.shards[2], owner: 'bbbb', epoch: 13, lag: 0 };
    await until(() => document.getElementById('cluster-note').textContent.includes('none without an owner'));
  } finally {
    await page.goto(at.url);
    await proxy.close();
    await until(() => document.getElementById('status').textContent === 'live');
  }
});

test('shows the interface', async () => {
  await page.$eval('#api', e => { e.open = true; });
  await until(() => document.getElementById('api-rows').textContent.includes('/v1/tubes/{tube}/reserve'));
  await look('interface');
  await page.$eval('#api', e => { e.open = false; });
});

test('can be used with the keyboard alone, in the order in which it reads', async () => {
  await page.reload();
  await until(() => document.getElementById('tube-rows').textContent.includes('orders'));
  const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.textContent.trim());
  const tab = async wanted => {
    for (let i = 0; i < 60; ++i) {
      await page.keyboard.press('Tab');
      if (await focused() === wanted) return;
    }
    assert.fail(`Tab does not come to ${wanted}`);
  };
  await page.keyboard.press('Tab');
  assert.equal(await focused(), 'To the tubes');
  await page.keyboard.press('Tab');
  assert.equal(await focused(), 'drain-server');
  await tab('orders');
  await page.keyboard.press('Enter');
  assert.equal(await focused(), 'h-tube', 'an opened tube is read next');
  for (const id of ['close-tube', 'pause-for', 'pause', 'resume', 'drain-tube', 'undrain-tube', 'kick-max', 'kick-tube', 'download', 'put-body',
    'put-key', 'put-delay', 'put-priority']) {
    await page.keyboard.press('Tab');
    assert.equal(await focused(), id);
  }
  await page.focus('#put-body');
  await page.keyboard.type('by keyboard');
  await page.keyboard.press('Enter');
  await until(() => document.getElementById('task-body').textContent === 'by keyboard');
  await page.focus('#task-cancel');
  await page.keyboard.press('Enter');
  await until(() => document.getElementById('confirm').open);
  assert.equal(await focused(), 'confirm-no');
  await page.keyboard.press('Tab');
  assert.equal(await focused(), 'confirm-yes');
  await page.keyboard.press('Escape');
  await until(() => !document.getElementById('confirm').open);
  assert.equal(await focused(), 'task-cancel', 'back where it was');
  await page.keyboard.press('Enter');
  await until(() => document.getElementById('confirm').open);
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await until(() => document.getElementById('said').textContent.includes('cancelled'));
  await page.focus('#close-tube');
  await page.keyboard.press('Enter');
  assert.equal(await focused(), 'tubes');
});

test('names everything that a screen reader reads', async () => {
  const tree = await page.accessibility.snapshot({ interestingOnly: true });
  const unnamed = [];
  const visit = node => {
    if (['button', 'textbox', 'combobox', 'spinbutton', 'link', 'image', 'img', 'table'].includes(node.role) && !node.name) unnamed.push(node.role);
    (node.children || []).forEach(visit);
  };
  visit(tree);
  assert.deepEqual(unnamed, []);
  for (const id of ['status', 'said']) {
    assert.equal(await page.$eval('#' + id, e => e.getAttribute('role')), 'status', 'what changes is told');
  }
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
    await faults('the log-in');
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

test('warns of a tube whose tasks are not fetched, and not if it is paused', async () => {
  await until(() => /slow: a task has been ready for \d+ s, and no worker waits/.test(document.getElementById('alerts').textContent));
  await api('POST', '/v1/tubes/slow/pause', { for: 3600000 });
  await until(() => !document.getElementById('alerts').textContent.includes('slow:'));
});

test('fits into 400 pixels, light and dark, and axe-core has nothing against it', async () => {
  await until(() => [...document.querySelectorAll('#forecast rect')].some(r => Number(r.getAttribute('height')) > 0));
  await until(() => document.getElementById('said').textContent === '');
  await look('page');
  await openTube('mail-3');
  await fill('list-state', 'buried');
  await click('list');
  await until(() => document.querySelectorAll('#list-rows tr').length === 3);
  await page.evaluate(() => document.querySelector('#list-rows button').click());
  await until(() => document.getElementById('task-fields').textContent.includes('buried'));
  await until(() => document.getElementById('said').textContent === '');
  await look('tube');
});

(async () => {
  fs.mkdirSync(directory, { recursive: true });
  if (pictures) fs.mkdirSync(pictures, { recursive: true });
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
