/** A server with OpenAI's interface for tests: it lists one model and answers each chat with the same text. */
export interface StubProvider {
  /** With /v1. */
  readonly url: string;
  /** The chats that arrived, oldest first. */
  readonly requests: {
    readonly authorization: string | null;
    readonly body: Record<string, unknown>;
    /** Time of arrival, in milliseconds since the epoch. */
    readonly atMs: number;
  }[];
  /** Status of the answers to chats. */
  status: number;
  /** True if every request is answered with 401. */
  rejectsKeys: boolean;
  /** Milliseconds until the list of models is answered. */
  listDelayMs: number;
  stop(): void;
}

export function startStubProvider(): StubProvider {
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      if (stub.rejectsKeys) {
        return Response.json(
          { error: { message: "Incorrect API key provided." } },
          { status: 401 },
        );
      }
      if (new URL(request.url).pathname === "/v1/models") {
        await Bun.sleep(stub.listDelayMs);
        return Response.json({ object: "list", data: [{ id: "stub-1", object: "model" }] });
      }
      if (request.method !== "POST") return new Response("not found", { status: 404 });
      const body = (await request.json()) as Record<string, unknown>;
      const authorization = request.headers.get("authorization");
      stub.requests.push({ authorization, body, atMs: Date.now() });
      if (stub.status !== 200)
        return Response.json({ error: { message: "down" } }, { status: stub.status });
      return Response.json({
        id: "chatcmpl-1",
        object: "chat.completion",
        created: 1,
        model: body.model,
        choices: [
          { index: 0, message: { role: "assistant", content: "Hello." }, finish_reason: "stop" },
        ],
        usage: { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 },
      });
    },
  });
  const stub: StubProvider = {
    url: `http://127.0.0.1:${server.port}/v1`,
    requests: [],
    status: 200,
    rejectsKeys: false,
    listDelayMs: 0,
    stop: () => void server.stop(true),
  };
  return stub;
}
