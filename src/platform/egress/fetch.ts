import { type EgressClientOptions, fetchTarget, unlessAborted } from "./client.ts";

const METHODS = ["GET", "POST", "DELETE"] as const;
type Method = (typeof METHODS)[number];

/**
 * Statuses of answers without a body. A Response with such a status cannot be created with a body.
 */
const NO_BODY: ReadonlySet<number> = new Set([204, 205, 304]);

/** Thrown if an answer has more bytes than allowed. */
export class AnswerTooLong extends Error {
  constructor(maxBytes: number) {
    super(`an answer has more than ${maxBytes} bytes`);
    this.name = "AnswerTooLong";
  }
}

/**
 * Returns a `fetch` for client libraries that connect to servers of users. It checks each request
 * and connects to the checked address. It does not follow redirects, decompresses nothing, and
 * fails a body beyond `maxBytes`. Not every library reports that a body failed, so `onBroken`
 * receives the error. It rejects with EgressRefused, NameNotResolved, the signal's reason, or the
 * error of the connection.
 */
export function createEgressFetch(
  { guard, certificateAuthorities }: EgressClientOptions,
  maxBytes: number,
  onBroken: (error: unknown) => void = () => undefined,
) {
  return async (url: string | URL, init: RequestInit = {}): Promise<Response> => {
    const { body } = init;
    if (body !== undefined && body !== null && typeof body !== "string") {
      throw new TypeError("only text bodies are supported");
    }
    const signal = init.signal ?? new AbortController().signal;
    const target = await unlessAborted(guard.check(String(url)), signal);
    const response = await fetchTarget(
      target,
      {
        method: methodOf(init.method),
        headers: {
          ...Object.fromEntries(new Headers(init.headers)),
          "accept-encoding": "identity",
        },
        ...(typeof body === "string" && { body }),
        signal,
      },
      certificateAuthorities,
    );
    const { status, headers } = response;
    if (headers.get("content-encoding") !== null) {
      await response.body?.cancel();
      throw new TypeError("an answer is compressed, although the request did not allow it");
    }
    const isEmpty = response.body === null || NO_BODY.has(status);
    return new Response(isEmpty ? null : bounded(response.body!, maxBytes, onBroken), {
      status,
      headers,
    });
  };
}

function methodOf(method = "GET"): Method {
  const supported = METHODS.find((candidate) => candidate === method.toUpperCase());
  if (supported === undefined) throw new TypeError(`the method ${method} is not supported`);
  return supported;
}

function bounded(
  body: ReadableStream<Uint8Array>,
  maxBytes: number,
  onBroken: (error: unknown) => void,
): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  let bytes = 0;
  return new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (done) return controller.close();
        bytes += value.byteLength;
        if (bytes > maxBytes) throw new AnswerTooLong(maxBytes);
        controller.enqueue(value);
      } catch (error) {
        controller.error(error);
        onBroken(error);
        await reader.cancel().catch(() => undefined);
      }
    },
    cancel: (reason) => reader.cancel(reason),
  });
}
