import { afterAll, beforeAll, expect, test } from "bun:test";
import { connect, createServer, type Server } from "node:net";
import { answerOf, type RawServer, send, startRawServer } from "../providers/http-raw-server.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOfResponse, expectBooksClosed, logLineOf } from "../support/ledger-checks.ts";

const COMPLETION = {
  id: "c",
  object: "chat.completion",
  created: 1,
  model: "m",
  choices: [{ index: 0, message: { role: "assistant", content: "hi" }, finish_reason: "stop" }],
  usage: { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 },
};

let expired: RawServer;
let sound: RawServer;
let relay: Server;
let connections = 0;
let gateway: TestGateway;
beforeAll(async () => {
  const answer = answerOf(JSON.stringify(COMPLETION), "content-type: application/json\r\n");
  expired = startRawServer((connection) => send(connection, answer), undefined, "expired");
  sound = startRawServer((connection) => send(connection, answer));
  relay = createServer((client) => {
    connections++;
    const server = connect(Number(new URL(expired.url).port), "127.0.0.1");
    client.pipe(server).pipe(client);
    client.on("error", () => server.destroy());
    server.on("error", () => client.destroy());
  });
  await new Promise<void>((resolve) => relay.listen(0, "127.0.0.1", resolve));
  const { port } = relay.address() as { port: number };
  const provider = { type: "openai-compatible", api_key: "sk-upstream-0123456789" };
  const endpoints = { alone: ["expired"], both: ["expired", "sound"] };
  gateway = await startTestGateway({
    configuration: {
      providers: [
        { ...provider, id: "expired", base_url: `https://127.0.0.1:${port}/v1` },
        { ...provider, id: "sound", base_url: sound.url.replace(/\/x.*/, "") },
      ],
      models: Object.entries(endpoints).map(([slug, providers]) => ({
        id: `test/${slug}`,
        category: "chat",
        context_length: 1_000,
        max_output_tokens: 10,
        input_cost_per_token: 1e-6,
        output_cost_per_token: 1e-6,
        capabilities: ["streaming"],
        endpoints: providers.map((id) => ({ provider: id, model: slug })),
      })),
    },
  });
});
afterAll(async () => {
  await gateway.stop();
  relay.close();
  await expired[Symbol.asyncDispose]();
  await sound[Symbol.asyncDispose]();
});

const ask = (slug: string, stream: boolean) =>
  gateway.request("POST", "/v1/chat/completions", {
    model: `test/${slug}`,
    messages: [{ role: "user", content: "hello" }],
    stream,
  });

test.each([false, true])(
  "an endpoint whose certificate is refused is 502, tried once, named in the log (streamed: %p)",
  async (stream) => {
    const before = connections;
    const response = await ask("alone", stream);
    const id = response.headers.get("x-gateway-request-id")!;
    await expectError(response, 502, "provider_error");
    expect(connections - before).toBe(1);
    await logLineOf(gateway, id);
    const lines = gateway.logLines.filter((line) => line.includes(id)).join("");
    expect(lines).toContain("the server's certificate is not accepted: ");
    expect(expired.connections.filter((one) => one.received !== "")).toEqual([]);
    await expectBooksClosed(gateway);
  },
);

test("another endpoint of the model answers", async () => {
  const response = await ask("both", false);
  expect(response.status).toBe(200);
  expect(response.headers.get("x-gateway-provider")).toBe("sound");
  expect(await billOfResponse(gateway, response)).toMatchObject({ provider: "sound" });
  await expectBooksClosed(gateway);
});
