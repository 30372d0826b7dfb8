import type { Clock } from "../../lib/clock.ts";
import { type ConnectionOwner, HttpConnection } from "./connection.ts";
import type { Connect, DialTarget, TrustedAuthorities } from "./dial.ts";
import type { Exchange } from "./exchange.ts";
import { HttpError } from "./http-error.ts";

/** Servers close idle connections after a few seconds or minutes; ours go before most do. */
export const IDLE_TIMEOUT_MS = 30_000;
export const MAX_IDLE_CONNECTIONS_OF_ORIGIN = 1_024;
/** Of all origins together: each takes a descriptor, and with TLS some kilobytes. */
export const MAX_IDLE_CONNECTIONS = 4_096;
/** Of one origin, idle and busy together: as many as there can be ports. */
const MAX_OPEN_CONNECTIONS = 65_536;

export interface PoolDependencies {
  readonly clock: Clock;
  readonly connect: Connect;
  readonly authorities: TrustedAuthorities;
  /** Like the clock's, but without keeping the process alive. */
  readonly afterInBackground: Clock["after"];
  /** The idle connections of all pools of a client, counted. */
  readonly idle: { connections: number };
}

/** The connections of one origin, by one way to it. The one that was used last is used next, so that a few stay warm. */
export class ConnectionPool implements ConnectionOwner {
  readonly nowMs: () => number;
  readonly after: Clock["after"];
  readonly #dependencies: PoolDependencies;
  readonly #target: DialTarget;
  /** The longest idle first. */
  readonly #idle: HttpConnection[] = [];
  /** Connections whose requests go out together, at the end of this turn of the event loop. */
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
   * A write wakes the server where that sleeps, which costs more than the write itself: in one burst all
   * but the first find it awake.
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
    // Its neighbours may be as old: only a new connection is sure to be read.
    this.#open(exchange);
  }

  #open(exchange: Exchange): void {
    if (this.#openConnections >= MAX_OPEN_CONNECTIONS) {
      exchange.fail(new HttpError("TOO_MANY_CONNECTIONS", "no further connection is opened"));
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
    const expired = this.#idle.findIndex((one) => nowMs - one.idleSinceMs < IDLE_TIMEOUT_MS);
    const gone = this.#idle.splice(0, expired === -1 ? this.#idle.length : expired);
    this.#dependencies.idle.connections -= gone.length;
    for (const connection of gone) connection.close();
    const oldest = this.#idle[0];
    if (oldest !== undefined) this.#sweepIn(oldest.idleSinceMs + IDLE_TIMEOUT_MS - nowMs);
  }
}
