import { join } from "node:path";
import type { Connect } from "../../src/providers/transport/dial.ts";
import {
  createHttpClient,
  type HttpClientOptions,
} from "../../src/providers/transport/http-client.ts";
import {
  type ProviderRequest,
  type ProviderResponse,
  sendRequest,
} from "../../src/providers/transport/provider-response.ts";

export interface RawConnection {
  readonly socket: Bun.Socket<RawConnection>;
  /** What the client has sent and takeRequest() has not taken yet, one character a byte. */
  received: string;
  isClosed: boolean;
  unsent: Buffer;
  /** Called when the socket takes bytes again. */
  onDrain(): void;
}

export interface RawServer extends AsyncDisposable {
  readonly url: string;
  readonly connections: RawConnection[];
  /** Resolves when `condition` holds, which is looked at whenever something happens on a connection. */
  until(condition: () => boolean): Promise<void>;
}

type OnRequest = (connection: RawConnection, request: string, index: number) => void;
type OnConnection = (connection: RawConnection) => void;

const TLS_FIXTURES = join(import.meta.dir, "../fixtures/tls");
/** What test/fixtures/tls has: `good` names localhost, 127.0.0.1, ::1 and *.wild.test. */
export type CertificateName = "good" | "other" | "expired" | "self";
/** The authority that signed all of them but `self`. */
export const TEST_AUTHORITY = await Bun.file(join(TLS_FIXTURES, "transport-ca.crt")).text();

export function certificateOf(name: CertificateName) {
  return {
    cert: Bun.file(join(TLS_FIXTURES, `transport-${name}.crt`)),
    key: Bun.file(join(TLS_FIXTURES, `transport-${name}.key`)),
  };
}

/** startRawServer for tests that hold over both protocols. */
export function rawServersOf(protocol: "http" | "https") {
  return (onRequest: OnRequest, onConnection?: OnConnection) =>
    startRawServer(onRequest, onConnection, protocol === "https" ? "good" : undefined);
}

/** A server of bytes: `onRequest` is called for every whole request and writes what it likes. */
export function startRawServer(
  onRequest: OnRequest,
  onConnection: OnConnection = () => undefined,
  certificate?: CertificateName,
): RawServer {
  const connections: RawConnection[] = [];
  const waiting: { condition: () => boolean; resolve: () => void }[] = [];
  let requests = 0;
  const changed = () => {
    for (const one of waiting.splice(0)) {
      if (one.condition()) one.resolve();
      else waiting.push(one);
    }
  };
  const listener = Bun.listen<RawConnection>({
    hostname: "127.0.0.1",
    port: 0,
    ...(certificate !== undefined && { tls: certificateOf(certificate) }),
    socket: {
      open(socket) {
        const connection: RawConnection = {
          socket,
          received: "",
          isClosed: false,
          unsent: Buffer.alloc(0),
          onDrain: () => flush(connection),
        };
        socket.data = connection;
        connections.push(connection);
        onConnection(connection);
        changed();
      },
      data(socket, data) {
        socket.data.received += data.toString("latin1");
        for (;;) {
          const request = takeRequest(socket.data);
          if (request === undefined) break;
          onRequest(socket.data, request, requests++);
        }
        changed();
      },
      drain: (socket) => socket.data.onDrain(),
      close(socket) {
        socket.data.isClosed = true;
        changed();
      },
      error: () => undefined,
    },
  });
  return {
    url: `http${certificate === undefined ? "" : "s"}://127.0.0.1:${listener.port}/v1/x?a=b`,
    connections,
    until: (condition) =>
      condition()
        ? Promise.resolve()
        : new Promise((resolve) => waiting.push({ condition, resolve })),
    async [Symbol.asyncDispose]() {
      listener.stop(true);
    },
  };
}

/** Sends bytes, the rest of them as the socket takes them. */
export function send(connection: RawConnection, bytes: string | Uint8Array): void {
  const added = typeof bytes === "string" ? Buffer.from(bytes, "latin1") : bytes;
  const isFlushing = connection.unsent.length > 0;
  connection.unsent = Buffer.concat([connection.unsent, added]);
  if (!isFlushing) flush(connection);
}

function flush(connection: RawConnection): void {
  const written = Math.max(0, connection.socket.write(connection.unsent));
  connection.unsent = connection.unsent.subarray(written);
}

function takeRequest(connection: RawConnection): string | undefined {
  const { received } = connection;
  const headEnd = received.indexOf("\r\n\r\n");
  if (headEnd === -1) return undefined;
  if (received.slice(0, headEnd).includes("transfer-encoding: chunked")) {
    const lastChunk = received.indexOf("\r\n0\r\n\r\n", headEnd);
    if (lastChunk === -1) return undefined;
    connection.received = received.slice(lastChunk + 7);
    return received.slice(0, lastChunk + 7);
  }
  const length = Number(/content-length: (\d+)/.exec(received.slice(0, headEnd))?.[1] ?? 0);
  const end = headEnd + 4 + length;
  if (received.length < end) return undefined;
  connection.received = received.slice(end);
  return received.slice(0, end);
}

export function answerOf(body: string, headers = ""): string {
  return `HTTP/1.1 200 OK\r\n${headers}content-length: ${Buffer.byteLength(body, "latin1")}\r\n\r\n${body}`;
}

const HEADERS = { "content-type": "application/json" };

export type HttpFetch = (url: string, request: ProviderRequest) => Promise<ProviderResponse>;

/** The client, which trusts the authority of the tests, for callers that wait for its responses. */
export function createHttpFetch(options: HttpClientOptions = {}): HttpFetch {
  const client = createHttpClient({ authorities: [TEST_AUTHORITY], ...options });
  return (url, request) => sendRequest(client, url, request);
}

export function requestOf(changes: Partial<ProviderRequest> = {}): ProviderRequest {
  return {
    method: "POST",
    headers: HEADERS,
    body: "{}",
    signal: new AbortController().signal,
    connectTimeoutMs: 5_000,
    ...changes,
  };
}

/** Status and text of a response, or the code of the failure, whichever of the two ways it is read in. */
export async function outcomeOf(
  httpFetch: HttpFetch,
  url: string,
  as: "text" | "stream" = "text",
): Promise<string> {
  try {
    const response = await httpFetch(url, requestOf());
    const text = as === "text" ? await response.text() : await new Response(response.body).text();
    return `${response.status} ${text}`;
  } catch (error) {
    return codeOf(error);
  }
}

export function codeOf(error: unknown): string {
  return String((error as { code?: unknown }).code ?? error);
}

/** A connect that tells when the client has paused a connection, and how many bytes it was handed. */
export function observedConnect() {
  const paused = Promise.withResolvers<void>();
  const handed = { bytes: 0 };
  const connect: Connect = async (options) => {
    const { data } = options.socket;
    const socket = await Bun.connect({
      ...options,
      socket: {
        ...options.socket,
        data(from, bytes) {
          handed.bytes += bytes.length;
          data!(from, bytes);
        },
      },
    });
    const pause = socket.pause.bind(socket);
    socket.pause = () => {
      pause();
      paused.resolve();
    };
  };
  return { connect, paused: paused.promise, handed };
}
