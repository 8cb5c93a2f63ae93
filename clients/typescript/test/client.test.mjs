// SPDX-License-Identifier: Apache-2.0

// The client against a real server. usage: VERGE=build/release/tools/verge node --test test/
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { ProblemError, Tasks } from "../dist/index.js";

const directory = mkdtempSync(join(tmpdir(), "verge-ts-"));
let server, url, tasks;

function serve(port) {
  return new Promise((done, fail) => {
    server = spawn(process.env.VERGE, ["serve", "--listen", "127.0.0.1:0", "--http", `127.0.0.1:${port}`, "--data", join(directory, "tasks")],
      { stdio: ["ignore", "pipe", "inherit"] });
    let text = "";
    server.once("exit", status => fail(new Error(`the server has ended: ${status}`)));
    server.stdout.on("data", bytes => {
      text += bytes;
      const at = text.match(/http:\/\/127\.0\.0\.1:\d+/);
      if (at) done(at[0]);
    });
  });
}
function kill(signal) {
  return new Promise(done => { server.removeAllListeners("exit"); server.once("exit", done); server.kill(signal); });
}

before(async () => { url = await serve(0); tasks = new Tasks(url); });
after(async () => { await kill("SIGTERM"); rmSync(directory, { recursive: true }); });

test("puts, shows, reschedules and cancels by key", async () => {
  const put = await tasks.put("orders", { body: "cancel order 7", key: "order-7", delay: 1_800_000 });
  assert.equal(put.outcome, "inserted");
  assert.equal((await tasks.put("orders", { body: "again", key: "order-7" })).outcome, "kept");
  assert.equal((await tasks.showKey("orders", "order-7")).state, "delayed");
  assert.equal(await tasks.reschedule("orders", "order-7", new Date("2100-01-01T00:00:00Z")), "rescheduled");
  assert.equal((await tasks.show(put.id)).due, "2100-01-01T00:00:00Z");
  assert.equal(await tasks.cancel("orders", "order-7"), "cancelled");
  assert.equal(await tasks.cancel("orders", "order-7"), "not-found");
  assert.equal(await tasks.show(put.id), undefined);
});

test("waits for a task, and tells one that is taken", async () => {
  await tasks.put("wait", { body: "soon", key: "k", delay: 200 });
  const [task] = await tasks.reserve("wait", { wait: 60_000 });
  assert.equal(task.body, "soon");
  assert.equal(await tasks.cancel("wait", "k"), "taken");
  await tasks.touch(task);
  await tasks.ack(task);
  await assert.rejects(tasks.ack(task), error => error instanceof ProblemError && error.kind === "not-found");
  assert.deepEqual(await tasks.reserve("wait"), []);
});

test("puts many, lists them all, buries and kicks", async () => {
  await tasks.putMany("many", Array.from({ length: 250 }, (_, i) => ({ body: String(i) })));
  const bodies = [];
  for await (const t of tasks.list("many", "ready", { bodies: true })) bodies.push(Number(t.body));
  assert.deepEqual(bodies, Array.from({ length: 250 }, (_, i) => i));
  const [one] = await tasks.reserve("many");
  await tasks.bury(one, { priority: 3 });
  assert.equal((await tasks.show(one.id)).state, "buried");
  assert.equal(await tasks.kick("many", 10), 1);
  const names = [];
  for await (const t of tasks.tubes()) names.push(t.name);
  assert(names.includes("many"));
  await tasks.pause("many", 60_000);
  assert.deepEqual(await tasks.reserve("many"), []);
  await tasks.pause("many", 0);
  assert((await tasks.server()).ready >= 250);
});

test("says what was wrong", async () => {
  await assert.rejects(tasks.put("a b", { body: "x" }), error => error.status === 400 && /hyphen/.test(error.message));
  await assert.rejects(tasks.put("t", { body: "x", delay: -1 }), error => error.problem.where === "/delay");
});

test("works on tasks: each is acked, and one that fails comes again", async () => {
  await tasks.putMany("work", Array.from({ length: 20 }, (_, i) => ({ body: String(i) })));
  const stop = new AbortController();
  const seen = new Map(), failures = [];
  await tasks.work("work", task => {
    seen.set(task.body, (seen.get(task.body) ?? 0) + 1);
    if (task.body === "5" && task.attempts < 3) throw new Error("not yet");
    if (seen.size === 20 && seen.get("5") === 3) stop.abort();
  }, { signal: stop.signal, concurrency: 4, wait: 1000, onError: e => failures.push(e) });
  assert.equal(seen.get("5"), 3);
  assert.equal(failures.length, 2);
  assert.equal([...seen.values()].reduce((a, b) => a + b), 22);
});

test("a put goes through while the server is away for a moment, once", async () => {
  const port = Number(new URL(url).port);
  await kill("SIGKILL");
  const patient = new Tasks(url, { retries: 12 });
  const putting = patient.put("away", { body: "kept", key: "once" });
  await serve(port);
  assert.equal((await putting).outcome, "inserted");
  assert.equal((await tasks.reserve("away", { max: 10 })).length, 1);
});
