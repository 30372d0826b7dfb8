import { readFileSync } from "node:fs";
import { image } from "./image-heads.ts";

const USAGE = { prompt_tokens: 10, completion_tokens: 20, total_tokens: 30 };
const MP3 = readFileSync(`${import.meta.dir}/../fixtures/audio/a.mp3`);
const PNG = Buffer.from(image("png", 64, 64)).toString("base64");

export type SayingProvider = ReturnType<typeof startSayingProvider>;

/** A provider of OpenAI's wire that says what a test wants, streamed in pieces of `size` characters. */
export function startSayingProvider() {
  const state = {
    says: "Hello.",
    size: 7,
    message: {} as Record<string, unknown>,
    deltas: undefined as undefined | object[],
    /** Its streams end without a finish reason. */
    breaksOff: false,
    /** A transcript. */
    heard: { text: "" } as Record<string, unknown>,
    /** What its moderation flags; undefined: it fails with 500. */
    flags: "harm" as string | undefined,
    /** Bodies of requests for moderation, and of all others. */
    moderated: [] as { model: string; input: string[] }[],
    calls: [] as Record<string, unknown>[],
  };
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    async fetch(request) {
      if (request.url.endsWith("/transcriptions")) {
        state.calls.push(Object.fromEntries(await request.formData()));
        return Response.json(state.heard);
      }
      const body = (await request.json()) as Record<string, unknown>;
      if (request.url.endsWith("/moderations")) {
        const asked = body as { model: string; input: string[] };
        state.moderated.push(asked);
        const { flags } = state;
        if (flags === undefined) return new Response("{}", { status: 500 });
        const results = asked.input.map((text) => ({ flagged: text.includes(flags) }));
        return Response.json({ id: "m", model: asked.model, results });
      }
      state.calls.push(body);
      if (request.url.endsWith("/speech")) return new Response(MP3);
      if (request.url.endsWith("/images/generations")) {
        const data = [{ b64_json: PNG, revised_prompt: state.says }];
        return Response.json({ created: 1, data });
      }
      if (request.url.endsWith("/embeddings")) {
        const { input } = body as { input: readonly string[] };
        const data = input.map((_, index) => ({ object: "embedding", index, embedding: [0.5] }));
        return Response.json({
          object: "list",
          data,
          usage: { prompt_tokens: 3, total_tokens: 3 },
        });
      }
      const head = { id: "c", created: 1, model: body.model };
      if (body.stream !== true) {
        const message = { role: "assistant", content: state.says, ...state.message };
        const choices = [{ index: 0, message, finish_reason: "stop" }];
        return Response.json({ ...head, object: "chat.completion", choices, usage: USAGE });
      }
      const deltas =
        state.deltas ??
        Array.from({ length: Math.ceil(state.says.length / state.size) }, (_, at) => ({
          content: state.says.slice(at * state.size, (at + 1) * state.size),
        }));
      const chunk = (choice: object, usage: object | null = null) =>
        `data: ${JSON.stringify({ ...head, object: "chat.completion.chunk", choices: [choice], usage })}\n\n`;
      const text = [
        ...deltas.map((delta) => chunk({ index: 0, delta, finish_reason: null })),
        ...(state.breaksOff
          ? []
          : [chunk({ index: 0, delta: {}, finish_reason: "stop" }, USAGE), "data: [DONE]\n\n"]),
      ];
      return new Response(text.join(""), { headers: { "content-type": "text/event-stream" } });
    },
  });
  return Object.assign(state, {
    baseUrl: `http://127.0.0.1:${server.port}/v1`,
    stop: () => server.stop(true),
  });
}

/** The whole text that a client reads from a stream, and its error. */
export function readEvents(path: string, text: string) {
  let said = "";
  let failed = false;
  for (const line of text.split("\n")) {
    if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
    const event = JSON.parse(line.slice(6)) as Record<string, unknown>;
    if ("error" in event && event.error !== null) failed = true;
    if (path.endsWith("completions")) {
      const [choice] = (event.choices ?? []) as { delta: { content?: string } }[];
      said += choice?.delta.content ?? "";
    } else if (event.type === "content_block_delta") {
      said += (event.delta as { text?: string }).text ?? "";
    } else if (event.type === "response.output_text.delta") said += event.delta as string;
    else if (event.type === "response.failed") failed = true;
  }
  return { said, failed };
}
