/** How a server is started. */
export interface KeelsonOptions {
  /** Flags of `keelson serve`. */
  flags?: readonly string[];
  /** The program to start; by default that of this platform's package. */
  program?: string;
  /** How long the start may take, in milliseconds (default 60000). */
  timeoutMs?: number;
}

/** A server that runs. It keeps everything in memory, and does not outlive this process. */
export interface Keelson extends AsyncDisposable {
  /** The URL: `https://127.0.0.1:PORT`. */
  readonly url: string;
  /** A bearer token of an administrator. */
  readonly token: string;
  /** The certificate of the authority of the server's certificate, in PEM. */
  readonly certificateAuthority: string;
  /** A kubeconfig, as text. */
  readonly kubeconfig: string;
  /** The path of the same kubeconfig; the file is gone when the server is. */
  readonly kubeconfigPath: string;
  /** The process id. */
  readonly pid: number;
  /**
   * Sends a request as an administrator and resolves to the object that answers it, or its text if it is
   * not JSON. Rejects with an `ApiError` for an HTTP status of 400 or above.
   */
  request(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<any>;
  /** Reads an object or a list until a condition holds, and resolves to it (30 s at most by default). */
  waitFor(path: string, condition: (object: any) => boolean, timeoutMs?: number): Promise<any>;
  /** Waits until a workload is available, a Job complete or a Pod ready. */
  waitAvailable(path: string, timeoutMs?: number): Promise<any>;
  /** The cluster of a server that was started with the flag `--simulate`. */
  readonly simulation: Simulation;
  /** Returns the end of what the server has logged. */
  log(): string;
  /** Ends the server at once. All that it stored is gone. May be called again. */
  stop(): Promise<void>;
}

/** A simulated cluster: its time, and what goes wrong in it. */
export interface Simulation {
  /** Resolves to the time in the cluster. */
  time(): Promise<Date>;
  /** Moves the time forward, by milliseconds or a text such as `"36h"`. */
  step(by: number | string): Promise<void>;
  /** Sets how many seconds pass in the cluster in one second. */
  setRate(rate: number): Promise<void>;
  /** Takes the power of a node away. */
  failNode(name: string): Promise<void>;
  /** Gives a node its power back. */
  recoverNode(name: string): Promise<void>;
  /** Cordons a node and evicts its pods, but those of daemon sets; resolves when they are gone. */
  drainNode(name: string, timeoutMs?: number): Promise<void>;
  /** Makes a running pod unready, as if nobody reached it any more. */
  cutOffPod(name: string, namespace?: string): Promise<void>;
  /** Ends what `cutOffPod` did. */
  reconnectPod(name: string, namespace?: string): Promise<void>;
}

/** The server refused a request. */
export class ApiError extends Error {
  /** The HTTP status. */
  readonly code: number;
  /** The object of the kind Status, or the text of the answer. */
  readonly status: any;
}

/** Whether the controller of a workload has made all that its spec asks for, ready. */
export function isAvailable(workload: any): boolean;

/** Starts a server and resolves when it serves. */
export function startKeelson(options?: KeelsonOptions): Promise<Keelson>;

/** Returns the path of the program. */
export function findProgram(): string;
