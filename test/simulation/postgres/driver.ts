import type { Database, DatabaseTransaction } from "../../../db/client.ts";
import type { Link } from "../link.ts";
import { Connection } from "./connection.ts";
import { ModelledError } from "./errors.ts";
import type { ModelContext } from "./model-context.ts";
import type { ModelledServer } from "./server.ts";
import type { Outcome, Request, Statement } from "./session.ts";
import { Listed, statementText } from "./statement-text.ts";
import { modelledStatement } from "./statements.ts";

export interface DriverOptions {
  readonly server: ModelledServer;
  readonly context: ModelContext;
  readonly link: Link;
  readonly poolSize: number;
  readonly applicationName: string;
  /** As db/client.ts takes them. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Receives each statement that is sent, so that a schedule can break the connection under it. */
  onSend?(name: string, connection: Connection): void;
}

interface Waiting {
  readonly exclusive: boolean;
  take(connection: Connection): void;
}

/**
 * Stands where postgres.js stands: a pool of connections behind a tag. It knows as much of the driver as
 * the gateway uses, and what it does not know it refuses.
 */
export class ModelledDriver {
  readonly connections: Connection[] = [];
  readonly #options: DriverOptions;
  readonly #reserved = new Set<Connection>();
  #waiting: Waiting[] = [];

  constructor(options: DriverOptions) {
    this.#options = options;
    options.link.process.onGone(() => {
      for (const connection of this.connections) connection.break(0, options.link.travelMs());
    });
  }

  get isIdle(): boolean {
    const isBusy = this.connections.some(({ load }) => load > 0);
    return !isBusy && this.#waiting.length === 0 && this.#reserved.size === 0;
  }

  get sql(): Database {
    const tag = this.#tag((name, request) => this.#once(name, request));
    return Object.assign(tag, {
      begin: <Result>(work: (sql: DatabaseTransaction) => Promise<Result>) => this.#begin(work),
      listen: (channel: string, notice: (payload: string) => void, listening?: () => void) =>
        this.#listen(channel, notice, listening),
      end: () => Promise.resolve(),
    }) as unknown as Database;
  }

  /** The tag of the driver; a first argument that is no template is a list of columns or values. */
  #tag(send: (name: string, request: Omit<Request, "reply">) => Promise<Outcome>) {
    const tag = (strings: TemplateStringsArray | object, ...values: unknown[]): unknown => {
      if (!Object.hasOwn(strings, "raw")) return new Listed(strings);
      const text = statementText(strings as TemplateStringsArray);
      const statement = this.#statement(text, values);
      return new PendingStatement(() => send(statement.name, { kind: "statement", statement }));
    };
    return Object.assign(tag, { array: (of: unknown) => new Listed(of) });
  }

  #statement(text: string, values: readonly unknown[]): Statement {
    const { context, server } = this.#options;
    const statement = modelledStatement(context, { text, values });
    // The caller may handle the error itself: the model has to be taught.
    if (statement === undefined)
      return server.onFault(new Error(`the model does not know: ${text}`));
    return statement;
  }

  #once(name: string, request: Omit<Request, "reply">): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      this.#acquire({
        exclusive: false,
        take: (connection) => {
          this.#send(connection, name, request).then(resolve, reject);
        },
      });
    });
  }

  async #begin<Result>(work: (sql: DatabaseTransaction) => Promise<Result>): Promise<Result> {
    const connection = await new Promise<Connection>((take) => {
      this.#acquire({ exclusive: true, take });
    });
    this.#reserved.add(connection);
    try {
      await this.#send(connection, "begin", { kind: "begin" });
      const tag = this.#tag((name, request) => this.#send(connection, name, request));
      try {
        const result = await work(tag as unknown as DatabaseTransaction);
        await this.#send(connection, "commit", { kind: "commit" });
        return result;
      } catch (error) {
        if (!connection.isClosed) {
          await this.#send(connection, "rollback", { kind: "rollback" }).catch(() => {});
        }
        throw error;
      }
    } finally {
      this.#reserved.delete(connection);
      this.#serveWaiting();
    }
  }

  #send(connection: Connection, name: string, request: Omit<Request, "reply">): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      if (connection.isClosed) {
        return reject(new ModelledError("CONNECTION_CLOSED", "the connection broke"));
      }
      connection.send(request, (outcome) => {
        if (outcome instanceof ModelledError) reject(outcome);
        else resolve(outcome);
        this.#serveWaiting();
      });
      this.#options.onSend?.(name, connection);
    });
  }

  #acquire(waiting: Waiting): void {
    this.#waiting.push(waiting);
    this.#serveWaiting();
  }

  #serveWaiting(): void {
    while (this.#waiting.length > 0) {
      const connection = this.#free(this.#waiting[0]!.exclusive);
      if (connection === undefined) return;
      const { take, exclusive } = this.#waiting.shift()!;
      if (exclusive) this.#reserved.add(connection);
      take(connection);
    }
  }

  /** One that is idle, or a new one; else, unless it is for a transaction, the least busy one. */
  #free(isExclusive: boolean): Connection | undefined {
    const open = this.connections.filter((one) => !this.#reserved.has(one));
    const idle = open.find(({ load }) => load === 0);
    if (idle !== undefined) return idle;
    if (this.connections.length < this.#options.poolSize) return this.#open();
    if (isExclusive) return undefined;
    return open.sort((one, other) => one.load - other.load)[0];
  }

  #open(): Connection {
    const { server, link, applicationName, settings = {} } = this.#options;
    const milliseconds = (name: string): number | undefined =>
      settings[name] === undefined ? undefined : Number(settings[name]);
    const connection = new Connection(server, link, {
      name: applicationName,
      settings: {
        lockTimeoutMs: milliseconds("lock_timeout"),
        idleInTransactionMs: milliseconds("idle_in_transaction_session_timeout"),
      },
      onClosed: () => {
        this.connections.splice(this.connections.indexOf(connection), 1);
        this.#serveWaiting();
      },
    });
    this.connections.push(connection);
    return connection;
  }

  async #listen(
    channel: string,
    notice: (payload: string) => void,
    listening: (() => void) | undefined,
  ): Promise<{ unlisten(): Promise<void> }> {
    const { server, link } = this.#options;
    // Notifications may be lost and come late; nothing rests on them but speed.
    const stop = server.listen((on, payload) => {
      if (on !== channel || link.isParted || link.world.random.chance(0.2)) return;
      link.process.after(link.travelMs(), "notification", () => notice(payload));
    });
    link.process.onGone(stop);
    // After a crash the driver listens again, and reports that it may have missed something.
    server.onRecovered(() =>
      link.process.after(link.world.random.between(50, 600), "listens anew", () => listening?.()),
    );
    listening?.();
    return { unlisten: async () => stop() };
  }
}

/** Sent when a caller awaits it, as the driver's own queries are. */
class PendingStatement {
  readonly #send: () => Promise<Outcome>;
  #sent: Promise<Outcome> | undefined;

  constructor(send: () => Promise<Outcome>) {
    this.#send = send;
  }

  // biome-ignore lint/suspicious/noThenProperty: a statement of the driver is awaited as it is
  then<Result, Failure>(
    resolve: (rows: unknown[] & { count: number }) => Result,
    reject: (error: unknown) => Failure,
  ): Promise<Result | Failure> {
    this.#sent ??= this.#send();
    return this.#sent
      .then(({ rows, count }) => Object.assign([...rows], { count }))
      .then(resolve, reject);
  }
}
