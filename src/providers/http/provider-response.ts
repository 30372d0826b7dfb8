import type { AbortNotice } from "../call-abort.ts";
import type { PieceReader } from "../interface.ts";

/** What the adapters use of a response: `fetch` and the client of this folder both give it. */
export interface ProviderResponse {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  /** Null where a response of its kind has no body. Cancelling it drops the connection. */
  readonly body: ReadableStream<Uint8Array> | null;
  /** The whole body: its size is the caller's to judge first, by its content-length. */
  text(): Promise<string>;
  /** The same where all of it has come, in place of a wait; undefined else. */
  wholeText?(): string | undefined;
  /** Whether `body` is not null, without making it. */
  readonly hasBody?: boolean;
  /** Reads the body, in place of `body`. */
  reader?(): PieceReader;
}

export interface ProviderRequest {
  readonly method: string;
  /** Prepared once for each object, which must not change afterwards. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly signal: AbortNotice;
  /** Milliseconds until a new connection must stand. */
  readonly connectTimeoutMs: number;
}

/** Rejects with the signal's reason where that has aborted, and with an Error with a `code` else. */
export type HttpFetch = (url: string, request: ProviderRequest) => Promise<ProviderResponse>;
