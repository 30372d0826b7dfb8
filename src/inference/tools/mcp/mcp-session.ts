import { overloaded } from "../../../lib/errors.ts";
import { FairSemaphore } from "../../../lib/fair-share.ts";
import type { McpConnect, McpConnection, McpServer } from "./mcp-connection.ts";

/** Without a call for so long, a connection is closed; the next call opens another. */
const IDLE_MS = 120_000;

/** Exchanges with servers that this process has under way, for all organizations and for one; each may take a minute. */
const MAX_EXCHANGES = 256;
const MAX_EXCHANGES_OF_ONE = MAX_EXCHANGES / 2;
const MAX_WAITING_EXCHANGES = 1_024;
/** An exchange waits for others at most this long. */
const MAX_WAIT_MS = 15_000;

/** Bounds the exchanges with servers; organizations share them. */
export function createExchangeSemaphore(): FairSemaphore {
  return new FairSemaphore({
    most: MAX_EXCHANGES,
    mostOfOne: MAX_EXCHANGES_OF_ONE,
    maxWaiting: MAX_WAITING_EXCHANGES,
    maxWaitMs: MAX_WAIT_MS,
    refusal: () => overloaded("Too many calls of MCP servers are running. Try again shortly."),
  });
}

/** The connection to a server while a response is made: opened when it is needed. Methods reject as it does. */
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

  /** Runs an exchange for an organization. Rejects with 503 if too many run, and as `run` does. */
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
      // What has failed once may have lost its session.
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
