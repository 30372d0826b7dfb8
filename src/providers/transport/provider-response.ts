import type { ProxySettings } from "../../platform/config/outbound-proxies.ts";
import type { PieceReader } from "../interface.ts";
import type { AbortNotice } from "./call-abort.ts";

export interface ResponseHeaders {
  /** Returns the value of a header, in any case of its name, or null if the response has none. */
  get(name: string): string | null;
}

/** The parts of a response that providers use. */
export interface ProviderResponse {
  readonly status: number;
  readonly headers: ResponseHeaders;
  /** Null if a response of its kind has no body. Cancelling it closes the connection. */
  readonly body: ReadableStream<Uint8Array> | null;
  /** Returns the whole body. The caller must check its content-length first. */
  text(): Promise<string>;
  /**
   * Returns the whole body without waiting. Returns undefined if it has not fully arrived or is longer than `maxBytes`.
   */
  wholeText?(maxBytes: number): string | undefined;
  /** True if `body` is not null. Does not create the stream. */
  readonly hasBody?: boolean;
  /** Returns a reader to use instead of `body`. */
  reader?(): PieceReader;
}

export interface ProviderRequest {
  readonly method: string;
  /** Prepared once for each object, which must not change afterwards. */
  readonly headers: Readonly<Record<string, string>>;
  /** A stream is cancelled if the call ends before it. Bytes must not change. */
  readonly body: string | Uint8Array | ReadableStream<Uint8Array>;
  /**
   * Length of a stream, sent with it. Absent: the stream is sent in chunks. The client frees the memory of the stream's
   * pieces after sending, so no other code can keep them.
   */
  readonly bodyBytes?: number | undefined;
  readonly signal: AbortNotice;
  /** Milliseconds until a new connection must be established, including TLS and a proxy's tunnel. */
  readonly connectTimeoutMs: number;
  /** The proxy of the provider, used in place of those of the environment. */
  readonly proxy?: ProxySettings | undefined;
  /** Sends the request only on a new connection. */
  readonly onNewConnection?: boolean | undefined;
}

/** Receives a response. Exactly one of the two methods is called, once. */
export interface ResponseReceiver {
  /** The head has arrived, with the part of the body that came with it. */
  responded(response: ProviderResponse): void;
  /** The request failed: the signal's reason if it has aborted, else an Error with a `code`. */
  failed(error: unknown): void;
}

export interface HttpClient {
  /** Throws a TypeError if the URL, the method or a header cannot be sent. */
  send(url: string, request: ProviderRequest, receiver: ResponseReceiver): void;
}

/** Sends a request and returns the response. */
export function sendRequest(
  client: HttpClient,
  url: string,
  request: ProviderRequest,
): Promise<ProviderResponse> {
  return new Promise((responded, failed) => {
    client.send(url, request, { responded, failed });
  });
}

/**
 * Content types of streams: that of events, and the defaults of frameworks. Content under these defaults is checked
 * separately. If proxies have duplicated the field, the first value counts.
 */
const STREAM = /^\s*(?:text\/event-stream|text\/plain|application\/octet-stream)\s*(?:[;,]|$)/i;

export function isEventStream(contentType: string | null): boolean {
  return contentType === "text/event-stream" || contentType === null || STREAM.test(contentType);
}

export function isJson(contentType: string | null): boolean {
  return (
    contentType !== null && /^\s*application\/(?:[\w.-]+\+)?json\s*(?:[;,]|$)/i.test(contentType)
  );
}
