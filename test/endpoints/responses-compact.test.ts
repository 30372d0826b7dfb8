import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { billOf, expectBooksClosed } from "../support/ledger-checks.ts";
import { assertOpenResponses } from "../support/open-responses.ts";

type Fields = Record<string, unknown>;

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const SUMMARY = "They want a boat, red, by Friday.";
const SUMMARISES = { do: "complete", content: SUMMARY } as const;
const post = (path: string, body: Fields) => gateway.request("POST", `/v1/responses${path}`, body);
const sent = (slug: string) =>
  gateway.upstream.servedOf(slug).at(-1)!.requestBody! as {
    messages: { role: string; content: unknown }[];
    tools?: unknown;
  };
const said = (role: string, content: string) => ({ role, content });

async function ok(path: string, body: Fields): Promise<Fields> {
  const response = await post(path, body);
  const text = await response.text();
  expect(response.status, text).toBe(200);
  return JSON.parse(text) as Fields;
}

async function expectInvalid(response: Response, param: string): Promise<void> {
  expect(await response.json()).toMatchObject({ error: { code: "invalid_body", param } });
  expect(response.status).toBe(400);
}

describe("a compaction", () => {
  test("is one item that any model goes on from, and is charged", async () => {
    const slug = gateway.modelThat(SUMMARISES, SUMMARISES, { do: "complete", content: "Aye." });
    const model = `test/${slug}`;
    const input = [
      { role: "user", content: "A boat." },
      { type: "reasoning", summary: [{ type: "summary_text", text: "A boat?" }] },
      { type: "function_call", call_id: "c", name: "look", arguments: '{"at":"sea"}' },
      { type: "function_call_output", call_id: "c", output: "red ones" },
      { role: "assistant", content: "Red." },
    ];
    const instructions = "You build boats.";
    const tools = [{ type: "function", name: "look", parameters: { type: "object" } }];
    const compacted = await ok("/compact", { model, input, instructions, tools });
    assertOpenResponses("CompactResource", compacted);
    const { messages, tools: offered } = sent(slug);
    expect(offered).toBeUndefined();
    expect(messages.slice(0, 2)).toEqual([said("system", instructions), said("user", "A boat.")]);
    expect(messages.slice(2).map(({ role }) => role)).toEqual([
      "assistant",
      "user",
      "assistant",
      "user",
    ]);
    expect(JSON.stringify(messages)).toContain('Called look: {\\"at\\":\\"sea\\"}');
    expect(JSON.stringify(messages)).toContain("red ones");
    const bill = await billOf(gateway, String(compacted.id).replace("resp_", "req_"));
    expect(bill).toMatchObject({
      status: 200,
      promptTokens: (compacted.usage as Fields).input_tokens,
    });
    const output = compacted.output as Fields[];
    expect(output).toMatchObject([{ type: "compaction" }]);
    const next = [...output, { role: "user", content: "Well?" }];
    const answered = await ok("", { model: `test/${slug}`, input: next });
    expect(sent(slug).messages).toMatchObject([
      { role: "user", content: expect.stringContaining(SUMMARY) },
      said("user", "Well?"),
    ]);
    const items = await gateway.request(
      "GET",
      `/v1/responses/${answered.id}/input_items?order=asc`,
    );
    expect(((await items.json()) as { data: Fields[] }).data[0]).toEqual(output[0]!);
    await ok("", { model, input: "And?", previous_response_id: answered.id });
    expect(JSON.stringify(sent(slug).messages)).toContain(SUMMARY);
  });

  test("takes the stored conversation before it, and is not stored itself", async () => {
    const slug = gateway.modelThat({ do: "complete", content: "Red." }, SUMMARISES);
    const model = `test/${slug}`;
    const { id } = await ok("", { model, input: "A boat." });
    const compacted = await ok("/compact", { model, previous_response_id: id });
    expect(sent(slug).messages.slice(0, 2)).toEqual([
      said("user", "A boat."),
      said("assistant", "Red."),
    ]);
    expect((await gateway.request("GET", `/v1/responses/${compacted.id}`)).status).toBe(404);
  });

  test("is the same of a conversation that is too long for the event loop", async () => {
    const slug = gateway.modelThat(SUMMARISES);
    const model = `test/${slug}`;
    const long = Array.from({ length: 40 }, () => ({ role: "user", content: "word ".repeat(600) }));
    const call = { type: "function_call", call_id: "c", name: "look", arguments: "{}" };
    const output = { type: "function_call_output", call_id: "c", output: "nothing" };
    const compacted = await ok("/compact", { model, input: [...long, call, output] });
    assertOpenResponses("CompactResource", compacted);
    const text = JSON.stringify(sent(slug).messages);
    expect(text).toContain("Called look: {}");
    expect(text).toContain("Summarise the conversation");
    const { id } = await ok("", { model, input: long });
    await ok("/compact", { model, previous_response_id: id });
    expect(JSON.stringify(sent(slug).messages)).toContain("Summarise the conversation");
  });

  test("has one result for one idempotency key, which is not that of a response", async () => {
    const slug = gateway.modelThat(SUMMARISES);
    const metadata = { idempotency_key: crypto.randomUUID() };
    const body = { model: `test/${slug}`, input: "A boat.", metadata };
    const first = await ok("/compact", body);
    expect(await ok("/compact", body)).toEqual(first);
    expect((await post("", body)).status).toBe(409);
    expect(gateway.upstream.servedOf(slug)).toHaveLength(1);
  });

  test("is refused where there is nothing, or what another has compacted", async () => {
    const model = `test/${gateway.modelThat(SUMMARISES)}`;
    await expectInvalid(await post("/compact", { model, input: [] }), "input");
    const foreign = { type: "compaction", encrypted_content: "gAAAAA" };
    const param = "input.0.encrypted_content";
    await expectInvalid(await post("", { model, input: [foreign] }), param);
    await expectInvalid(await post("/compact", { model, input: [foreign] }), param);
  });

  test("fails, and costs nothing, where the model says nothing", async () => {
    const model = `test/${gateway.modelThat({ do: "complete", content: "" })}`;
    const response = await post("/compact", { model, input: "A boat." });
    expect(response.status).toBe(502);
    expect(await billOf(gateway, response.headers.get("x-gateway-request-id")!)).toBeUndefined();
  });
});
