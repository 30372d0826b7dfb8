import { connect } from "node:net";
import type { Upstream } from "./server.ts";

/** What a client got, up to the end of the body or the failure of the connection. */
export interface Asked {
  /** Null where the connection failed before any answer. */
  status: number | null;
  headers: Headers;
  text: string;
  bytes: Uint8Array;
  /** How many pieces the body arrived in. */
  reads: number;
  /** The connection failed, or was given up by the client. */
  failed: boolean;
}

export interface AskOptions {
  body?: Record<string, unknown>;
  /** Sees the text so far; true gives up. */
  giveUp?: (text: string) => boolean;
  signal?: AbortSignal;
}

/** Sends one chat completion (`hello` unless told otherwise) and reads all of the answer. */
export async function ask(
  upstream: Upstream,
  model: string,
  options: AskOptions = {},
): Promise<Asked> {
  const asked: Asked = {
    status: null,
    headers: new Headers(),
    text: "",
    bytes: new Uint8Array(0),
    reads: 0,
    failed: false,
  };
  const gaveUp = new AbortController();
  const parts: Uint8Array[] = [];
  try {
    const response = await fetch(`${upstream.baseUrl}/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: "Bearer test" },
      body: JSON.stringify({
        model,
        messages: [{ role: "user", content: "hello" }],
        ...options.body,
      }),
      signal: options.signal ?? gaveUp.signal,
      redirect: "manual",
    });
    asked.status = response.status;
    asked.headers = response.headers;
    for await (const part of response.body ?? []) {
      parts.push(part);
      asked.reads += 1;
      if (options.giveUp?.(Buffer.concat(parts).toString()) === true) gaveUp.abort();
    }
  } catch {
    asked.failed = true;
  }
  asked.bytes = Buffer.concat(parts);
  asked.text = new TextDecoder().decode(asked.bytes);
  return asked;
}

/** The same, streamed and with usage asked for. */
export function askStream(
  upstream: Upstream,
  model: string,
  options: AskOptions = {},
): Promise<Asked> {
  const body = { stream: true, stream_options: { include_usage: true }, ...options.body };
  return ask(upstream, model, { ...options, body });
}

/** Sends a body over a bare socket: everything received up to the close, and the pieces of a chunked body (RFC 9112 §7.1). */
export async function askRaw(
  upstream: Upstream,
  body: string,
): Promise<{ received: Buffer; chunks: Buffer[] }> {
  const received = await new Promise<Buffer>((resolve) => {
    const parts: Buffer[] = [];
    const socket = connect(upstream.port, "127.0.0.1", () => {
      socket.write(
        `POST /v1/chat/completions HTTP/1.1\r\nhost: upstream\r\nconnection: close\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
      );
    });
    socket.on("data", (data: Buffer) => parts.push(data));
    socket.on("close", () => resolve(Buffer.concat(parts)));
    // A reset may take the place of a close; what counts is what came before it.
    socket.on("error", () => resolve(Buffer.concat(parts)));
  });
  const chunks: Buffer[] = [];
  let offset = received.indexOf("\r\n\r\n") + 4;
  while (offset >= 4 && offset < received.length) {
    const lineEnd = received.indexOf("\r\n", offset);
    const length = Number.parseInt(received.toString("latin1", offset, lineEnd), 16);
    if (!(length > 0)) break;
    chunks.push(received.subarray(lineEnd + 2, lineEnd + 2 + length));
    offset = lineEnd + 2 + length + 2;
  }
  return { received, chunks };
}
