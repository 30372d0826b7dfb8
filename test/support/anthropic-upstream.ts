import { startTestGateway, type TestGateway } from "./gateway.ts";

export interface SeenRequest {
  readonly path: string;
  readonly headers: Headers;
  readonly body: Record<string, unknown>;
}

type Answer = (request: SeenRequest) => Response | Promise<Response>;

export const UPSTREAM_KEY = "sk-ant-api03-key-of-the-test-upstream";

/** A gateway before a server that answers in Anthropic's name, as each test says. */
export interface AnthropicGateway {
  readonly gateway: TestGateway;
  readonly upstreamUrl: string;
  /** What was asked of `/messages`, in order. */
  readonly seen: SeenRequest[];
  answerWith(answer: Answer): void;
  chat(body: Record<string, unknown>): Promise<Response>;
  stop(): Promise<void>;
}

/** Of the built-in catalogue, each with another way to think. */
export const ADAPTIVE = "anthropic/claude-opus-5";
export const BUDGET = "anthropic/claude-haiku-4-5";

export async function startAnthropicGateway(): Promise<AnthropicGateway> {
  let answer: Answer = () => new Response("nothing to say", { status: 500 });
  const seen: SeenRequest[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      const { pathname, search } = new URL(request.url);
      if (request.method === "GET") {
        return Response.json(MODEL_LIST);
      }
      const body = (await request.json()) as Record<string, unknown>;
      const one = { path: pathname + search, headers: request.headers, body };
      seen.push(one);
      return answer(one);
    },
  });
  const upstreamUrl = `http://127.0.0.1:${server.port}/v1`;
  const gateway = await startTestGateway({
    // Without a fee, so that a charge is what the provider bills.
    plan: "enterprise",
    configuration: {
      providers: [
        { id: "anthropic", type: "anthropic", base_url: upstreamUrl, api_key: UPSTREAM_KEY },
      ],
    },
  });
  return {
    gateway,
    upstreamUrl,
    seen,
    answerWith: (next) => {
      answer = next;
    },
    chat: (body) => gateway.request("POST", "/v1/chat/completions", body),
    async stop() {
      await gateway.stop();
      await server.stop(true);
    },
  };
}

/** In the form of https://platform.claude.com/docs/en/api/models-list; the first is in no list of prices. */
const MODEL_LIST = {
  data: [
    {
      type: "model",
      id: "claude-unheard-of",
      display_name: "Claude Unheard Of",
      created_at: "2026-01-01T00:00:00Z",
      max_input_tokens: 300_000,
      max_tokens: 50_000,
    },
    {
      type: "model",
      id: "claude-opus-5",
      display_name: "Claude Opus 5",
      created_at: "2026-06-01T00:00:00Z",
      max_input_tokens: 1_000_000,
      max_tokens: 128_000,
    },
  ],
  has_more: false,
  first_id: "claude-unheard-of",
  last_id: "claude-opus-5",
};

/** An answer in pieces of those lengths, or of single bytes. */
export function inPieces(text: string, length: () => number = () => 1): Response {
  const bytes = new TextEncoder().encode(text);
  let at = 0;
  const body = new ReadableStream({
    async pull(controller) {
      await Bun.sleep(0);
      const end = Math.min(at + Math.max(1, length()), bytes.length);
      if (end > at) controller.enqueue(bytes.slice(at, end));
      at = end;
      if (at === bytes.length) controller.close();
    },
  });
  return new Response(body, { headers: { "content-type": "text/event-stream; charset=utf-8" } });
}
