import { type RawTarget, sendRaw } from "../support/raw-http.ts";
import { parseStream } from "../support/stream-reader.ts";

/** What became of one request of a flood. */
export interface Outcome {
  readonly status: number;
  /** Error code, undefined where it succeeded. */
  readonly code: string | undefined;
  readonly message: string | undefined;
  /** Undefined where it failed. */
  readonly costUsd: number | undefined;
  readonly headers: Headers;
}

export interface Flood {
  /** Of several they take turns. */
  readonly key: string | readonly string[];
  readonly body: Record<string, unknown>;
  readonly requests: number;
  /** Over how long they arrive; 0, the default: all at once. */
  readonly spreadMs?: number;
}

/**
 * Sends so many requests, every other one streamed, each over a connection of its own: `fetch` would
 * hold most of them back in this process. They go around the gateways where there are several.
 */
export function flood(
  gateways: RawTarget | readonly RawTarget[],
  options: Flood,
): Promise<Outcome[]> {
  const { requests, spreadMs = 0 } = options;
  const all = [gateways].flat();
  return Promise.all(
    Array.from({ length: requests }, async (_, i) => {
      if (spreadMs > 0) await Bun.sleep((i * spreadMs) / requests);
      const keys = [options.key].flat();
      const key = keys[Math.floor(i / all.length) % keys.length]!;
      return send(all[i % all.length]!, { key, body: options.body }, (i & 1) === 1);
    }),
  );
}

async function send(
  gateway: RawTarget,
  { key, body }: { readonly key: string; readonly body: Flood["body"] },
  isStreamed: boolean,
): Promise<Outcome> {
  const streaming = isStreamed ? { stream: true, stream_options: { include_usage: true } } : {};
  const response = await sendRaw(gateway, {
    headers: [
      ["authorization", `Bearer ${key}`],
      ["content-type", "application/json"],
    ],
    body: JSON.stringify({ messages: [{ role: "user", content: "hi" }], ...body, ...streaming }),
  });
  const { status, headers } = response;
  const isChunked = headers.get("transfer-encoding") === "chunked";
  const text = isChunked ? dechunked(await response.text()) : await response.text();
  if (status === 200 && isStreamed) return ofStream(text, headers);
  const answer = JSON.parse(text);
  return {
    status,
    code: answer.error?.code,
    message: answer.error?.message,
    costUsd: answer.usage?.cost,
    headers,
  };
}

function ofStream(text: string, headers: Headers): Outcome {
  const stream = parseStream(text);
  const error = stream.error?.error;
  return {
    status: 200,
    code: stream.isDone ? undefined : String(error?.code ?? "cut"),
    message: error?.message as string | undefined,
    costUsd: stream.usage?.cost as number | undefined,
    headers,
  };
}

/** The body of a chunked transfer of ASCII (RFC 9112 §7.1). */
function dechunked(text: string): string {
  let body = "";
  let at = 0;
  for (;;) {
    const lineEnd = text.indexOf("\r\n", at);
    const length = Number.parseInt(text.slice(at, lineEnd), 16);
    if (!(length > 0)) return body;
    body += text.slice(lineEnd + 2, lineEnd + 2 + length);
    at = lineEnd + 4 + length;
  }
}
