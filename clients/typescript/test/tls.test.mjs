// SPDX-License-Identifier: Apache-2.0

// The client over TLS, with a token: a server whose certificate is of an authority of its own.
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

const directory = mkdtempSync(join(tmpdir(), "verge-tls-"));
const file = name => join(directory, name);
let server, url, token;

before(async () => {
  const openssl = (...words) => execFileSync("openssl", words, { stdio: "ignore" });
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
  openssl("req", "-x509", ...key, "-keyout", file("ca.key"), "-out", file("ca.pem"), "-subj", "/CN=an authority", "-days", "2");
  openssl("req", ...key, "-keyout", file("key.pem"), "-out", file("request.pem"), "-subj", "/CN=localhost");
  writeFileSync(file("names"), "subjectAltName=DNS:localhost\n");
  openssl("x509", "-req", "-in", file("request.pem"), "-CA", file("ca.pem"), "-CAkey", file("ca.key"), "-CAcreateserial",
    "-out", file("cert.pem"), "-days", "2", "-extfile", file("names"));
  token = execFileSync(process.env.VERGE, ["token", "--file", file("tokens.json"), "add", "shop", "--scope", "put,work", "--tube", "ours"]).toString().trim();
  server = spawn(process.env.VERGE, ["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", file("tasks"),
    "--tls-cert", file("cert.pem"), "--tls-key", file("key.pem"), "--tokens", file("tokens.json")], { stdio: ["ignore", "pipe", "inherit"] });
  const port = await new Promise((done, fail) => {
    let text = "";
    server.once("exit", status => fail(new Error(`the server has ended: ${status}`)));
    server.stdout.on("data", bytes => {
      text += bytes;
      const at = text.match(/https:\/\/127\.0\.0\.1:(\d+)/);
      if (at) done(at[1]);
    });
  });
  url = `https://localhost:${port}`;
});
after(async () => {
  server.removeAllListeners("exit");
  await new Promise(done => { server.once("exit", done); server.kill("SIGTERM"); });
  rmSync(directory, { recursive: true });
});

/** Runs a program that uses the client, in a process that trusts these certificates. */
function run(program, trusted) {
  const text = `import { Tasks } from ${JSON.stringify(new URL("../dist/index.js", import.meta.url).href)};
    const tasks = (token, tube) => new Tasks(${JSON.stringify(url)}, { token, retries: 0 });
    const token = ${JSON.stringify(token)};
    try { ${program} } catch (e) { console.log(e.kind ?? e.cause?.code ?? e.code ?? e.message); }`;
  const { NODE_EXTRA_CA_CERTS: _, ...env } = process.env;
  const ran = spawnSync(process.execPath, ["--input-type=module", "--eval", text],
    { env: trusted ? { ...env, NODE_EXTRA_CA_CERTS: trusted } : env });
  return ran.stdout.toString().trim() || ran.stderr.toString();
}

test("puts and works over TLS with a token", () => {
  assert.equal(run(`const t = tasks(token);
    await t.put("ours", { body: "over TLS" });
    const [got] = await t.reserve("ours", { wait: 60000 });
    await t.ack(got);
    console.log(got.body);`, file("ca.pem")), "over TLS");
});

test("trusts no server whose certificate is of an authority that it does not know", () => {
  assert.match(run(`await tasks(token).put("ours", { body: "x" }); console.log("sent");`), /UNABLE_TO_VERIFY|SELF_SIGNED/);
});

test("says what its token may not do", () => {
  assert.equal(run(`await tasks(token).put("theirs", { body: "x" });`, file("ca.pem")), "forbidden");
  assert.equal(run(`await tasks("vt_wrong").put("ours", { body: "x" });`, file("ca.pem")), "unauthorized");
});
