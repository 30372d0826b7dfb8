import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOf, billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { responseEvents } from "../support/open-responses.ts";
import { until } from "../support/until.ts";
import { responsesRecordings } from "../upstream/responses-recordings.ts";

/** Tools that OpenAI runs for its own models, behind the whole gateway. */

type Fields = Record<string, unknown>;

const MODEL = "openai/gpt-4o-mini";
const CODEX = "openai/gpt-5.1-codex-mini";
/** Of the catalogue. */
const SEARCH_NANO = 10_000_000n;
const INPUT_NANO = 150n;
const OUTPUT_NANO = 600n;
const RECORDED = responsesRecordings().find(
  ({ name, stream }) => name.includes("web-search") && stream,
)!;

let gateway: TestGateway;
let asked: { path: string; body: Fields }[] = [];
let answer: () => Response | Promise<Response>;
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  idleTimeout: 0,
  async fetch(request) {
    const { pathname } = new URL(request.url);
    if (request.method !== "POST") return new Response(null, { status: 404 });
    asked.push({ path: pathname, body: (await request.json()) as Fields });
    return answer();
  },
});

beforeAll(async () => {
  const baseUrl = `http://127.0.0.1:${server.port}`;
  const configuration = {
    providers: [
      { id: "openai", type: "openai", base_url: baseUrl, api_key: "sk-test" },
      { id: "other", type: "openai-compatible", base_url: baseUrl, api_key: "sk-other" },
    ],
    models: [
      {
        id: "test/other",
        name: "Other",
        category: "chat",
        context_length: 8_000,
        max_output_tokens: 500,
        input_cost_per_token: 1e-6,
        output_cost_per_token: 1e-6,
        endpoints: [{ provider: "other", model: "other" }],
      },
    ],
  };
  gateway = await startTestGateway({ configuration, plan: "enterprise" });
});
beforeEach(() => {
  asked = [];
  answer = () => Response.json(wholeOf([said("Hello.")]));
});
afterAll(async () => {
  await expectBooksClosed(gateway);
  await gateway.stop();
  await server.stop(true);
});

const USAGE = { input_tokens: 100, output_tokens: 10, total_tokens: 110 };
const wholeOf = (output: readonly Fields[]) => ({
  object: "response",
  status: "completed",
  output,
  usage: USAGE,
});
const said = (text: string) => ({
  id: "msg_1",
  type: "message",
  role: "assistant",
  status: "completed",
  content: [{ type: "output_text", text, annotations: [] }],
});
const searched = (id: string, action: Fields = { type: "search", query: "news" }) => ({
  id: `ws_${id}`,
  type: "web_search_call",
  status: "completed",
  action,
});
const streamOf = (events: readonly Fields[]) =>
  events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join("");

const post = (fields: Fields) =>
  gateway.request("POST", "/v1/responses", { model: MODEL, input: "hello", ...fields });
async function respond(fields: Fields): Promise<{ response: Response; body: Fields }> {
  const response = await post(fields);
  const body = (await response.json()) as Fields;
  expect(response.status, JSON.stringify(body)).toBe(200);
  return { response, body };
}

describe("a web search of OpenAI's", () => {
  test("is asked for by its own interface, bounded in its calls", async () => {
    const tool = { type: "web_search", search_context_size: "low" };
    const { response } = await respond({
      tools: [tool],
      tool_choice: { type: "web_search" },
      include: ["web_search_call.action.sources"],
      temperature: 0.5,
    });
    expect(response.headers.get("x-gateway-dropped-parameters")).toBeNull();
    expect(asked).toEqual([
      {
        path: "/responses",
        body: {
          model: "gpt-4o-mini",
          input: [{ type: "message", role: "user", content: "hello" }],
          tools: [tool],
          tool_choice: { type: "web_search" },
          max_tool_calls: 5,
          include: ["reasoning.encrypted_content", "web_search_call.action.sources"],
          temperature: 0.5,
          stream: false,
          store: false,
        },
      },
    ]);
  });

  test("is billed by the search; opening pages is not", async () => {
    const opened = searched("3", { type: "open_page", url: "https://example.com" });
    answer = () => Response.json(wholeOf([searched("1"), searched("2"), opened, said("News.")]));
    const { response, body } = await respond({ tools: [{ type: "web_search" }] });
    const bill = await billOfResponse(gateway, response);
    expect(bill.quantities).toEqual({ web_searches: 2 });
    expect(bill.chargeNano).toBe(2n * SEARCH_NANO + 100n * INPUT_NANO + 10n * OUTPUT_NANO);
    expect((body.usage as Fields).cost).toBe(Number(bill.chargeNano) / 1e9);
  });

  test("streams as it was recorded, with its searches on the bill", async () => {
    answer = () =>
      new Response(RECORDED.text, { headers: { "content-type": "text/event-stream" } });
    const response = await post({ stream: true, tools: [{ type: "web_search" }] });
    const events = responseEvents(await response.text(), { allowsForeign: true });
    expect(events.filter(({ type }) => type === "response.web_search_call.searching")).toHaveLength(
      6,
    );
    const bill = await billOfResponse(gateway, response);
    expect(bill.quantities).toEqual({ web_searches: 2 });
    expect(bill.promptTokens).toBe(31_073);
    expect(bill.estimated).toBeFalse();
  });

  test("is billed for what was done where its client goes away", async () => {
    const item = searched("1");
    const begun = streamOf([
      { type: "response.created", response: {} },
      {
        type: "response.output_item.added",
        output_index: 0,
        item: { ...item, status: "in_progress" },
      },
      { type: "response.output_item.done", output_index: 0, item },
      { type: "response.output_item.added", output_index: 1, item: { ...said(""), content: [] } },
      { type: "response.output_text.delta", output_index: 1, content_index: 0, delta: "News: " },
    ]);
    answer = () => {
      const body = new ReadableStream({
        start: (controller) => controller.enqueue(new TextEncoder().encode(begun)),
      });
      return new Response(body, { headers: { "content-type": "text/event-stream" } });
    };
    const response = await post({ stream: true, tools: [{ type: "web_search" }] });
    const reader = response.body!.getReader();
    let text = "";
    while (!text.includes("News: ")) text += new TextDecoder().decode((await reader.read()).value);
    await reader.cancel();
    const id = response.headers.get("x-gateway-request-id")!;
    await until("it is charged", async () => (await billOf(gateway, id)) !== undefined);
    expect(await billOf(gateway, id)).toMatchObject({
      quantities: { web_searches: 1 },
      estimated: true,
      status: 499,
    });
  });

  test("is held for with each of its calls", async () => {
    const poor = await gateway.addOrganization({ creditUsd: 0.1, plan: "free" });
    const ask = (fields: Fields) =>
      gateway.request(
        "POST",
        "/v1/responses",
        {
          ...{ model: MODEL, input: "hello", max_output_tokens: 100 },
          tools: [{ type: "web_search" }],
          ...fields,
        },
        { key: poor.secretKey },
      );
    // Five calls may read 128,000 tokens six times; one call, twice.
    expect((await ask({})).status).toBe(402);
    expect(asked).toEqual([]);
    expect((await ask({ max_tool_calls: 1 })).status).toBe(200);
    expect(asked[0]!.body.max_tool_calls).toBe(1);
  });

  test("goes back to OpenAI with the conversation", async () => {
    const call = searched("1");
    answer = () => Response.json(wholeOf([call, said("News.")]));
    const { body } = await respond({ tools: [{ type: "web_search" }] });
    const [shown] = body.output as Fields[];
    expect(shown).toEqual({ ...call, id: expect.stringMatching(/^ws_[0-9a-f]{32}00$/) });
    for (const next of [
      { previous_response_id: body.id, input: "More." },
      {
        input: [
          { role: "user", content: "hello" },
          ...(body.output as Fields[]),
          { role: "user", content: "More." },
        ],
      },
    ]) {
      await respond({ ...next, tools: [{ type: "web_search" }] });
      expect(asked.at(-1)!.body.input).toEqual([
        expect.objectContaining({ role: "user" }),
        shown,
        { type: "message", role: "assistant", content: [{ type: "output_text", text: "News." }] },
        expect.objectContaining({ role: "user" }),
      ]);
    }
  });

  test("that an agent offers in passing is left out where it was not asked for, and listed", async () => {
    const tools = [{ type: "web_search", external_web_access: false }];
    const { response } = await respond({ model: CODEX, tools });
    expect(asked[0]!.body.tools).toBeUndefined();
    expect(response.headers.get("x-gateway-dropped-parameters")).toBe("tools.web_search");
  });
});

describe("is refused before a provider is called", () => {
  test.each([
    ["a model without the tool", "test/other", { type: "web_search" }],
    [
      "a container that has no price",
      MODEL,
      { type: "code_interpreter", container: { type: "auto" } },
    ],
    ["images that have no price", MODEL, { type: "image_generation" }],
    [
      "a server for a model that cannot call it",
      "test/other",
      { type: "mcp", server_label: "a", server_url: "https://a.test" },
    ],
  ])("%s", async (_what, model, tool) => {
    const response = await post({ model, tools: [tool] });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({
      error: { code: "unsupported_parameter", param: expect.stringMatching(/^tools\.0/) },
    });
    expect(asked).toEqual([]);
  });
});

test("a fallback without the tool is not asked", async () => {
  answer = () => new Response("{}", { status: 503 });
  const response = await post({
    model: undefined,
    models: [MODEL, "test/other"],
    tools: [{ type: "web_search" }],
  });
  expect(response.status).toBe(502);
  expect(new Set(asked.map(({ path }) => path))).toEqual(new Set(["/responses"]));
});

test("a custom tool with a grammar stays one", async () => {
  const tool = {
    type: "custom",
    name: "patch",
    description: "Patches.",
    format: { type: "grammar", syntax: "lark", definition: 'start: "a"' },
  };
  const call = {
    id: "ctc_1",
    type: "custom_tool_call",
    call_id: "call_1",
    name: "patch",
    input: "a",
  };
  const item = { ...call, status: "completed" };
  answer = () =>
    new Response(
      streamOf([
        {
          type: "response.output_item.added",
          output_index: 0,
          item: { ...call, input: "", status: "in_progress" },
        },
        {
          type: "response.custom_tool_call_input.delta",
          output_index: 0,
          item_id: "ctc_1",
          delta: "a",
        },
        {
          type: "response.custom_tool_call_input.done",
          output_index: 0,
          item_id: "ctc_1",
          input: "a",
        },
        { type: "response.output_item.done", output_index: 0, item },
        {
          type: "response.completed",
          response: { status: "completed", output: [item], usage: USAGE },
        },
      ]),
      { headers: { "content-type": "text/event-stream" } },
    );
  const response = await post({ stream: true, tools: [tool] });
  const events = responseEvents(await response.text(), { allowsForeign: true });
  expect(asked[0]!.body.tools).toEqual([tool]);
  const own = events.filter(({ type }) => String(type).startsWith("response.custom_tool_call"));
  const [id] = new Set(own.map(({ item_id }) => item_id as string));
  expect(id).toMatch(/^ctc_[0-9a-f]{32}00$/);
  expect(own.map(({ type, delta, input }) => [type, delta ?? input])).toEqual([
    ["response.custom_tool_call_input.delta", "a"],
    ["response.custom_tool_call_input.done", "a"],
  ]);
  const whole = events.at(-1)!.response as Fields;
  expect(whole.output).toEqual([{ ...item, id }]);

  answer = () => Response.json(wholeOf([said("Done.")]));
  const output = { type: "custom_tool_call_output", call_id: "call_1", output: "patched" };
  await respond({ previous_response_id: whole.id, input: [output], tools: [tool] });
  const { id: _, status: _status, ...sent } = item;
  expect((asked.at(-1)!.body.input as Fields[]).slice(1)).toEqual([sent, output]);
});

test("a server's authorization goes to OpenAI, and stands in no answer and in no store", async () => {
  const tool = {
    type: "mcp",
    server_label: "shop",
    server_url: "https://shop.test/mcp",
    authorization: "token-of-the-shop",
    headers: { "x-shop": "header-of-the-shop" },
    require_approval: "never",
  };
  const call = {
    id: "mcp_1",
    type: "mcp_call",
    server_label: "shop",
    name: "buy",
    arguments: "{}",
    output: "bought",
    error: null,
  };
  answer = () => Response.json(wholeOf([call, said("Bought.")]));
  const { body } = await respond({ tools: [tool] });
  expect(asked[0]!.body.tools).toEqual([tool]);
  expect(body.output).toMatchObject([{ type: "mcp_call", output: "bought" }, { type: "message" }]);
  const stored = await gateway.request("GET", `/v1/responses/${body.id}`);
  for (const text of [JSON.stringify(body), await stored.text()]) {
    expect(text).toContain("server_label");
    expect(text).not.toContain("of-the-shop");
  }
});

test("a long conversation is sent in the same form", async () => {
  const text = "word ".repeat(60_000);
  const call = searched("1");
  const input = [{ role: "user", content: text }, call, { role: "user", content: "More." }];
  await respond({ input, tools: [{ type: "web_search" }], max_tool_calls: 2 });
  const { path, body } = asked[0]!;
  expect(path).toBe("/responses");
  expect(body.input).toEqual([
    { type: "message", role: "user", content: text },
    call,
    { type: "message", role: "user", content: "More." },
  ]);
  expect(body).toMatchObject({ tools: [{ type: "web_search" }], max_tool_calls: 2 });
});

describe("a tool that operates a computer", () => {
  const tool = {
    type: "computer_use_preview",
    display_width: 1024,
    display_height: 768,
    environment: "browser",
  };
  const call = {
    id: "cu_1",
    type: "computer_call",
    call_id: "call_1",
    action: { type: "click", x: 1, y: 2, button: "left" },
    pending_safety_checks: [],
    status: "completed",
  };
  const may = async (computer_use: boolean) => {
    await gateway.sql`UPDATE organizations SET may_use_computer = ${computer_use}`;
  };

  test.each(["computer_use_preview", "computer"])(
    "is refused to organizations that may not have it: %s",
    async (type) => {
      await may(false);
      const long = [{ role: "user", content: "word ".repeat(60_000) }];
      for (const input of ["hello", long]) {
        const tools = [
          { type: "function", name: "look" },
          { ...tool, type },
        ];
        const response = await post({ input, tools });
        expect(response.status).toBe(403);
        expect(await response.json()).toMatchObject({
          error: { type: "permission_error", code: "tool_not_allowed", param: "tools.1.type" },
        });
      }
      expect(asked).toEqual([]);
    },
  );

  test("is passed to OpenAI for those that may, and its calls and pictures with it", async () => {
    await may(true);
    answer = () => Response.json(wholeOf([call]));
    const { body } = await respond({ tools: [tool], truncation: "auto" });
    expect(asked[0]).toMatchObject({
      path: "/responses",
      body: { tools: [tool], truncation: "auto" },
    });
    expect(asked[0]!.body.max_tool_calls).toBeUndefined();
    const [shown] = body.output as Fields[];
    expect(shown).toEqual({ ...call, id: expect.stringMatching(/^cu_[0-9a-f]{32}00$/) });
    const screenshot = { type: "computer_screenshot", image_url: "data:image/png;base64,aGVsbG8=" };
    const output = { type: "computer_call_output", call_id: "call_1", output: screenshot };
    await respond({ previous_response_id: body.id, input: [output], tools: [tool] });
    expect((asked.at(-1)!.body.input as Fields[]).slice(1)).toEqual([shown!, output]);
  });

  test("is 400 for a model that lacks it", async () => {
    await may(true);
    const response = await post({ model: "test/other", tools: [tool] });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({
      error: { code: "unsupported_parameter", param: "tools.0.type" },
    });
  });
});
