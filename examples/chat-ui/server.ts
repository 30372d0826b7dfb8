/* Serves the page and forwards its chats to the gateway. The key stays on this server. */
import OpenAI from "openai";
import page from "./index.html";

const client = new OpenAI({
  baseURL: `${process.env.GATEWAY_URL ?? "http://127.0.0.1:3000"}/v1`,
  apiKey: process.env.SECRET_KEY,
});
const model = process.env.MODEL ?? "sandbox/chat";

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: Number(process.env.CHAT_PORT ?? 8080),
  routes: {
    "/": page,
    "/chat": {
      async POST(request) {
        const { messages } = await request.json();
        const stream = await client.chat.completions.create(
          { model, messages, stream: true },
          { signal: request.signal },
        );
        const text = stream
          .toReadableStream()
          .pipeThrough(new TextDecoderStream())
          .pipeThrough(deltas());
        return new Response(text.pipeThrough(new TextEncoderStream()), {
          headers: { "content-type": "text/plain; charset=utf-8" },
        });
      },
    },
  },
  error: (error) => new Response(error.message, { status: 502 }),
});
console.log(`Open ${server.url.href}`);

/** Turns lines of JSON, one for each chunk of a completion, into the text of the answer. */
function deltas(): TransformStream<string, string> {
  let rest = "";
  return new TransformStream({
    transform(piece, controller) {
      const lines = (rest + piece).split("\n");
      rest = lines.pop()!;
      for (const line of lines) {
        const chunk: OpenAI.ChatCompletionChunk = JSON.parse(line);
        controller.enqueue(chunk.choices[0]?.delta.content ?? "");
      }
    },
  });
}
