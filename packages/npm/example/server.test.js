// An example: tests of a program that uses the Kubernetes API, with a server for each test.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { request } from "node:https";
import { afterEach, beforeEach, test } from "node:test";
import { startKeelson } from "keelson-apiserver";

const CONFIG_MAPS = "/api/v1/namespaces/default/configmaps";

let server;
beforeEach(async () => {
  server = await startKeelson();
});
afterEach(() => server.stop());

/** Sends a request as an administrator and resolves to the status and the object of the answer. */
function call(method, path, body) {
  const headers = { authorization: `Bearer ${server.token}`, "content-type": "application/json" };
  const options = { method, headers, ca: server.certificateAuthority, agent: false };
  return new Promise((resolve, reject) => {
    const sent = request(new URL(path, server.url), options, (answer) => {
      let text = "";
      answer.setEncoding("utf8").on("data", (part) => (text += part));
      answer.on("end", () => resolve({ status: answer.statusCode, object: JSON.parse(text) }));
    });
    sent.on("error", reject).end(body && JSON.stringify(body));
  });
}

for (const value of ["one", "two"]) {
  test(`a fresh server has the objects of one test only: ${value}`, async () => {
    const made = await call("POST", CONFIG_MAPS, { metadata: { name: "a" }, data: { value } });
    assert.equal(made.status, 201);
    const read = await call("GET", `${CONFIG_MAPS}/a`);
    assert.deepEqual(read.object.data, { value });
  });
}

test("the kubeconfig is a file while the server runs", async () => {
  assert.equal(readFileSync(server.kubeconfigPath, "utf8"), server.kubeconfig);
  await server.stop();
  assert.equal(existsSync(server.kubeconfigPath), false);
});

test("a start that fails has the log", async () => {
  const failed = startKeelson({ flags: ["--nothing"] });
  await assert.rejects(failed, /did not start[^]*unknown flag: --nothing/);
});

test("a server does not outlive the process that started it", () => {
  const script = `
    import { startKeelson } from "keelson-apiserver";
    const server = await startKeelson();
    console.log(server.pid);
    process.kill(process.pid, "SIGKILL");`;
  const run = spawnSync(process.execPath, ["--input-type=module", "--eval", script], {
    cwd: import.meta.dirname ?? process.cwd(),
    encoding: "utf8",
  });
  const pid = Number(run.stdout);
  assert.ok(pid > 0, run.stderr);
  const deadline = Date.now() + 30_000;
  while (isRunning(pid)) {
    assert.ok(Date.now() < deadline, "the server still runs");
  }
});

/** Whether a process runs: one that has ended may wait for its parent to ask. */
function isRunning(pid) {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}
