import type { McpConnect, McpConnection, McpServer } from "./mcp-connection.ts";

/** Without a call for so long, a connection is closed; the next call opens another. */
const IDLE_MS = 120_000;

/** The connection to a server while a response is made: opened when it is needed. Methods reject as it does. */
export class McpSession {
  readonly #connect: Promise<McpConnect>;
  readonly #server: McpServer;
  #connection: Promise<McpConnection> | undefined;
  #idle: Timer | undefined;

  constructor(connect: Promise<McpConnect>, server: McpServer) {
    this.#connect = connect;
    this.#server = server;
  }

  async use<Result>(
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
