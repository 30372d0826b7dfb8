import type { PieceReader } from "../interface.ts";
import type { AbortNotice } from "./call-abort.ts";

/** What the adapters use of a response. */
export interface ProviderResponse {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  /** Null where a response of its kind has no body. Cancelling it drops the connection. */
  readonly body: ReadableStream<Uint8Array> | null;
  /** The whole body: its size is the caller's to judge first, by its content-length. */
  text(): Promise<string>;
  /** The same where all of it has come, within that many bytes, in place of a wait; undefined else. */
  wholeText?(maxBytes: number): string | undefined;
  /** Whether `body` is not null, without making it. */
  readonly hasBody?: boolean;
  /** Reads the body, in place of `body`. */
  reader?(): PieceReader;
}

export interface ProviderRequest {
  readonly method: string;
  /** Prepared once for each object, which must not change afterwards. */
  readonly headers: Readonly<Record<string, string>>;
  /** A stream is cancelled where the call ends before it. Bytes must not change. */
  readonly body: string | Uint8Array | ReadableStream<Uint8Array>;
  /**
   * The length of a stream, which is then sent with it, and in chunks where this is left out. The memory of
   * its pieces is freed as they are sent, so that no other code may keep them.
   */
  readonly bodyBytes?: number | undefined;
  readonly signal: AbortNotice;
  /** Milliseconds until a new connection must stand, TLS and a proxy's tunnel included. */
  readonly connectTimeoutMs: number;
  /** Sent on no connection that was used before. */
  readonly onNewConnection?: boolean | undefined;
}

/** Waits for a response. One of the two is called, once. */
export interface ResponseReceiver {
  /** As much of the body has come as came with the head. */
  responded(response: ProviderResponse): void;
  /** With the signal's reason where that has aborted, and with an Error with a `code` else. */
  failed(error: unknown): void;
}

export interface HttpClient {
  /** Throws a TypeError where the URL, the method or a header cannot be sent. */
  send(url: string, request: ProviderRequest, receiver: ResponseReceiver): void;
}

/** The response to a request, for callers that wait for it. */
export function sent(
  client: HttpClient,
  url: string,
  request: ProviderRequest,
): Promise<ProviderResponse> {
  return new Promise((responded, failed) => {
    client.send(url, request, { responded, failed });
  });
}

/**
 * The types of streams: that of events, and the defaults that frameworks use if none is set.
 * What is sent under those is judged by what is in it. Of a field that proxies have made two of, the first
 * counts.
 */
const STREAM = /^\s*(?:text\/event-stream|text\/plain|application\/octet-stream)\s*(?:[;,]|$)/i;

export function isEventStream(contentType: string | null): boolean {
  return contentType === null || STREAM.test(contentType);
}

export function isJson(contentType: string | null): boolean {
  return (
    contentType !== null && /^\s*application\/(?:[\w.-]+\+)?json\s*(?:[;,]|$)/i.test(contentType)
  );
}
