import type { AbortNotice } from "./call-abort.ts";
import { ChunkedDecoder } from "./chunked-decoder.ts";
import { connectionLost, HttpError, malformed } from "./http-error.ts";
import type { ProviderRequest, ResponseReceiver } from "./provider-response.ts";
import { type BodySource, decoderOf, ExchangeResponse } from "./response-body.ts";
import { type BodyFraming, framingOf, parseHead, type ResponseHead } from "./response-head.ts";

export const MAX_HEAD_BYTES = 65_536;
/** Maximum number of responses with status 1xx before the final one. */
const MAX_INTERIM_RESPONSES = 16;
const HEAD_END = Buffer.from("\r\n\r\n");

/** The connection that an exchange runs on. Implemented by HttpConnection. */
export interface ExchangeCarrier {
  pause(): void;
  resume(): void;
  /** The response is complete. */
  finish(isReusable: boolean): void;
  /** Closes the connection immediately. */
  destroy(): void;
}

/**
 * One request and its response. It waits for a carrier, then for a head, then for the end of the body. It ends exactly
 * once, with complete() or fail(), and ignores everything after that.
 */
export class Exchange implements BodySource, EventListenerObject {
  /** The head, followed by the body if it is text. */
  readonly requestText: string;
  /** The body if it is bytes. Dropped when the response begins, because the request is not sent again after that. */
  bytes: Uint8Array | undefined;
  readonly upload: ReadableStream<Uint8Array> | undefined;
  /** Length of the upload. Undefined if it is sent in chunks. */
  readonly uploadBytes: number | undefined;
  readonly connectTimeoutMs: number;
  readonly onNewConnection: boolean;
  readonly #method: string;
  readonly #signal: AbortNotice;
  readonly #receiver: ResponseReceiver;
  #carrier: ExchangeCarrier | undefined;
  #headBytes: Buffer | undefined;
  #hasBegun = false;
  #hasEnded = false;
  #interimResponses = 0;
  #framing: BodyFraming | undefined;
  #remainingBytes = 0;
  #chunks: ChunkedDecoder | undefined;
  #response: ExchangeResponse | undefined;

  constructor(requestText: string, request: ProviderRequest, receiver: ResponseReceiver) {
    this.requestText = requestText;
    const { body } = request;
    this.upload = body instanceof ReadableStream ? body : undefined;
    this.uploadBytes = request.bodyBytes;
    if (typeof body !== "string" && this.upload === undefined) this.bytes = body as Uint8Array;
    this.connectTimeoutMs = request.connectTimeoutMs;
    // Bytes already read from an upload are lost, so the upload cannot be sent again on another connection.
    this.onNewConnection = request.onNewConnection === true || this.upload !== undefined;
    this.#method = request.method;
    this.#signal = request.signal;
    this.#receiver = receiver;
    this.#signal.addEventListener("abort", this);
  }

  /** True after the first byte of the response has arrived. */
  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  carriedBy(carrier: ExchangeCarrier): void {
    this.#carrier = carrier;
  }

  /** Handles the abort of the signal. */
  handleEvent(): void {
    this.#response?.abort(this.#signal.reason);
    this.fail(this.#signal.reason);
  }

  receive(data: Buffer): void {
    try {
      this.#hasBegun = true;
      if (this.#framing === undefined) this.#receiveHead(data);
      else this.#receiveBody(data, 0);
    } catch (error) {
      this.fail(error);
    }
  }

  /**
   * Handles the end of the carrier, with an error of the system or without one. `wasUsed` means that it carried an
   * earlier exchange.
   */
  connectionEnded(error: unknown, wasUsed = false): void {
    if (this.#hasEnded) return;
    const isReset = error !== undefined && error !== null;
    if (this.#framing?.kind === "close" && !isReset) {
      this.#complete(false);
      return;
    }
    const where = this.#framing === undefined ? "before the response" : "in mid-response";
    this.fail(connectionLost(`the connection ended ${where}`, error, wasUsed && !this.#hasBegun));
  }

  fail(error: unknown): void {
    if (this.#hasEnded) return;
    this.#end();
    cancelUnread(this.upload);
    if (this.#response === undefined) this.#receiver.failed(error);
    else this.#response.fail(error);
    this.#carrier?.destroy();
  }

  pause(): void {
    if (!this.#hasEnded) this.#carrier?.pause();
  }

  resume(): void {
    if (!this.#hasEnded) this.#carrier?.resume();
  }

  abandon(): void {
    this.fail(new HttpError("CANCELLED", "the body was cancelled"));
  }

  #receiveHead(data: Buffer): void {
    const earlier = this.#headBytes;
    const bytes = earlier === undefined ? data : Buffer.concat([earlier, data]);
    let at = 0;
    // Searches only the new bytes, and the last three of the earlier ones, which can be a part of the end mark.
    let searchFrom = earlier === undefined ? 0 : Math.max(0, earlier.length - 3);
    for (;;) {
      const end = bytes.indexOf(HEAD_END, searchFrom);
      if ((end === -1 ? bytes.length : end) - at > MAX_HEAD_BYTES) {
        throw malformed(`a head of more than ${MAX_HEAD_BYTES} bytes`);
      }
      if (end === -1) {
        // The end mark of such a head would never arrive.
        if (bytes.indexOf("\n\n", searchFrom) !== -1) throw malformed("lines that end without CR");
        this.#headBytes = at === 0 ? bytes : bytes.subarray(at);
        return;
      }
      const head = parseHead(bytes.toString("latin1", at, end));
      at = searchFrom = end + HEAD_END.length;
      if (head.status >= 200) {
        this.#begin(head, bytes, at);
        return;
      }
      this.#skipInterim(head.status);
    }
  }

  #skipInterim(status: number): void {
    if (status === 101) throw malformed("a switch to another protocol");
    if (++this.#interimResponses > MAX_INTERIM_RESPONSES) throw malformed("too many interim heads");
  }

  #begin(head: ResponseHead, bytes: Buffer, bodyStart: number): void {
    this.#headBytes = undefined;
    this.bytes = undefined;
    const framing = framingOf(head, this.#method);
    const decode = decoderOf(head.get("content-encoding"));
    const response = new ExchangeResponse(this, head, framing.kind !== "none", decode);
    this.#framing = framing;
    this.#remainingBytes = framing.lengthBytes;
    this.#response = response;
    if (framing.kind === "chunked") this.#chunks = new ChunkedDecoder();
    try {
      this.#receiveBody(bytes, bodyStart);
    } catch (error) {
      // The head is complete, so the body's reader gets the error.
      this.fail(error);
    }
    this.#receiver.responded(response);
  }

  #receiveBody(bytes: Buffer, offset: number): void {
    let start = offset;
    let end = bytes.length;
    let position = end;
    let isOver = false;
    if (this.#chunks !== undefined) {
      this.#chunks.decode(bytes, offset);
      ({ start, end, position, isDone: isOver } = this.#chunks);
    } else if (this.#framing!.kind !== "close") {
      position = end = Math.min(bytes.length, offset + this.#remainingBytes);
      this.#remainingBytes -= end - start;
      isOver = this.#remainingBytes === 0;
    }
    if (end > start) this.#response!.push(bytes, start, end);
    // A server could mean unrequested bytes as the response to the next request.
    if (isOver) this.#complete(position === bytes.length);
  }

  #complete(isClean: boolean): void {
    this.#end();
    this.#response!.end();
    this.#carrier?.finish(isClean && this.#framing!.isReusable);
  }

  #end(): void {
    this.#hasEnded = true;
    this.#headBytes = undefined;
    this.bytes = undefined;
    this.#signal.removeEventListener("abort", this);
  }
}

/** Cancels an upload that no connection reads yet. A connection that reads an upload cancels it itself. */
export function cancelUnread(upload: ReadableStream<Uint8Array> | undefined): void {
  if (upload?.locked === false) upload.cancel().catch(() => undefined);
}
