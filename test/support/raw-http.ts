import { connect } from "node:net";

/** The server that listens there. */
export interface RawTarget {
  readonly baseUrl: string;
}

export interface RawRequest {
  readonly method?: string;
  readonly path?: string;
  readonly host?: string;
  /** As they go out, in order, names repeated as often as they stand here. */
  readonly headers?: readonly (readonly [name: string, value: string])[];
  readonly body?: string | Uint8Array;
}

/** Sends a request over a bare socket, with what no HTTP client would send, and reads the answer. */
export async function sendRaw(gateway: RawTarget, request: RawRequest): Promise<Response> {
  const { method = "POST", path = "/v1/chat/completions", headers = [], body = "" } = request;
  const { host = "gateway.test" } = request;
  const bytes = Buffer.from(body as string);
  const head = [
    `${method} ${path} HTTP/1.1`,
    `host: ${host}`,
    "connection: close",
    `content-length: ${bytes.length}`,
    ...headers.map(([name, value]) => `${name}: ${value}`),
  ];
  return exchange(gateway, [Buffer.from(`${head.join("\r\n")}\r\n\r\n`, "latin1"), bytes]);
}

/** Writes the bytes as they are and reads all that is answered until the connection closes. */
export function exchange(gateway: RawTarget, parts: readonly Uint8Array[]): Promise<Response> {
  return new Promise((resolve, reject) => {
    const received: Buffer[] = [];
    const socket = connect(Number(new URL(gateway.baseUrl).port), "127.0.0.1", () => {
      for (const part of parts) socket.write(part);
    });
    socket.on("data", (data: Buffer) => received.push(data));
    // A reset may take the place of a close; what counts is what came before it.
    socket.on("error", () => {});
    socket.on("close", () => {
      try {
        resolve(parseResponse(Buffer.concat(received)));
      } catch (error) {
        reject(error);
      }
    });
  });
}

function parseResponse(bytes: Buffer): Response {
  const headEnd = bytes.indexOf("\r\n\r\n");
  if (headEnd < 0) throw new Error(`no HTTP response: ${bytes.toString("latin1").slice(0, 200)}`);
  const [statusLine = "", ...lines] = bytes.toString("latin1", 0, headEnd).split("\r\n");
  const headers = new Headers();
  for (const line of lines) {
    const colon = line.indexOf(":");
    headers.append(line.slice(0, colon), line.slice(colon + 1).trim());
  }
  const body = new Uint8Array(bytes.subarray(headEnd + 4));
  const status = Number(statusLine.split(" ")[1]);
  return new Response(status === 204 ? null : body, { status, headers });
}
