// SPDX-License-Identifier: Apache-2.0

// Five clients from npm play the same scene: put, reserve, release, bury, kick, peek, delete, stats.
// usage: node clients.js PORT
'use strict';

const assert = require('assert');
const util = require('util');

const port = Number(process.argv[2]);
const host = '127.0.0.1';

async function jackd() {
  const Jackd = require('jackd');
  const c = new Jackd();
  await c.connect({ host, port });
  await c.use('jackd');
  await c.watch('jackd');
  await c.ignore('default');
  const id = await c.put('hello', { priority: 7, delay: 0, ttr: 60 });
  const job = await c.reserve();
  assert.strictEqual(String(job.id), String(id));
  assert.strictEqual(String(job.payload), 'hello');
  await c.touch(job.id);
  await c.release(job.id, { priority: 3, delay: 0 });
  const again = await c.reserveWithTimeout(5);
  await c.bury(again.id);
  assert.strictEqual(Number(await c.kick(10)), 1);
  const peeked = await c.peekReady();
  assert.strictEqual(String(peeked.payload), 'hello');
  const stats = await c.statsTube('jackd');
  assert(String(stats).includes('current-jobs-ready: 1'));
  await c.delete(id);
  await assert.rejects(c.delete(id));
  await c.quit();
}

async function fivebeans() {
  const { client: Client } = require('fivebeans');
  const c = new Client(host, port);
  await new Promise((resolve, reject) => c.on('connect', resolve).on('error', reject).connect());
  const call = (name, ...args) =>
    new Promise((resolve, reject) =>
      c[name](...args, (error, ...got) => (error ? reject(new Error(error)) : resolve(got))));
  assert.deepStrictEqual(await call('use', 'five'), ['five']);
  await call('watch', 'five');
  await call('ignore', 'default');
  const [id] = await call('put', 5, 0, 60, 'body of five');
  const [got, payload] = await call('reserve');
  assert.strictEqual(String(got), String(id));
  assert.strictEqual(String(payload), 'body of five');
  await call('release', id, 5, 0);
  const [second] = await call('reserve_with_timeout', 5);
  await call('bury', second, 9);
  const [kicked] = await call('kick', 5);
  assert.strictEqual(Number(kicked), 1);
  const [stats] = await call('stats_job', id);
  assert.strictEqual(Number(stats.kicks), 1);
  await call('destroy', id);
  await assert.rejects(call('peek', id), /NOT_FOUND/);
  const [tubes] = await call('list_tubes');
  assert(tubes.includes('five'));
  c.quit();
}

async function nodeBeanstalk() {
  const { Client } = require('node-beanstalk');
  const c = new Client({ host, port });
  await c.connect();
  await c.use('nb');
  await c.watch('nb');
  await c.ignore('default');
  const job = await c.put(Buffer.from('binary\0body'), 60, 10, 0);
  const got = await c.reserveWithTimeout(5);
  assert.strictEqual(got.id, job.id);
  assert(Buffer.isBuffer(got.payload) || typeof got.payload === 'string' || got.payload);
  await c.release(got.id, 1, 0);
  const by = await c.reserveJob(got.id);
  await c.bury(by.id, 1);
  assert.strictEqual(await c.kick(3), 1);
  const stats = await c.statsTube('nb');
  assert.strictEqual(stats.currentJobsReady ?? stats['current-jobs-ready'], 1);
  await c.delete(job.id);
  await c.pauseTube('nb', 0);
  await c.disconnect();
}

async function beanstalkd() {
  const Beanstalkd = require('beanstalkd').default || require('beanstalkd');
  const c = new Beanstalkd(host, port);
  await c.connect();
  await c.use('bd');
  await c.watch('bd');
  await c.ignore('default');
  const id = await c.put(1, 0, 60, 'from beanstalkd');
  const [got, body] = await c.reserve();
  assert.strictEqual(String(got), String(id));
  assert.strictEqual(String(body), 'from beanstalkd');
  await c.touch(id);
  await c.bury(id, 4);
  await c.kickJob(id);
  const stats = await c.statsJob(id);
  assert.strictEqual(stats.state, 'ready');
  await c.delete(id);
  await c.quit();
}

async function nodestalker() {
  const c = require('nodestalker').Client(`${host}:${port}`);
  const call = (name, ...args) =>
    new Promise((resolve, reject) => c[name](...args).onSuccess(resolve).onError(reject));
  await call('use', 'ns');
  await call('watch', 'ns');
  await call('put', 'from nodestalker', 3, 0, 60);
  const job = await call('reserve_with_timeout', 5);
  assert.strictEqual(String(job.data), 'from nodestalker');
  await call('release', job.id);
  const again = await call('reserve');
  await call('bury', again.id);
  await call('kick', 10);
  const peeked = await call('peek_ready');
  assert.strictEqual(String(peeked.data), 'from nodestalker');
  await call('deleteJob', job.id);
  c.disconnect();
}

(async () => {
  for (const client of [jackd, fivebeans, nodeBeanstalk, beanstalkd, nodestalker]) {
    const late = new Promise((_, reject) =>
      setTimeout(() => reject(new Error('no answer for a minute')), 60000).unref());
    try {
      await Promise.race([client(), late]);
      console.log(`${client.name}: passed`);
    } catch (e) {
      console.log(`${client.name}: FAILED: ${util.inspect(e)}`);
      process.exitCode = 1;
    }
  }
  process.exit();
})();
