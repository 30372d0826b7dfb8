import { overloaded } from "../../../lib/errors.ts";
import { FairSemaphore } from "../../../lib/fair-share.ts";
import type { McpConnect, McpConnection, McpServer } from "./mcp-connection.ts";

/** Milliseconds without a call after which a connection is closed. The next call opens another one. */
const IDLE_MS = 120_000;

/**
 * Maximum number of exchanges with servers in this process, in total and for one organization. Each can take
 * a minute.
 */
const MAX_EXCHANGES = 256;
const MAX_EXCHANGES_OF_ONE = MAX_EXCHANGES / 2;
const MAX_WAITING_EXCHANGES = 1_024;
/** Maximum wait of an exchange for others, in milliseconds. */
const MAX_WAIT_MS = 15_000;

/** Returns the semaphore that bounds exchanges with servers. Organizations share it. */
export function createExchangeSemaphore(): FairSemaphore {
  return new FairSemaphore({
    most: MAX_EXCHANGES,
    mostOfOne: MAX_EXCHANGES_OF_ONE,
    maxWaiting: MAX_WAITING_EXCHANGES,
    maxWaitMs: MAX_WAIT_MS,
    refusal: () => overloaded("Too many calls to MCP servers are running. Try again shortly."),
  });
}

/**
 * The connection to a server during one response. It is opened on first use. Its methods reject like the
 * connection.
 */
export class McpSession {
  readonly #connect: Promise<McpConnect>;
  readonly #server: McpServer;
  readonly #exchanges: FairSemaphore;
  #connection: Promise<McpConnection> | undefined;
  #idle: Timer | undefined;

  constructor(connect: Promise<McpConnect>, server: McpServer, exchanges: FairSemaphore) {
    this.#connect = connect;
    this.#exchanges = exchanges;
    this.#server = server;
  }

  /** Runs an exchange for an organization. Rejects with 503 if too many are running, and like `run`. */
  use<Result>(
    owner: string,
    signal: AbortSignal,
    run: (connection: McpConnection) => Promise<Result>,
  ): Promise<Result> {
    return this.#exchanges.run(owner, () => this.#use(signal, run), signal);
  }

  async #use<Result>(
    signal: AbortSignal,
    run: (connection: McpConnection) => Promise<Result>,
  ): Promise<Result> {
    clearTimeout(this.#idle);
    this.#connection ??= this.#open(signal);
    const opened = this.#connection;
    try {
      return await run(await opened);
    } catch (error) {
      // The server may have ended the session, so the next exchange opens a new connection.
      if (this.#connection === opened) this.close();
      throw error;
    } finally {
      clearTimeout(this.#idle);
      this.#idle = setTimeout(() => this.close(), IDLE_MS).unref();
    }
  }

  close(): void {
    clearTimeout(this.#idle);
    const opened = this.#connection;
    this.#connection = undefined;
    opened?.then((connection) => connection.close()).catch(() => undefined);
  }

  async #open(signal: AbortSignal): Promise<McpConnection> {
    const connect = await this.#connect;
    return connect(this.#server, signal);
  }
}
