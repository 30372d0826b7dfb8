import type { Clock } from "../../lib/clock.ts";
import { ProviderFailure } from "../interface.ts";
import type { Exchange, ExchangeCarrier } from "./exchange.ts";
import { connectionLost, HttpError } from "./http-error.ts";

/** Opens a connection and reports to the handlers; it may reject besides, which nobody looks at. */
export type Connect = (options: Bun.TCPSocketConnectOptions<HttpConnection>) => Promise<unknown>;

/** What a connection tells the pool it belongs to. */
export interface ConnectionOwner {
  readonly nowMs: () => number;
  /** The connection's `send` is to be called soon. */
  sendSoon(connection: HttpConnection): void;
  /** The connection is free for another exchange. */
  onIdle(connection: HttpConnection): void;
  /** The connection is gone; told once. */
  onGone(connection: HttpConnection): void;
  /** A connection ended before it could take the exchange, which is to be sent on a new one. */
  onStale(exchange: Exchange): void;
}

/** Above this many characters a request is turned into bytes first, as it may not go out in one go. */
const MAX_TEXT_WRITE = 16_384;

/** One connection: connecting, then busy and idle by turns, then gone. It carries one exchange at a time. */
export class HttpConnection implements ExchangeCarrier {
  readonly #owner: ConnectionOwner;
  #socket: Bun.Socket<HttpConnection> | undefined;
  #exchange: Exchange | undefined;
  #unsent: Buffer | undefined;
  #stopTimeout: (() => void) | undefined;
  #isGone = false;
  #isCounted = true;
  #isPaused = false;
  #isReused = false;
  #hasSent = false;
  /** When the connection became idle. */
  idleSinceMs = 0;

  constructor(owner: ConnectionOwner) {
    this.#owner = owner;
  }

  /** Opens the connection and sends. */
  open(connect: Connect, hostname: string, port: number, exchange: Exchange): void {
    this.#exchange = exchange;
    exchange.carriedBy(this);
    // The failure is told to the handlers as well.
    connect({ hostname, port, data: this, socket: HANDLERS }).catch((error: unknown) =>
      this.ended(error),
    );
  }

  /** Takes another exchange on a connection that was idle. */
  reuse(exchange: Exchange): void {
    this.#isReused = true;
    this.#exchange = exchange;
    exchange.carriedBy(this);
    this.#hasSent = false;
    this.#socket!.ref();
    this.#owner.sendSoon(this);
  }

  /** Sends the request, unless it was given up before. */
  send(): void {
    if (!this.#isGone && this.#exchange !== undefined) this.#send();
  }

  opened(socket: Bun.Socket<HttpConnection>): void {
    this.#socket = socket;
    this.#stopTimeout?.();
    if (this.#isGone) {
      this.#countOut();
      socket.terminate();
    } else this.#send();
  }

  /** Fails the exchange where the connection does not stand in time. */
  timeOutAfter(clock: Clock, timeoutMs: number): void {
    if (this.#socket !== undefined || this.#isGone) return;
    this.#stopTimeout = clock.after(timeoutMs, () => {
      this.#exchange?.fail(
        new ProviderFailure("timeout", "the connection did not stand within the connect timeout"),
      );
    });
  }

  received(data: Buffer): void {
    if (this.#isGone) return;
    const exchange = this.#exchange;
    if (exchange !== undefined && (this.#hasSent || !this.#isReused)) {
      exchange.receive(data);
      return;
    }
    // A connection on which a server speaks unasked cannot be trusted with a request.
    this.destroy();
    if (exchange !== undefined) this.#owner.onStale(exchange);
  }

  drained(): void {
    if (this.#unsent !== undefined && !this.#isGone) this.#write(this.#unsent);
  }

  ended(error: unknown): void {
    if (this.#isGone) {
      this.#countOut();
      return;
    }
    const exchange = this.#exchange;
    this.#exchange = undefined;
    this.#leave();
    this.#countOut();
    this.#socket?.end();
    if (exchange === undefined) return;
    if (this.#isStale(exchange)) {
      this.#owner.onStale(exchange);
    } else if (this.#socket === undefined) {
      exchange.fail(connectionLost("the connection could not be opened", error));
    } else exchange.connectionEnded(error, this.#isReused);
  }

  pause(): void {
    this.#isPaused = true;
    this.#socket?.pause();
  }

  resume(): void {
    this.#isPaused = false;
    this.#socket?.resume();
  }

  finish(isReusable: boolean): void {
    this.#exchange = undefined;
    // A server that answers before it has read everything leaves a rest that nobody waits for.
    if (!isReusable || this.#unsent !== undefined || this.#isGone) {
      this.close();
      return;
    }
    if (this.#isPaused) this.resume();
    this.idleSinceMs = this.#owner.nowMs();
    this.#socket!.unref();
    this.#owner.onIdle(this);
  }

  /** Ends an idle connection in the ordinary way. */
  close(): void {
    if (this.#isGone) return;
    this.#leave();
    this.#socket?.end();
  }

  destroy(): void {
    if (this.#isGone) return;
    this.#exchange = undefined;
    this.#leave();
    this.#socket?.terminate();
  }

  #leave(): void {
    this.#isGone = true;
    this.#stopTimeout?.();
    this.#unsent = undefined;
    // An attempt to connect cannot be called off, and takes its place until it has ended.
    if (this.#socket !== undefined) this.#countOut();
  }

  #countOut(): void {
    if (!this.#isCounted) return;
    this.#isCounted = false;
    this.#owner.onGone(this);
  }

  /**
   * Whether the request can be sent again without the risk that it is served twice, which a completion
   * would be paid for: the connection ended while it was idle, and takes not one byte any more. Once
   * bytes went out, a server that read them and failed looks just like one that never did, so that this
   * is left to those who count the tries, as other clients leave it for a POST (RFC 9110, 9.2.2).
   */
  #isStale(exchange: Exchange): boolean {
    return this.#isReused && !this.#hasSent && !exchange.hasBegun && !exchange.hasEnded;
  }

  #send(): void {
    const text = this.#exchange!.requestText;
    this.#hasSent = false;
    if (text.length > MAX_TEXT_WRITE) {
      this.#write(Buffer.from(text));
      return;
    }
    const written = this.#socket!.write(text);
    if (written > 0) this.#hasSent = true;
    // Counted in bytes, which are no fewer than the characters.
    if (written < text.length) this.#write(Buffer.from(text).subarray(Math.max(0, written)));
    else this.#unsent = undefined;
  }

  #write(bytes: Buffer): void {
    const written = this.#socket!.write(bytes);
    if (written < 0) {
      this.ended(new HttpError("CONNECTION_CLOSED", "the connection takes no bytes any more"));
      return;
    }
    if (written > 0) this.#hasSent = true;
    this.#unsent = written < bytes.length ? bytes.subarray(written) : undefined;
  }
}

const HANDLERS: Bun.SocketHandler<HttpConnection> = {
  open: (socket) => socket.data.opened(socket),
  data: (socket, data) => socket.data.received(data),
  drain: (socket) => socket.data.drained(),
  end: (socket) => socket.data.ended(undefined),
  close: (socket, error) => socket.data.ended(error),
  error: (socket, error) => socket.data.ended(error),
  connectError: (socket, error) => socket.data.ended(error),
};
