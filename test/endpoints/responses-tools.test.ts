import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { assertOpenResponses, responseEvents } from "../support/open-responses.ts";
import { until } from "../support/until.ts";
import type { Behaviour } from "../upstream/behaviours.ts";

// biome-ignore lint/suspicious/noExplicitAny: what is compared with what is expected
type Json = Record<string, any>;

const SEARCH_NANO = 2_500_000n;
const WITH_FEE = (SEARCH_NANO * 104n) / 100n;

let gateway: ChatGateway;
let storeId: string;
beforeAll(async () => {
  gateway = await startChatGateway({ environment: { GATEWAY_FILE_SEARCH_COST_USD: "0.0025" } });
  storeId = await storeOf({
    "harbour.txt": "The harbour opens at six in the morning.",
    "ferry.txt": "The last ferry leaves the harbour at eleven.",
  });
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

async function storeOf(texts: Readonly<Record<string, string>>): Promise<string> {
  const ids: string[] = [];
  for (const [filename, text] of Object.entries(texts)) {
    const form = new FormData();
    form.set("purpose", "assistants");
    form.set("file", new File([text], filename));
    const response = await fetch(`${gateway.baseUrl}/v1/files`, {
      method: "POST",
      headers: { authorization: `Bearer ${gateway.secretKey}` },
      body: form,
    });
    ids.push(((await response.json()) as Json).id);
  }
  const made = await gateway.request("POST", "/v1/vector_stores", { file_ids: ids });
  const { id } = (await made.json()) as Json;
  await until("the files are indexed", async () => {
    const store = await gateway.request("GET", `/v1/vector_stores/${id}`);
    return ((await store.json()) as Json).file_counts.completed === ids.length;
  });
  return id;
}

const respond = (body: Json, init?: RequestInit & { key?: string }) => {
  const tools = [{ type: "file_search", vector_store_ids: [storeId] }];
  return gateway.request("POST", "/v1/responses", { input: "hello", tools, ...body }, init);
};

async function wholeOf(response: Response): Promise<Json> {
  const body = (await response.json()) as Json;
  expect(response.status, JSON.stringify(body)).toBe(200);
  assertOpenResponses("ResponseResource", body);
  return body;
}

const search = (query: string, ...more: Json[]): Behaviour => ({
  do: "complete",
  toolCalls: [{ name: "file_search", arguments: JSON.stringify({ query }) }, ...(more as never[])],
});
const say = (content: string): Behaviour => ({ do: "complete", content });

/** The bodies that the upstream was sent for a model, in order. */
const sentTo = (model: string): Json[] =>
  gateway.upstream.served
    .filter((served) => served.model === model)
    .map(({ requestBody }) => requestBody as Json);

describe("a response whose tools the gateway runs", () => {
  test("searches, answers from what was found, cites it, and is one charge with the sum", async () => {
    const slug = gateway.modelThat(
      search("when does the harbour open"),
      say("At six (harbour.txt)."),
    );
    const response = await respond({ model: `test/${slug}` });
    const body = await wholeOf(response);
    const [call, message] = body.output as Json[];
    expect(call).toMatchObject({
      type: "file_search_call",
      status: "completed",
      queries: ["when does the harbour open"],
      results: null,
    });
    expect(message!.content[0]).toMatchObject({
      text: "At six (harbour.txt).",
      annotations: [{ type: "file_citation", filename: "harbour.txt", index: 19 }],
    });
    const [first, second] = sentTo(slug);
    expect(first!.tools[0].function.name).toBe("file_search");
    expect(second!.messages.slice(1)).toMatchObject([
      { role: "assistant", content: null, tool_calls: [{ type: "function" }] },
      { role: "tool", content: expect.stringContaining("The harbour opens at six") },
    ]);
    const usages = gateway.upstream.served
      .filter(({ model }) => model === slug)
      .map(({ usageReported }) => usageReported as Json);
    const bill = await billOfResponse(gateway, response);
    expect(bill).toMatchObject({
      promptTokens: usages[0]!.prompt_tokens + usages[1]!.prompt_tokens,
      completionTokens: usages[0]!.completion_tokens + usages[1]!.completion_tokens,
      quantities: { file_searches: 1 },
      estimated: false,
    });
    expect(bill.chargeNano).toBeGreaterThan(WITH_FEE);
    expect(body.usage.cost).toBe(Number(bill.chargeNano) / 1e9);
    expect(Number(response.headers.get("x-gateway-cost"))).toBe(body.usage.cost);
  });

  test("streams each run as it goes, in the published events", async () => {
    const slug = gateway.modelThat(search("ferry"), say("At eleven: ferry.txt"));
    const response = await respond({
      model: `test/${slug}`,
      stream: true,
      include: ["file_search_call.results"],
    });
    const events = responseEvents(await response.text());
    expect(events.map(({ type }) => type).slice(0, 8)).toEqual([
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.file_search_call.in_progress",
      "response.file_search_call.searching",
      "response.file_search_call.completed",
      "response.output_item.done",
      "response.output_item.added",
    ]);
    expect(events.map(({ type }) => type)).toContain("response.output_text.annotation.added");
    const { response: last } = events.at(-1) as Json;
    assertOpenResponses("ResponseResource", last);
    expect(last.output[0].results[0]).toMatchObject({ filename: "ferry.txt" });
    const bill = await billOfResponse(gateway, response);
    expect(last.usage.cost).toBe(Number(bill.chargeNano) / 1e9);
  });
});
