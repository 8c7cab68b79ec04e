// An example: tests with a simulated cluster.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startKeelson } from "keelson-apiserver";

const DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments";
const JOBS = "/apis/batch/v1/namespaces/default/jobs";
const PODS = "/api/v1/namespaces/default/pods";

let server;
before(async () => {
  server = await startKeelson({ flags: ["--simulate", "--simulate-nodes=2"] });
});
after(() => server.stop());

test("a Deployment becomes available and survives a drain", async () => {
  const labels = { app: "web" };
  const template = { metadata: { labels }, spec: { containers: [{ name: "c", image: "nginx" }] } };
  const spec = { replicas: 3, selector: { matchLabels: labels }, template };
  await server.request("POST", DEPLOYMENTS, { metadata: { name: "web" }, spec });
  const made = await server.waitAvailable(`${DEPLOYMENTS}/web`);
  assert.equal(made.status.readyReplicas, 3);
  const [pod] = (await server.request("GET", PODS)).items;
  await server.simulation.cutOffPod(pod.metadata.name);
  await server.waitFor(`${DEPLOYMENTS}/web`, ({ status }) => status.readyReplicas === 2);
  await server.simulation.reconnectPod(pod.metadata.name);
  await server.waitAvailable(`${DEPLOYMENTS}/web`);
  const nodes = (await server.request("GET", "/api/v1/nodes")).items;
  await server.simulation.drainNode(nodes[0].metadata.name);
  // Evicted pods are gone before the Deployment's status says so: the pods tell when it is over.
  const ready = ({ status }) => status.conditions?.some((one) => one.type === "Ready" && one.status === "True");
  const moved = (one) => one.spec.nodeName === nodes[1].metadata.name && ready(one);
  await server.waitFor(PODS, ({ items }) => items.length === 3 && items.every(moved));
  await server.waitAvailable(`${DEPLOYMENTS}/web`);
  await server.request("DELETE", `${DEPLOYMENTS}/web`);
});

test("an hour of work takes no time", async () => {
  const containers = [{ name: "c", image: "busybox", command: ["sleep", "3600"] }];
  const template = { spec: { restartPolicy: "Never", containers } };
  await server.request("POST", JOBS, { metadata: { name: "hour" }, spec: { template } });
  await server.waitFor(`${JOBS}/hour`, ({ status }) => status.ready === 1);
  const began = await server.simulation.time();
  await server.simulation.step("1h5s");
  await server.waitAvailable(`${JOBS}/hour`);
  assert.ok((await server.simulation.time()) - began >= 3600_000);
});
