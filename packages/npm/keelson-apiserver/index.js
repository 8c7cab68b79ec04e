import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ApiError, client, isAvailable } from "./client.js";
import { findProgram } from "./program.js";

export { ApiError, findProgram, isAvailable };

const START_MILLISECONDS_MAX = 60_000;
/** How much of a server's log is kept, in characters. */
const LOG_CHARACTERS_MAX = 16 << 10;

/** Starts a server and resolves when it serves. */
export async function startKeelson(options = {}) {
  const { flags = [], program = findProgram(), timeoutMs = START_MILLISECONDS_MAX } = options;
  const kubeconfigPath = join(tmpdir(), `keelson-${randomUUID()}.kubeconfig`);
  const command = ["serve", "--ephemeral", "--kubeconfig", kubeconfigPath, ...flags];
  // The server stops when its standard input ends: when this process has ended, too.
  const child = spawn(program, command, { stdio: ["pipe", "pipe", "pipe"] });
  // Writing to a server that has ended is no error of the caller.
  child.stdin.on("error", () => {});
  let log = "";
  child.stderr.setEncoding("utf8").on("data", (text) => {
    log = (log + text).slice(-LOG_CHARACTERS_MAX);
  });
  const ended = new Promise((resolve) => {
    child.once("close", resolve);
    child.once("error", resolve);
  });
  // Whether this process stays alive for the server.
  const hold = (how) => [child, ...child.stdio].forEach((handle) => handle?.[how]?.());
  let helpers;
  const stop = async () => {
    helpers?.close();
    hold("ref");
    child.kill("SIGKILL");
    await ended;
    rmSync(kubeconfigPath, { force: true });
  };
  let line;
  try {
    line = await firstLine(child, ended, timeoutMs);
  } catch (error) {
    await stop();
    throw new Error(`keelson-apiserver: ${error.message}; its log:\n${log}`, { cause: error });
  }
  hold("unref");
  const { url, token, certificateAuthority, kubeconfig } = JSON.parse(line);
  helpers = client({ url, token, certificateAuthority });
  const { request, waitFor, waitAvailable, simulation } = helpers;
  return {
    url,
    token,
    certificateAuthority,
    kubeconfig,
    kubeconfigPath,
    pid: child.pid,
    request,
    waitFor,
    waitAvailable,
    simulation,
    log: () => log,
    stop,
    [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]: stop,
  };
}

/** Resolves to the first line of a child's output; rejects when it ends or the time is over. */
function firstLine(child, ended, timeoutMs) {
  return new Promise((resolve, reject) => {
    const late = () => reject(new Error(`the server was not ready after ${timeoutMs} ms`));
    const timer = setTimeout(late, timeoutMs);
    let text = "";
    child.stdout.setEncoding("utf8").on("data", (part) => {
      text += part;
      const end = text.indexOf("\n");
      if (end >= 0) {
        clearTimeout(timer);
        resolve(text.slice(0, end));
      }
    });
    child.once("error", reject);
    ended.then(() => {
      clearTimeout(timer);
      reject(new Error("the server did not start"));
    });
  });
}
