import type { Clock } from "../../lib/clock.ts";
import { ProviderFailure } from "../interface.ts";
import {
  type ClientSocket,
  type Connect,
  Dial,
  type DialListener,
  type DialTarget,
  type SocketEvents,
  type TrustedAuthorities,
} from "./dial.ts";
import type { Exchange, ExchangeCarrier } from "./exchange.ts";
import { HttpError } from "./http-error.ts";

/** The pool of a connection, as the connection uses it. */
export interface ConnectionOwner {
  readonly nowMs: () => number;
  readonly after: Clock["after"];
  /** Calls the connection's `send` soon. */
  sendSoon(connection: HttpConnection): void;
  /** The connection is free for another exchange. */
  onIdle(connection: HttpConnection): void;
  /** The connection is closed. Called once. */
  onGone(connection: HttpConnection): void;
  /** A connection ended before it accepted the exchange. The pool sends the exchange on a new one. */
  onStale(exchange: Exchange): void;
}

/**
 * Longer requests, in characters, are encoded to bytes first, because the socket might not accept them in one write.
 */
const MAX_TEXT_WRITE = 16_384;

/**
 * Time to wait for a response after the socket has stopped accepting a request. A server that rejects a body can close
 * the connection after sending a response that has not been read yet.
 */
export const LATE_RESPONSE_WAIT_MS = 1_000;

/**
 * One HTTP connection. It dials, is then busy and idle in turn, and is closed at the end. It carries one exchange at a
 * time.
 */
export class HttpConnection implements ExchangeCarrier, DialListener, SocketEvents {
  readonly #owner: ConnectionOwner;
  #dial: Dial | undefined;
  #socket: ClientSocket | undefined;
  #exchange: Exchange | undefined;
  #unsent: Buffer | undefined;
  #upload: UploadPump | undefined;
  #stopTimeout: (() => void) | undefined;
  #isGone = false;
  #isCounted = true;
  #isPaused = false;
  #isReused = false;
  #hasSent = false;
  #takesNoMore = false;
  /** Time when the connection became idle, in milliseconds. */
  idleSinceMs = 0;

  constructor(owner: ConnectionOwner) {
    this.#owner = owner;
  }

  /** Opens the connection and sends the request. */
  open(
    connect: Connect,
    target: DialTarget,
    authorities: TrustedAuthorities,
    exchange: Exchange,
  ): void {
    this.#exchange = exchange;
    exchange.carriedBy(this);
    this.#dial = new Dial(target, authorities, this);
    this.#dial.start(connect);
  }

  /** Assigns another exchange to an idle connection. */
  reuse(exchange: Exchange): void {
    this.#isReused = true;
    this.#exchange = exchange;
    exchange.carriedBy(this);
    this.#hasSent = false;
    this.#socket!.ref();
    this.#owner.sendSoon(this);
  }

  /** Sends the request, unless the exchange was aborted before. */
  send(): void {
    if (!this.#isGone && this.#exchange !== undefined) this.#send();
  }

  ready(socket: ClientSocket): void {
    this.#dial = undefined;
    this.#stopTimeout?.();
    this.#socket = socket;
    socket.data = this;
    this.#send();
  }

  failed(error: HttpError): void {
    this.#dial = undefined;
    this.#countOut();
    if (this.#isGone) return;
    const exchange = this.#exchange;
    this.#exchange = undefined;
    this.#leave();
    exchange?.fail(error);
  }

  /** Fails the exchange if the connection is not ready in time. The limit includes TCP, the proxy's tunnel and TLS. */
  timeOutAfter(clock: Clock, timeoutMs: number): void {
    if (this.#dial === undefined) return;
    this.#stopTimeout = clock.after(timeoutMs, () => {
      this.#exchange?.fail(
        new ProviderFailure(
          "timeout",
          "the connection was not established within the connect timeout",
        ),
      );
    });
  }

  opened(): void {}

  /** Closes the connection: TLS is already established, so the server renegotiates, perhaps with another certificate. */
  handshaken(): void {
    this.ended(new HttpError("TLS_RENEGOTIATION", "the server renegotiates TLS"), true);
  }

  received(data: Buffer): void {
    if (this.#isGone) return;
    const exchange = this.#exchange;
    if (exchange !== undefined && (this.#hasSent || !this.#isReused)) {
      exchange.receive(data);
      return;
    }
    // A connection on which a server sends unrequested data cannot be trusted with a request.
    this.destroy();
    if (exchange !== undefined) this.#owner.onStale(exchange);
  }

  drained(): void {
    if (this.#isGone) return;
    if (this.#unsent !== undefined) this.#write(this.#unsent);
    if (this.#unsent === undefined) this.#upload?.resume();
  }

  ended(error: unknown, isBroken = false): void {
    if (this.#isGone) return;
    const exchange = this.#exchange;
    this.#exchange = undefined;
    this.#leave();
    if (isBroken) this.#socket!.terminate();
    else this.#socket!.close();
    if (exchange === undefined) return;
    if (this.#isStale(exchange)) this.#owner.onStale(exchange);
    else exchange.connectionEnded(error, this.#isReused);
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
    // A server that responds before reading the whole request leaves unsent bytes on the connection.
    const hasRest = this.#unsent !== undefined || this.#upload !== undefined || this.#takesNoMore;
    if (!isReusable || hasRest || this.#isGone) {
      this.close();
      return;
    }
    if (this.#isPaused) this.resume();
    this.idleSinceMs = this.#owner.nowMs();
    this.#socket!.unref();
    this.#owner.onIdle(this);
  }

  /** Closes the socket of an idle connection. With TLS, `end()` would wait for the server's end without limit. */
  close(): void {
    if (this.#isGone) return;
    this.#leave();
    this.#socket?.close();
  }

  destroy(): void {
    if (this.#isGone) return;
    this.#exchange = undefined;
    this.#leave();
    this.#dial?.cancel();
    this.#socket?.terminate();
  }

  /** Sends bytes of an upload. Returns false if the socket accepts no more for now. */
  sendPiece(bytes: Buffer): boolean {
    if (this.#isGone || this.#takesNoMore) return false;
    this.#write(bytes);
    return this.#unsent === undefined && !this.#isGone && !this.#takesNoMore;
  }

  uploaded(): void {
    this.#upload = undefined;
  }

  uploadFailed(error: unknown): void {
    this.#exchange?.fail(error);
  }

  #leave(): void {
    this.#isGone = true;
    this.#stopTimeout?.();
    this.#unsent = undefined;
    this.#upload?.stop();
    this.#upload = undefined;
    // A dial that cannot be cancelled counts as open until it has ended.
    if (this.#dial === undefined) this.#countOut();
  }

  #countOut(): void {
    if (!this.#isCounted) return;
    this.#isCounted = false;
    this.#owner.onGone(this);
  }

  /**
   * Returns true if the request can be sent again without the risk that it is served, and paid for, twice. That is the
   * case if the connection ended while it was idle and accepted no byte. After bytes were sent, a server that read them
   * and failed looks like one that did not read them. Such cases are left to the code that counts the attempts, as
   * other clients leave them for a POST (RFC 9110, 9.2.2).
   */
  #isStale(exchange: Exchange): boolean {
    return this.#isReused && !this.#hasSent && !exchange.hasBegun && !exchange.hasEnded;
  }

  #send(): void {
    const { requestText: text, bytes, upload, uploadBytes } = this.#exchange!;
    this.#hasSent = false;
    if (upload !== undefined) this.#upload = new UploadPump(upload, uploadBytes, this);
    if (bytes !== undefined) this.#sendBytes(text, bytes);
    else if (text.length > MAX_TEXT_WRITE) this.#write(Buffer.from(text));
    else {
      const written = this.#socket!.write(text);
      if (written > 0) this.#hasSent = true;
      // `written` counts bytes. A text has at least as many bytes as characters.
      if (written < text.length) this.#write(Buffer.from(text).subarray(Math.max(0, written)));
      else this.#unsent = undefined;
    }
    if (this.#unsent === undefined) this.#upload?.resume();
  }

  /** Writes head and body separately, because joining them would copy the body. */
  #sendBytes(head: string, body: Uint8Array): void {
    this.#write(Buffer.from(head));
    if (this.#takesNoMore || this.#isGone) return;
    const rest = Buffer.from(body.buffer as ArrayBuffer, body.byteOffset, body.byteLength);
    if (this.#unsent === undefined) this.#write(rest);
    else this.#unsent = Buffer.concat([this.#unsent, rest]);
  }

  #write(bytes: Buffer): void {
    const written = this.#socket!.write(bytes);
    if (written < 0) {
      this.#endSending();
      return;
    }
    if (written > 0) this.#hasSent = true;
    this.#unsent = written < bytes.length ? bytes.subarray(written) : undefined;
  }

  #endSending(): void {
    const lost = new HttpError("CONNECTION_CLOSED", "the connection no longer accepts data");
    if (!this.#hasSent) {
      this.ended(lost);
      return;
    }
    this.#takesNoMore = true;
    this.#unsent = undefined;
    this.#upload?.stop();
    this.#upload = undefined;
    this.#stopTimeout?.();
    this.#stopTimeout = this.#owner.after(LATE_RESPONSE_WAIT_MS, () => {
      // A response that has begun ends with its connection, however slowly it is read.
      if (this.#exchange?.hasBegun !== true) this.ended(lost);
    });
  }
}

/** Receives the pieces of an upload. Implemented by the connection. */
interface UploadSink {
  /** Sends a piece. Returns false if no more bytes are accepted for now; resume() is called later. */
  sendPiece(bytes: Buffer): boolean;
  uploaded(): void;
  uploadFailed(error: unknown): void;
}

const LAST_CHUNK = Buffer.from("0\r\n\r\n");
const LINE_END = Buffer.from("\r\n");

/**
 * Sends a stream as a body, with one piece in memory at a time: it reads the next piece after the socket has accepted
 * the last. A body of unknown length is sent in chunked transfer coding (RFC 9112, section 7.1).
 */
class UploadPump {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #sink: UploadSink;
  /** Bytes still to send. Undefined if the length is unknown. */
  #leftBytes: number | undefined;
  #sent: Uint8Array | undefined;
  #isReading = false;
  #hasEnded = false;

  /** @throws TypeError if the stream is already being read */
  constructor(
    content: ReadableStream<Uint8Array>,
    lengthBytes: number | undefined,
    sink: UploadSink,
  ) {
    this.#reader = content.getReader();
    this.#leftBytes = lengthBytes;
    this.#sink = sink;
  }

  /** Sends until the socket accepts no more. */
  resume(): void {
    if (this.#isReading || this.#hasEnded) return;
    this.#isReading = true;
    this.#run().catch((error: unknown) => {
      if (this.#hasEnded) return;
      this.stop();
      this.#sink.uploadFailed(error);
    });
  }

  /** Stops sending and cancels the stream. */
  stop(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#reader.cancel().catch(() => undefined);
  }

  async #run(): Promise<void> {
    for (let takesMore = true; takesMore; ) {
      this.#freeSent();
      const piece = await this.#reader.read();
      if (this.#hasEnded) return;
      if (piece.done) {
        this.#end();
        return;
      }
      if (piece.value.length > 0) takesMore = this.#send(piece.value);
    }
    this.#isReading = false;
  }

  #send(piece: Uint8Array): boolean {
    if (this.#leftBytes === undefined) return this.#sink.sendPiece(chunkOf(piece));
    this.#leftBytes -= piece.byteLength;
    if (this.#leftBytes < 0) throw new TypeError("an upload is longer than its length");
    this.#sent = piece;
    return this.#sink.sendPiece(
      Buffer.from(piece.buffer as ArrayBuffer, piece.byteOffset, piece.byteLength),
    );
  }

  /** Frees a piece that the socket has accepted. Otherwise megabytes would wait for garbage collection. */
  #freeSent(): void {
    const { buffer, byteLength } = this.#sent ?? {};
    this.#sent = undefined;
    if (buffer?.byteLength === byteLength) (buffer as ArrayBuffer | undefined)?.transfer(0);
  }

  #end(): void {
    if ((this.#leftBytes ?? 0) > 0) throw new TypeError("an upload is shorter than its length");
    this.#hasEnded = true;
    if (this.#leftBytes === undefined) this.#sink.sendPiece(LAST_CHUNK);
    this.#sink.uploaded();
  }
}

function chunkOf(bytes: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, LINE_END]);
}
