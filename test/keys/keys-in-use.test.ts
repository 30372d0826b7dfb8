import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connect } from "node:net";
import { type ChatGateway, chatBody, startChatGateway } from "../support/chat-gateway.ts";
import { until } from "../support/until.ts";

/** Longer than a key that was asked for is taken to be as it was. */
const SLOW_BODY_MS = 400;

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());

interface Created {
  readonly id: string;
  readonly key: string;
}

async function createKey(): Promise<Created> {
  const response = await gateway.request(
    "POST",
    "/v1/keys",
    { name: crypto.randomUUID() },
    { key: gateway.managementKey },
  );
  return (await response.json()) as Created;
}

async function change(id: string, settings: Record<string, unknown>): Promise<void> {
  const response = await gateway.request("PATCH", `/v1/keys/${id}`, settings, {
    key: gateway.managementKey,
  });
  expect(response.status).toBe(200);
}

/** Sends the head and the first bytes, does this, and sends the rest: what is answered then. */
async function withSlowBody(key: string, body: string, meanwhile: () => Promise<void>) {
  const port = Number(new URL(gateway.baseUrl).port);
  const socket = connect(port, "127.0.0.1");
  let answer = "";
  socket.on("data", (data) => {
    answer += data;
  });
  const ended = new Promise((resolve) => socket.on("close", resolve));
  const head = [
    "POST /v1/chat/completions HTTP/1.1",
    "host: gateway.test",
    "connection: close",
    `authorization: Bearer ${key}`,
    "content-type: application/json",
    `content-length: ${body.length}`,
  ];
  socket.write(`${head.join("\r\n")}\r\n\r\n${body.slice(0, 10)}`);
  await Bun.sleep(SLOW_BODY_MS);
  await meanwhile();
  socket.write(body.slice(10));
  await ended;
  return answer;
}

describe.each<[string, Record<string, unknown>, string]>([
  ["switched off", { is_active: false }, "key_inactive"],
  ["kept to other models", { allowed_models: ["test/none"] }, "model_not_allowed"],
  ["kept to other scopes", { scopes: ["embeddings"] }, "missing_scope"],
])("a key that is %s", (_name, settings, code) => {
  test("while the body of its request comes, is refused with that body", async () => {
    const slug = gateway.modelThat({ do: "complete" });
    const { id, key } = await createKey();
    const answer = await withSlowBody(key, JSON.stringify(chatBody(slug)), () =>
      change(id, settings),
    );
    expect(answer).toContain(`"${code}"`);
    expect(gateway.upstream.served.some(({ model }) => model === slug)).toBeFalse();
  });

  test("while its request waits for another of the same idempotency key, is refused", async () => {
    const slug = gateway.modelThat({ do: "error", status: 400, firstDelayMs: 1_500 });
    const { id, key } = await createKey();
    const init = { key, headers: { "idempotency-key": crypto.randomUUID() } };
    const calls = () => gateway.upstream.servedOf(slug).length;
    const first = gateway.chat(slug, {}, init);
    await until("the first call runs", () => calls() === 1);
    const second = gateway.chat(slug, {}, init);
    await change(id, settings);
    expect((await first).status).toBe(400);
    expect(await (await second).text()).toContain(`"${code}"`);
    expect(calls()).toBe(1);
  });
});

test("a key that does not change is taken with a slow body", async () => {
  const { key } = await createKey();
  const body = JSON.stringify(chatBody(gateway.modelThat({ do: "complete" })));
  expect(await withSlowBody(key, body, async () => {})).toStartWith("HTTP/1.1 200");
});
