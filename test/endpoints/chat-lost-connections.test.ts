import { afterAll, beforeAll, expect, test } from "bun:test";
import {
  answerOf,
  type RawConnection,
  send,
  startRawServer,
} from "../providers/http-raw-server.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOf, expectBooksClosed } from "../support/ledger-checks.ts";

/** Far more at once than an endpoint's budget of retries allows in ten seconds. */
const CALLS = 40;
const CHUNK = {
  id: "c",
  object: "chat.completion.chunk",
  created: 1,
  model: "m",
  choices: [{ index: 0, delta: { role: "assistant", content: "hi" }, finish_reason: "stop" }],
  usage: { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 },
};
const { delta: message, ...ending } = CHUNK.choices[0]!;
const COMPLETION = { ...CHUNK, object: "chat.completion", choices: [{ ...ending, message }] };

const used = new WeakSet<RawConnection>();
/** A server that closes a connection silently behind its first answer, when the next request has come. */
const server = startRawServer((connection, request) => {
  if (used.has(connection)) {
    connection.socket.terminate();
    return;
  }
  used.add(connection);
  const isStream = request.includes('"stream":true');
  const type = isStream ? "text/event-stream" : "application/json";
  const body = isStream
    ? `data: ${JSON.stringify(CHUNK)}\n\ndata: [DONE]\n\n`
    : JSON.stringify(COMPLETION);
  // Late, so that calls that are made at once are under way at once.
  setTimeout(() => send(connection, answerOf(body, `content-type: ${type}\r\n`)), 20);
});

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway({
    configuration: {
      providers: [
        {
          id: "raw",
          type: "openai-compatible",
          base_url: server.url.replace(/\/x.*/, ""),
          api_key: "k",
        },
      ],
      models: ["whole", "streamed"].map((slug) => ({
        id: `test/${slug}`,
        category: "chat",
        context_length: 1_000,
        max_output_tokens: 10,
        input_cost_per_token: 1e-6,
        output_cost_per_token: 1e-6,
        capabilities: ["streaming"],
        endpoints: [{ provider: "raw", model: slug }],
      })),
    },
  });
});
afterAll(async () => {
  await gateway.stop();
  await server[Symbol.asyncDispose]();
});

test.each([
  ["whole", false],
  ["streamed", true],
])(
  "calls whose used connections turn out dead all at once are answered over new ones: %s",
  async (slug, stream) => {
    const ask = async () => {
      const response = await gateway.request("POST", "/v1/chat/completions", {
        model: `test/${slug}`,
        messages: [{ role: "user", content: "hello" }],
        stream,
      });
      const isWhole = (await response.text()).includes('"hi"');
      const id = response.headers.get("x-gateway-request-id")!;
      return `${response.status} ${isWhole} ${(await billOf(gateway, id))?.completionTokens}`;
    };
    const round = () => Promise.all(Array.from({ length: CALLS }, ask));
    for (let time = 0; time < 3; time++) {
      expect(await round()).toEqual(Array.from({ length: CALLS }, () => "200 true 1"));
    }
    await expectBooksClosed(gateway);
  },
);
