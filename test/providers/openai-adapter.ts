import { ByteBuffer } from "../../src/lib/byte-buffer.ts";
import { type Clock, systemClock } from "../../src/lib/clock.ts";
import { type ChatRequestFields, ShortBody } from "../../src/providers/chat-body.ts";
import {
  type ChatAnswer,
  type ChatCall,
  type ChatProvider,
  nextPiece,
  type PieceReader,
  ProviderFailure,
} from "../../src/providers/interface.ts";
import { createOpenAiProvider } from "../../src/providers/openai/chat/chat-provider.ts";
import type { AnswerThread } from "../../src/providers/thread-work.ts";
import { streamOf } from "../../src/providers/transport/call-failures.ts";
import type {
  HttpClient,
  ProviderRequest,
  ProviderResponse,
} from "../../src/providers/transport/provider-response.ts";

export const API_KEY = "sk-secret-0123456789";

/** An adapter for tests, of type `openai-compatible` unless told otherwise. */
export function adapter(
  baseUrl: string,
  options: {
    type?: string;
    apiKey?: string | null;
    clock?: Clock;
    connectTimeoutMs?: number;
    /** Answers in place of a server. */
    answer?(url: string, request: ProviderRequest): ProviderResponse;
    httpClient?: HttpClient;
    workThread?: AnswerThread;
  } = {},
): ChatProvider {
  const { type = "openai-compatible", apiKey = API_KEY, connectTimeoutMs = 5_000 } = options;
  const { clock = systemClock, answer, workThread } = options;
  const httpClient = answer === undefined ? options.httpClient : answeredBy(answer);
  return createOpenAiProvider(
    { id: "p", type, baseUrl, apiKey: apiKey ?? undefined, connectTimeoutMs },
    { clock, ...(httpClient !== undefined && { httpClient }), ...(workThread && { workThread }) },
  );
}

function answeredBy(
  answer: (url: string, request: ProviderRequest) => ProviderResponse,
): HttpClient {
  return { send: (url, request, receiver) => receiver.responded(answer(url, request)) };
}

export function callOf(
  model: string,
  {
    body,
    ...options
  }: Partial<Omit<ChatCall, "body">> & { readonly body?: ChatRequestFields } = {},
): ChatCall {
  const stream = options.stream ?? false;
  return {
    model,
    stream,
    requestId: "req_1",
    signal: new AbortController().signal,
    ...options,
    body: new ShortBody({
      model,
      messages: [{ role: "user", content: "hello" }],
      ...(stream ? { stream: true, stream_options: { include_usage: true } } : {}),
      ...body,
    }),
  };
}

/** The failure of a call that must fail. */
export async function failureOf(answer: Promise<ChatAnswer>): Promise<ProviderFailure> {
  try {
    await answer;
  } catch (error) {
    if (error instanceof ProviderFailure) return error;
    throw error;
  }
  throw new Error("the call did not fail");
}

/** The provider's bytes of a streamed answer. */
export function bytesIn(answer: ChatAnswer): PieceReader {
  const options = { id: "x", model: "m", hidesReasoning: false, nowSeconds: 0 };
  return streamOf(answer).passThrough!(options, new ByteBuffer()).reader;
}

export async function allBytes(answer: ChatAnswer): Promise<Buffer> {
  const reader = bytesIn(answer);
  const pieces: Uint8Array[] = [];
  for (;;) {
    const piece = await nextPiece(reader);
    if (piece === undefined) return Buffer.concat(pieces);
    pieces.push(piece);
  }
}

/** All of a streamed answer as text. */
export async function textOf(answer: ChatAnswer): Promise<string> {
  return (await allBytes(answer)).toString();
}

/** The parsed data of each event before `[DONE]`, which must be there. */
export function eventsOf(text: string): Record<string, never>[] {
  const data = text
    .split("\n\n")
    .filter((frame) => frame !== "")
    .map((frame) => frame.replace(/^data: /, ""));
  if (data.pop() !== "[DONE]") throw new Error("the stream does not end with [DONE]");
  return data.map((one) => JSON.parse(one));
}

/** Answers every request with what `answer` returns. */
export function serve(answer: (request: Request) => Response | Promise<Response>) {
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    reusePort: false,
    development: false,
    idleTimeout: 0,
    fetch: answer,
  });
  return {
    baseUrl: `http://127.0.0.1:${server.port}/v1`,
    port: server.port ?? 0,
    [Symbol.asyncDispose]: () => server.stop(true),
  };
}
