import { Agent, request as send } from "node:https";
import { setTimeout as delay } from "node:timers/promises";

const WAIT_MILLISECONDS_MAX = 30_000;
const POLL_MILLISECONDS = 1;
const MERGE = { "content-type": "application/merge-patch+json" };
/** A node without power: it reports nothing about itself and its pods. */
const FAILED = "simulation.keelson.dev/failed";
/** Pods that run and are not ready. */
const UNREADY = "simulation.keelson.dev/unready";

/** The server refused a request: `code` is the HTTP status, `status` the object of the kind Status. */
export class ApiError extends Error {
  constructor(code, status) {
    super(`${code}: ${status?.message ?? status}`);
    this.name = "ApiError";
    this.code = code;
    this.status = status;
  }
}

/** Returns what a server does for a test: requests, waiting, and its simulated cluster. */
export function client({ url, token, certificateAuthority }) {
  const agent = new Agent({ ca: certificateAuthority, keepAlive: true });
  const request = (method, path, body, headers = {}) => {
    const sent = {
      authorization: `Bearer ${token}`,
      accept: "application/json",
      ...(body === undefined ? {} : { "content-type": "application/json" }),
      ...headers,
    };
    return new Promise((resolve, reject) => {
      const asked = send(new URL(path, url), { method, headers: sent, agent }, (answer) => {
        let text = "";
        answer.setEncoding("utf8").on("data", (part) => (text += part));
        answer.on("error", reject).on("end", () => {
          const isJson = /^application\/json\b/.test(answer.headers["content-type"] ?? "");
          const object = isJson ? JSON.parse(text) : text;
          if (answer.statusCode >= 400) reject(new ApiError(answer.statusCode, object));
          else resolve(object);
        });
      });
      asked.on("error", reject).end(body === undefined ? undefined : JSON.stringify(body));
    });
  };
  const waitFor = async (path, condition, timeoutMs = WAIT_MILLISECONDS_MAX) => {
    const deadline = Date.now() + timeoutMs;
    for (;;) {
      const object = await request("GET", path);
      if (condition(object)) return object;
      if (Date.now() > deadline) {
        throw new Error(`${path} is not as expected; its status: ${JSON.stringify(object.status)}`);
      }
      await delay(POLL_MILLISECONDS);
    }
  };
  const waitAvailable = (path, timeoutMs) => waitFor(path, isAvailable, timeoutMs);
  const simulation = simulationOf(request, waitFor);
  return { request, waitFor, waitAvailable, simulation, close: () => agent.destroy() };
}

/** The cluster of a server that was started with the flag `--simulate`. */
function simulationOf(request, waitFor) {
  const annotate = (path, key, value) =>
    request("PATCH", path, { metadata: { annotations: { [key]: value } } }, MERGE);
  const pod = (name, namespace) => `/api/v1/namespaces/${namespace}/pods/${name}`;
  const clock = (name, value) =>
    request("POST", `/keelson/simulation/clock?${name}=${encodeURIComponent(value)}`);
  return {
    time: async () => new Date((await request("GET", "/keelson/simulation")).time),
    step: async (by) => void (await clock("step", typeof by === "number" ? `${by}ms` : by)),
    setRate: async (rate) => void (await clock("rate", rate)),
    failNode: async (name) => void (await annotate(`/api/v1/nodes/${name}`, FAILED, "true")),
    recoverNode: async (name) => void (await annotate(`/api/v1/nodes/${name}`, FAILED, null)),
    cutOffPod: async (name, namespace = "default") =>
      void (await annotate(pod(name, namespace), UNREADY, "true")),
    reconnectPod: async (name, namespace = "default") =>
      void (await annotate(pod(name, namespace), UNREADY, null)),
    drainNode: async (name, timeoutMs) => {
      await request("PATCH", `/api/v1/nodes/${name}`, { spec: { unschedulable: true } }, MERGE);
      const path = `/api/v1/pods?fieldSelector=spec.nodeName%3D${encodeURIComponent(name)}`;
      const left = (list) => list.items.filter((one) => !isOfDaemonSet(one));
      const evicted = new Set();
      const evictAll = (list) => {
        for (const { metadata } of left(list)) {
          if (metadata.deletionTimestamp || evicted.has(metadata.uid)) continue;
          evicted.add(metadata.uid);
          const eviction = { apiVersion: "policy/v1", kind: "Eviction", metadata: {
            name: metadata.name, namespace: metadata.namespace } };
          // Refused by a budget (429), or gone (404): the next look decides.
          request("POST", `${pod(metadata.name, metadata.namespace)}/eviction`, eviction)
            .catch(() => evicted.delete(metadata.uid));
        }
        return left(list).length === 0;
      };
      await waitFor(path, evictAll, timeoutMs);
    },
  };
}

function isOfDaemonSet({ metadata }) {
  return (metadata.ownerReferences ?? []).some((one) => one.controller && one.kind === "DaemonSet");
}

/** Whether the controller of a workload has made all that its spec asks for, ready. */
export function isAvailable({ kind, metadata, spec = {}, status = {} }) {
  const holds = (type) =>
    (status.conditions ?? []).some((one) => one.type === type && one.status === "True");
  if (kind === "Pod") return holds("Ready");
  if (kind === "Job") return holds("Complete");
  if (status.observedGeneration !== metadata.generation) return false;
  if (kind === "DaemonSet") {
    const wanted = status.desiredNumberScheduled ?? 0;
    const counts = [status.updatedNumberScheduled, status.numberAvailable];
    return counts.every((count) => (count ?? 0) === wanted);
  }
  const counts = [status.replicas, status.availableReplicas];
  if (kind === "Deployment" || kind === "StatefulSet") counts.push(status.updatedReplicas);
  return counts.every((count) => (count ?? 0) === (spec.replicas ?? 1));
}
