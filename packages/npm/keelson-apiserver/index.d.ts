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
  /** Returns the end of what the server has logged. */
  log(): string;
  /** Ends the server at once. All that it stored is gone. May be called again. */
  stop(): Promise<void>;
}

/** Starts a server and resolves when it serves. */
export function startKeelson(options?: KeelsonOptions): Promise<Keelson>;

/** Returns the path of the program. */
export function findProgram(): string;
