import type { Client, Transport } from "@modelcontextprotocol/client";
import { isFields } from "../../../lib/json.ts";
import { unlessAborted } from "../../../platform/egress/client.ts";
import { AnswerTooLong } from "../../../platform/egress/fetch.ts";
import { EgressRefused, NameNotResolved } from "../../../platform/egress/guard.ts";

type Fields = Readonly<Record<string, unknown>>;
type Fetch = (url: string | URL, init?: RequestInit) => Promise<Response>;

/** A remote server as a request names it. */
export interface McpServer {
  readonly label: string;
  readonly url: string;
  /** Headers of all requests, including the authorization. */
  readonly headers: Readonly<Record<string, string>>;
}

/** A tool as its server describes it. */
export interface McpTool {
  readonly name: string;
  readonly description: string | undefined;
  /** JSON schema of the input. */
  readonly inputSchema: Fields;
  readonly annotations: Fields | undefined;
}

/** The result of a tool call: text, and images as data URLs. */
export interface McpResult {
  readonly text: string;
  readonly images: readonly string[];
  readonly isError: boolean;
}

/** Thrown if a server cannot be reached or violates the protocol. The caller sees the message. */
export class McpFailure extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = "McpFailure";
  }
}

/** Timeouts in milliseconds of a connection and of the list of a server's tools. */
const CONNECT_TIMEOUT_MS = 15_000;
const LIST_TIMEOUT_MS = 15_000;
/** Timeout in milliseconds of a tool call, including its progress notifications. */
const CALL_TIMEOUT_MS = 60_000;
const CLOSE_TIMEOUT_MS = 2_000;
const MAX_PAGES = 16;
const MAX_IMAGES = 4;
const MAX_IMAGE_CHARACTERS = 4_194_304;
const MAX_MESSAGE_CHARACTERS = 500;
const IMAGE_TYPE = /^image\/(?:png|jpeg|webp|gif)$/;
/** Statuses that servers with the first HTTP transport return for a POST to their address. */
const OLDER_TRANSPORT: ReadonlySet<unknown> = new Set([400, 404, 405, 406]);

/** Opens connections. Rejects with McpFailure, or with the signal's reason. */
export type McpConnect = (server: McpServer, signal: AbortSignal) => Promise<McpConnection>;

/**
 * Creates a function that connects with the official client. Its fetches use the egress guard and report
 * failing bodies to a listener. Loading the client takes a tenth of a second, so this is called at the start,
 * and only if servers are allowed.
 */
export async function createMcpConnect(
  fetchWith: (onBroken: (error: unknown) => void) => Fetch,
  clientVersion: string,
): Promise<McpConnect> {
  const sdk = await import("@modelcontextprotocol/client");
  const newClient = () =>
    new sdk.Client(
      { name: "model-gateway", version: clientVersion },
      {
        capabilities: {},
        versionNegotiation: { mode: "auto" },
        listMaxPages: MAX_PAGES,
        // Skips validation. Compiling schemas of untrusted servers would block the event loop, and the model
        // reads the results anyway.
        jsonSchemaValidator: {
          getValidator: () => (data) => ({
            valid: true,
            data: data as never,
            errorMessage: undefined,
          }),
        },
      },
    );
  const open = async (transport: Transport, signal: AbortSignal): Promise<Client> => {
    const client = newClient();
    // Without a listener, the client prints data of untrusted servers to the console.
    client.onerror = () => undefined;
    try {
      await unlessAborted(client.connect(transport, { timeout: CONNECT_TIMEOUT_MS }), signal);
      return client;
    } catch (error) {
      client.close().catch(() => undefined);
      throw error;
    }
  };
  return async (server, signal) => {
    const url = new URL(server.url);
    const broken = new AbortController();
    const timeout = AbortSignal.timeout(CONNECT_TIMEOUT_MS);
    const connecting = AbortSignal.any([signal, broken.signal, timeout]);
    const fetch = fetchWith((error) => broken.abort(error));
    const requestInit = { headers: { ...server.headers }, redirect: "manual" } as const;
    try {
      const streamable = new sdk.StreamableHTTPClientTransport(url, {
        fetch,
        requestInit,
        reconnectionOptions: NO_RECONNECTION,
      });
      const endSession = () => streamable.terminateSession();
      try {
        const client = await open(streamable, connecting);
        return new McpConnection({ client, endSession, server, broken: broken.signal });
      } catch (error) {
        if (connecting.aborted || !OLDER_TRANSPORT.has(statusOf(error))) throw error;
      }
      const older = new sdk.SSEClientTransport(url, { fetch, requestInit });
      const client = await open(older, connecting);
      return new McpConnection({ client, server, broken: broken.signal });
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      throw failureOf(error, server);
    }
  };
}

const NO_RECONNECTION = {
  maxRetries: 0,
  initialReconnectionDelay: 1_000,
  maxReconnectionDelay: 1_000,
  reconnectionDelayGrowFactor: 1,
};

interface OpenConnection {
  readonly client: Client;
  readonly server: McpServer;
  /** Aborts if a response of the server fails while it is read. */
  readonly broken: AbortSignal;
  endSession?(): Promise<void>;
}

/** A session at a remote server. Its methods reject with McpFailure, or with the signal's reason. */
export class McpConnection {
  readonly #open: OpenConnection;

  constructor(open: OpenConnection) {
    this.#open = open;
  }

  async listTools(signal: AbortSignal): Promise<McpTool[]> {
    const { tools } = await this.#request(signal, LIST_TIMEOUT_MS, (options) =>
      this.#open.client.listTools(undefined, { ...options, cacheMode: "bypass" }),
    );
    return tools.map(({ name, description, inputSchema, annotations }) => ({
      name,
      description,
      inputSchema: inputSchema as Fields,
      annotations: annotations as Fields | undefined,
    }));
  }

  /** Calls a tool. A failed tool also has a result, with `isError` true. */
  async callTool(name: string, input: Fields, signal: AbortSignal): Promise<McpResult> {
    const result = await this.#request(signal, CALL_TIMEOUT_MS, (options) =>
      this.#open.client.callTool({ name, arguments: { ...input } }, options),
    );
    return resultOf(result as Fields, this.#open.server);
  }

  /** Ends the session. If the server is slow, the session ends in the background. */
  async close(): Promise<void> {
    const late = new Promise<void>((resolve) => setTimeout(resolve, CLOSE_TIMEOUT_MS).unref());
    const { client, endSession } = this.#open;
    await Promise.race([endSession?.().catch(() => undefined), late]);
    await client.close().catch(() => undefined);
  }

  async #request<Result>(
    signal: AbortSignal,
    timeoutMs: number,
    send: (options: { signal: AbortSignal; timeout: number }) => Promise<Result>,
  ): Promise<Result> {
    const { broken, server } = this.#open;
    const either = AbortSignal.any([signal, broken]);
    try {
      return await unlessAborted(send({ signal: either, timeout: timeoutMs }), either);
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      throw failureOf(error, server);
    }
  }
}

function resultOf(result: Fields, server: McpServer): McpResult {
  const { content, structuredContent, isError } = result;
  const parts = Array.isArray(content) ? content.filter(isFields) : [];
  const texts = parts.flatMap(textOf);
  if (texts.length === 0 && isFields(structuredContent))
    texts.push(JSON.stringify(structuredContent));
  return {
    text: withoutSecrets(texts.join("\n"), server),
    images: parts.flatMap(imageOf).slice(0, MAX_IMAGES),
    isError: isError === true,
  };
}

function textOf({ type, text, uri, resource, mimeType }: Fields): string[] {
  if (type === "text") return typeof text === "string" ? [text] : [];
  if (type === "resource_link") return typeof uri === "string" ? [uri] : [];
  if (type === "resource" && isFields(resource)) {
    return typeof resource.text === "string" ? [resource.text] : [];
  }
  return type === "audio" ? [`[audio of type ${String(mimeType).slice(0, 100)}]`] : [];
}

function imageOf({ type, data, mimeType }: Fields): string[] {
  if (type !== "image" || typeof data !== "string" || typeof mimeType !== "string") return [];
  const isFit = IMAGE_TYPE.test(mimeType) && data.length <= MAX_IMAGE_CHARACTERS;
  return isFit ? [`data:${mimeType};base64,${data}`] : [];
}

/** Minimum length of a header value that counts as a secret. Shorter values appear in other texts by chance. */
const MIN_SECRET_CHARACTERS = 8;
const SCHEME = /^(?:Bearer|Basic|Token)\s+/i;

/** Returns the text without the secrets of the headers, because servers can quote their requests. */
function withoutSecrets(text: string, { headers }: McpServer): string {
  let clean = text;
  for (const value of Object.values(headers)) {
    const secret = value.replace(SCHEME, "");
    if (secret.length >= MIN_SECRET_CHARACTERS) clean = clean.replaceAll(secret, "[redacted]");
  }
  return clean;
}

function failureOf(error: unknown, server: McpServer): McpFailure {
  return new McpFailure(
    `The MCP server ${JSON.stringify(server.label)} ${whyOf(error, server)}.`,
    error,
  );
}

function whyOf(error: unknown, server: McpServer): string {
  const refusal = causeOf(error, (cause) => cause instanceof EgressRefused);
  if (refusal !== undefined) return `cannot be called: its address ${refusal.message}`;
  if (causeOf(error, (cause) => cause instanceof NameNotResolved))
    return "has a name that could not be resolved";
  if (causeOf(error, (cause) => cause instanceof AnswerTooLong))
    return "answers with more bytes than allowed";
  const status = statusOf(error);
  if (status !== undefined) return `answers with status ${status}`;
  const timeout = causeOf(
    error,
    ({ name, code }) => name === "TimeoutError" || code === "REQUEST_TIMEOUT",
  );
  if (timeout !== undefined) return "did not answer in time";
  const protocolError = causeOf(error, ({ name }) => name === "ProtocolError");
  if (protocolError === undefined) return "could not be reached, or does not speak the protocol";
  const message = withoutSecrets(protocolError.message, server).replace(/\s+/g, " ").trim();
  return `reports an error: ${message.slice(0, MAX_MESSAGE_CHARACTERS)}`;
}

const MAX_CAUSES = 8;

type Thrown = Error & { readonly code?: unknown; readonly status?: unknown };

function causeOf(error: unknown, matches: (current: Thrown) => boolean): Thrown | undefined {
  let current = error;
  for (let depth = 0; depth < MAX_CAUSES && current instanceof Error; depth++) {
    if (matches(current)) return current;
    current = current.cause ?? (current as { data?: { cause?: unknown } }).data?.cause;
  }
  return undefined;
}

function statusOf(error: unknown): number | undefined {
  const cause = causeOf(error, ({ status }) => typeof status === "number");
  return cause?.status as number | undefined;
}
