// SPDX-License-Identifier: Apache-2.0

// A receiver of pushes: puts tasks, and verifies each push with standardwebhooks.
// usage: receiver.js ADDRESS
const assert = require("node:assert");
const http = require("node:http");
const { Webhook } = require("standardwebhooks");

const server = `http://${process.argv[2]}`;
const bodies = ['{"order": 7}', "[]", '{"text": "grüße 😀"}', '"' + "x".repeat(60000) + '"'];

async function ask(method, path, body) {
  const response = await fetch(server + path, {
    method,
    headers: { "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const answer = await response.json();
  assert(response.ok, JSON.stringify(answer));
  return answer;
}

function receive(check) {
  return new Promise((resolve, reject) => {
    const receiver = http.createServer((request, response) => {
      const parts = [];
      request.on("data", (part) => parts.push(part));
      request.on("end", () => {
        try {
          check(request.headers, Buffer.concat(parts).toString());
          response.writeHead(204).end();
        } catch (error) {
          response.writeHead(500).end();
          reject(error);
        }
      });
    });
    receiver.listen(0, "127.0.0.1", () => resolve(receiver));
  });
}

async function main() {
  let secrets = [];
  let left = 0;
  let done;
  const receiver = await receive((headers, body) => {
    for (const secret of secrets) new Webhook(secret).verify(body, headers);
    const wrong = new Webhook("whsec_" + Buffer.alloc(32).toString("base64"));
    assert.throws(() => wrong.verify(body, headers));
    assert.throws(() => new Webhook(secrets[0]).verify(body + " ", headers));
    if (--left === 0) done();
  });
  const url = `http://127.0.0.1:${receiver.address().port}/hook`;
  const deliver = async () => {
    left = bodies.length;
    const all = new Promise((resolve) => (done = resolve));
    await ask("POST", "/v1/tubes/hooks/tasks", bodies.map((body) => ({ body })));
    await all;
  };
  // A secret that the server makes, then two of our own: each of them verifies.
  secrets = [(await ask("PUT", "/v1/tubes/hooks/push", { url })).secret];
  await deliver();
  secrets = [1, 2].map((n) => "whsec_" + Buffer.alloc(32, n).toString("base64"));
  await ask("PUT", "/v1/tubes/hooks/push", { url, secret: secrets });
  await deliver();
  receiver.close();
  console.log(`standardwebhooks has verified ${2 * bodies.length} pushes`);
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
