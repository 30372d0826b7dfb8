import type { Clock } from "../../lib/clock.ts";
import { type ConnectionOwner, HttpConnection } from "./connection.ts";
import type { Connect, DialTarget, TrustedAuthorities } from "./dial.ts";
import type { Exchange } from "./exchange.ts";
import { HttpError } from "./http-error.ts";

/** Servers close idle connections after a few seconds or minutes. The gateway closes them earlier than most servers. */
export const IDLE_TIMEOUT_MS = 30_000;
export const MAX_IDLE_CONNECTIONS_OF_ORIGIN = 1_024;
/** Maximum idle connections of all origins together. Each needs a file descriptor, and with TLS some kilobytes. */
export const MAX_IDLE_CONNECTIONS = 4_096;
/** Maximum connections of one origin, idle and busy together: the number of ports. */
const MAX_OPEN_CONNECTIONS = 65_536;

export interface PoolDependencies {
  readonly clock: Clock;
  readonly connect: Connect;
  readonly authorities: TrustedAuthorities;
  /** Like the clock's `after`, but does not keep the process alive. */
  readonly afterInBackground: Clock["after"];
  /** Number of idle connections in all pools of a client. */
  readonly idle: { connections: number };
}

/**
 * The connections to one origin over one route. The most recently used connection is used next, so that a few stay
 * warm.
 */
export class ConnectionPool implements ConnectionOwner {
  readonly nowMs: () => number;
  readonly after: Clock["after"];
  readonly #dependencies: PoolDependencies;
  readonly #target: DialTarget;
  /** Idle connections, the longest idle first. */
  readonly #idle: HttpConnection[] = [];
  /** Connections whose requests are sent together at the end of this turn of the event loop. */
  #toSend: HttpConnection[] = [];
  #openConnections = 0;
  #isSweepDue = false;

  constructor(dependencies: PoolDependencies, target: DialTarget) {
    this.#dependencies = dependencies;
    this.#target = target;
    this.nowMs = () => dependencies.clock.nowMs();
    this.after = (delayMs, run) => dependencies.clock.after(delayMs, run);
  }

  dispatch(exchange: Exchange): void {
    const connection = exchange.onNewConnection ? undefined : this.#idle.pop();
    if (connection === undefined) {
      this.#open(exchange);
      return;
    }
    this.#dependencies.idle.connections--;
    connection.reuse(exchange);
  }

  /**
   * Sends the connection's request at the end of this turn of the event loop. A write wakes a sleeping server, which
   * costs more than the write itself. In a burst only the first write has to wake it.
   */
  sendSoon(connection: HttpConnection): void {
    this.#toSend.push(connection);
    if (this.#toSend.length === 1) setImmediate(this.#sendAll);
  }

  readonly #sendAll = (): void => {
    const connections = this.#toSend;
    this.#toSend = [];
    for (const connection of connections) connection.send();
  };

  onIdle(connection: HttpConnection): void {
    const { idle } = this.#dependencies;
    if (
      this.#idle.length >= MAX_IDLE_CONNECTIONS_OF_ORIGIN ||
      idle.connections >= MAX_IDLE_CONNECTIONS
    ) {
      connection.close();
      return;
    }
    idle.connections++;
    this.#idle.push(connection);
    if (!this.#isSweepDue) this.#sweepIn(IDLE_TIMEOUT_MS);
  }

  onGone(connection: HttpConnection): void {
    this.#openConnections--;
    const at = this.#idle.lastIndexOf(connection);
    if (at === -1) return;
    this.#idle.splice(at, 1);
    this.#dependencies.idle.connections--;
  }

  onStale(exchange: Exchange): void {
    // Other idle connections can be just as old. Only a new connection is sure to work.
    this.#open(exchange);
  }

  #open(exchange: Exchange): void {
    if (this.#openConnections >= MAX_OPEN_CONNECTIONS) {
      exchange.fail(
        new HttpError("TOO_MANY_CONNECTIONS", "the limit of open connections is reached"),
      );
      return;
    }
    this.#openConnections++;
    const connection = new HttpConnection(this);
    const { authorities, clock, connect } = this.#dependencies;
    connection.open(connect, this.#target, authorities, exchange);
    connection.timeOutAfter(clock, exchange.connectTimeoutMs);
  }

  #sweepIn(delayMs: number): void {
    this.#isSweepDue = true;
    this.#dependencies.afterInBackground(delayMs, () => {
      this.#isSweepDue = false;
      this.#sweep();
    });
  }

  #sweep(): void {
    const nowMs = this.nowMs();
    const expired = this.#idle.findIndex(
      (connection) => nowMs - connection.idleSinceMs < IDLE_TIMEOUT_MS,
    );
    const gone = this.#idle.splice(0, expired === -1 ? this.#idle.length : expired);
    this.#dependencies.idle.connections -= gone.length;
    for (const connection of gone) connection.close();
    const oldest = this.#idle[0];
    if (oldest !== undefined) this.#sweepIn(oldest.idleSinceMs + IDLE_TIMEOUT_MS - nowMs);
  }
}
