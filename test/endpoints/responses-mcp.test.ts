import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { functionOfTool } from "../../src/inference/tools/mcp/tool-names.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { startMcpServer, type TestMcpServer } from "../support/mcp-server.ts";
import { responseEvents } from "../support/open-responses.ts";
import { until } from "../support/until.ts";
import type { Behaviour } from "../upstream/behaviours.ts";

/** Tools of real MCP servers, run by the gateway for models. */

// biome-ignore lint/suspicious/noExplicitAny: what is compared with what is expected
type Json = Record<string, any>;

const SECRET = "token-of-the-shop";

let server: TestMcpServer;
let gateway: ChatGateway;
beforeAll(async () => {
  server = startMcpServer();
  gateway = await startChatGateway({
    environment: {
      GATEWAY_MCP_SERVERS: "127.0.0.1, *.allowed.test",
      GATEWAY_EGRESS_ALLOW: "127.0.0.1/32",
      GATEWAY_WEBHOOK_ALLOW_HTTP: "true",
    },
  });
});
beforeEach(() => {
  server.asked.length = 0;
  server.called.length = 0;
});
afterEach(() => expectBooksClosed(gateway));
afterAll(async () => {
  await gateway.stop();
  await server.stop();
});

const shop = (more: Json = {}, path = "/mcp") => ({
  type: "mcp",
  server_label: "shop",
  server_url: `http://127.0.0.1:${server.port}${path}?key=${SECRET}-in-the-address`,
  authorization: SECRET,
  require_approval: "never",
  ...more,
});
const call = (name: string, json: string): Behaviour => ({
  do: "complete",
  toolCalls: [{ name, arguments: json }],
});
const say = (content: string): Behaviour => ({ do: "complete", content });
const respond = (body: Json, init?: RequestInit & { key?: string }) =>
  gateway.request("POST", "/v1/responses", { input: "hello", tools: [shop()], ...body }, init);

async function wholeOf(response: Response): Promise<Json> {
  const body = (await response.json()) as Json;
  expect(response.status, JSON.stringify(body)).toBe(200);
  return body;
}

/** The bodies that the model's provider was sent, in order. */
const sentTo = (slug: string): Json[] =>
  gateway.upstream.served
    .filter(({ model }) => model === slug)
    .map(({ requestBody }) => requestBody as Json);
const typesOf = ({ output }: Json) => output.map(({ type }: Json) => type);

describe.each(["/mcp", "/session", "/sse"])("a server at %s", (path) => {
  test("is asked for its tools, which the model calls, on one bill", async () => {
    const slug = gateway.modelThat(call("shop__add", '{"a":1,"b":2}'), say("It is 3."));
    const response = await respond({ model: `test/${slug}`, tools: [shop({}, path)] });
    const body = await wholeOf(response);
    expect(typesOf(body)).toEqual(["mcp_list_tools", "mcp_call", "message"]);
    const [list, run] = body.output;
    expect(list).toMatchObject({ server_label: "shop", error: null });
    expect(list.tools.find(({ name }: Json) => name === "add")).toMatchObject({
      description: "Adds two numbers.",
      input_schema: { type: "object", required: ["a", "b"] },
      annotations: { readOnlyHint: true },
    });
    expect(run).toMatchObject({
      server_label: "shop",
      name: "add",
      arguments: '{"a":1,"b":2}',
      output: "3",
      error: null,
      status: "completed",
    });
    const [first, second] = sentTo(slug);
    const offered = first!.tools.map(({ function: { name } }: Json) => name);
    expect(offered).toContain("shop__add");
    // No name of a function may hold a dot.
    expect(offered.find((name: string) => name.includes("delete"))).toMatch(/^[\w-]{1,64}$/);
    expect(second!.messages.at(-1)).toMatchObject({ role: "tool", content: "3" });
    const bill = await billOfResponse(gateway, response);
    expect(body.usage.cost).toBe(Number(bill.chargeNano) / 1e9);
    expect(server.asked.every(({ authorization }) => authorization === `Bearer ${SECRET}`)).toBe(
      true,
    );
  });
});

test("streams the list and each call in the published events", async () => {
  const slug = gateway.modelThat(call("shop__add", '{"a":1,"b":2}'), say("It is 3."));
  const response = await respond({ model: `test/${slug}`, stream: true });
  const events = responseEvents(await response.text(), { allowsForeign: true });
  const own = events.map(({ type }) => type as string).filter((type) => type.includes("mcp"));
  expect(own).toEqual([
    "response.mcp_list_tools.in_progress",
    "response.mcp_list_tools.completed",
    "response.mcp_call.in_progress",
    "response.mcp_call_arguments.delta",
    "response.mcp_call_arguments.done",
    "response.mcp_call.completed",
  ]);
  expect(typesOf(events.at(-1)!.response as Json)).toEqual([
    "mcp_list_tools",
    "mcp_call",
    "message",
  ]);
});

test("a response that continues does not ask for the list again, and brings the calls back", async () => {
  const slug = gateway.modelThat(call("shop__add", '{"a":1,"b":2}'), say("It is 3."), say("Yes."));
  const first = await wholeOf(await respond({ model: `test/${slug}` }));
  server.asked.length = 0;
  const next = await wholeOf(
    await respond({ model: `test/${slug}`, previous_response_id: first.id, input: "Sure?" }),
  );
  expect(typesOf(next)).toEqual(["message"]);
  expect(server.asked).toEqual([]);
  const last = sentTo(slug).at(-1)!;
  expect(last.tools.map(({ function: { name } }: Json) => name)).toContain("shop__add");
  expect(last.messages).toMatchObject([
    { role: "user" },
    { role: "assistant", tool_calls: [{ function: { name: "shop__add" } }] },
    { role: "tool", content: "3" },
    { role: "assistant", content: "It is 3." },
    { role: "user", content: "Sure?" },
  ]);
});

test("only tools that are allowed are offered", async () => {
  for (const [allowed_tools, names] of [
    [["add"], ["shop__add"]],
    [{ read_only: true }, ["shop__add"]],
    [{ tool_names: ["fail", "add"], read_only: false }, ["shop__fail"]],
  ] as const) {
    const slug = gateway.modelThat(say("Nothing to do."));
    const body = await wholeOf(
      await respond({ model: `test/${slug}`, tools: [shop({ allowed_tools })] }),
    );
    const offered = sentTo(slug)[0]!.tools.map(({ function: { name } }: Json) => name);
    expect(offered).toEqual([...names]);
    const [list] = body.output as [Json];
    expect(list.type).toBe("mcp_list_tools");
    expect(list.tools.map(({ name }: Json) => `shop__${name}`)).toEqual([...names]);
  }
});

test("a list without a tool that is allowed later is asked for again", async () => {
  const slug = gateway.modelThat(say("One."), say("Two."));
  const tools = (allowed_tools: string[]) => [shop({ allowed_tools })];
  const first = await wholeOf(await respond({ model: `test/${slug}`, tools: tools(["add"]) }));
  const next = await wholeOf(
    await respond({
      model: `test/${slug}`,
      ...{ previous_response_id: first.id, input: "Sure?", tools: tools(["add", "fail"]) },
    }),
  );
  expect(typesOf(next)).toEqual(["mcp_list_tools", "message"]);
  const offered = sentTo(slug)
    .at(-1)!
    .tools.map(({ function: { name } }: Json) => name);
  expect(offered).toEqual(["shop__add", "shop__fail"]);
});

describe("a call that has to be approved", () => {
  const name = functionOfTool("shop", "delete.all");
  const approved = () => [
    shop({ require_approval: undefined, allowed_tools: ["delete.all", "add"] }),
  ];
  /** A response whose model has called the tool. */
  const asked = async () => {
    const slug = gateway.modelThat(call(name, "{}"), say("Done."), say("As you like."));
    const tools = approved();
    return { slug, tools, body: await wholeOf(await respond({ model: `test/${slug}`, tools })) };
  };

  test("ends the response, and is made when the next one brings the approval, once", async () => {
    const { slug, tools, body } = await asked();
    expect(typesOf(body)).toEqual(["mcp_list_tools", "mcp_approval_request"]);
    expect(body.status).toBe("completed");
    const request = body.output[1];
    expect(request).toEqual({
      id: expect.stringMatching(/^mcpr_/),
      type: "mcp_approval_request",
      server_label: "shop",
      name: "delete.all",
      arguments: "{}",
    });
    expect(server.called).toEqual([]);
    const answer = {
      type: "mcp_approval_response",
      approval_request_id: request.id,
      approve: true,
    };
    const next = await wholeOf(
      await respond({
        model: `test/${slug}`,
        tools,
        previous_response_id: body.id,
        input: [answer],
      }),
    );
    expect(typesOf(next)).toEqual(["mcp_call", "message"]);
    expect(next.output[0]).toMatchObject({ output: "gone", approval_request_id: request.id });
    expect(server.called).toEqual(["delete.all"]);
    expect(sentTo(slug).at(-1)!.messages.slice(1)).toMatchObject([
      { role: "assistant", tool_calls: [{ id: request.id }] },
      { role: "tool", tool_call_id: request.id, content: "gone" },
    ]);
    await wholeOf(
      await respond({
        model: `test/${slug}`,
        tools,
        previous_response_id: next.id,
        input: "Thanks.",
      }),
    );
    expect(server.called).toEqual(["delete.all"]);
  });

  test("is not made where it is refused, which the model reads", async () => {
    const { slug, tools, body } = await asked();
    const id = body.output[1].id;
    const answer = {
      type: "mcp_approval_response",
      approval_request_id: id,
      approve: false,
      reason: "too dangerous",
    };
    const next = await wholeOf(
      await respond({
        model: `test/${slug}`,
        tools,
        previous_response_id: body.id,
        input: [answer],
      }),
    );
    expect(typesOf(next)).toEqual(["message"]);
    expect(server.called).toEqual([]);
    expect(sentTo(slug).at(-1)!.messages.at(-1)).toMatchObject({
      role: "tool",
      content: "The user did not approve this call: too dangerous",
    });
  });

  test("is not made of a request whose name is no text", async () => {
    const { slug, tools } = await asked();
    const request = { type: "mcp_approval_request", id: "mcpr_1", server_label: "shop" };
    const answer = { type: "mcp_approval_response", approval_request_id: "mcpr_1", approve: true };
    const response = await respond({
      model: `test/${slug}`,
      tools,
      input: [
        { role: "user", content: "Delete it." },
        { ...request, name: { toString: 1 }, arguments: "{}" },
        answer,
      ],
    });
    expect(response.status).toBeLessThan(500);
    expect(server.called).toEqual([]);
  });

  test("is not made for an approval of another label's request, or of none", async () => {
    const { slug, tools, body } = await asked();
    for (const approval_request_id of ["mcpr_unknown", body.output[0].id]) {
      const input = [{ type: "mcp_approval_response", approval_request_id, approve: true }];
      await wholeOf(
        await respond({ model: `test/${slug}`, tools, previous_response_id: body.id, input }),
      );
    }
    expect(server.called).toEqual([]);
  });
});

test("a tool that fails, or is called wrongly, is the model's to know", async () => {
  for (const [name, json, error] of [
    ["shop__fail", "{}", "it is broken"],
    ["shop__add", '{"a":"one"}', "Input validation error"],
    ["shop__add", "[1]", "The arguments are not a JSON object."],
    ["shop__babble", "{}", "more bytes than allowed"],
  ] as const) {
    const slug = gateway.modelThat(call(name, json), say("Sorry."));
    const body = await wholeOf(await respond({ model: `test/${slug}` }));
    expect(body.output[1]).toMatchObject({
      type: "mcp_call",
      status: "failed",
      output: null,
      error: expect.stringContaining(error),
    });
    expect(sentTo(slug)[1]!.messages.at(-1).content).toContain(error);
  }
});

describe("leaves no session open", () => {
  const ended = () => server.asked.filter(({ method }) => method === "DELETE").length;

  test("where no provider answers", async () => {
    const slug = gateway.modelThat({ do: "error", status: 400 });
    const response = await respond({ model: `test/${slug}`, tools: [shop({}, "/session")] });
    expect(response.status).toBe(400);
    await until("its session is ended", () => ended() === 1);
  });

  test("where another server does not answer as it should", async () => {
    const slug = gateway.modelThat(say("Never."));
    const tools = [shop({}, "/session"), shop({ server_label: "odd" }, "/messages")];
    expect((await respond({ model: `test/${slug}`, tools })).status).toBe(400);
    await until("its session is ended", () => ended() === 1);
  });
});

describe("is refused before a provider is called", () => {
  const cases: readonly (readonly [string, Json, number, string, string])[] = [
    [
      "a host that is not allowed",
      { server_url: "https://other.test/mcp" },
      403,
      "tool_not_allowed",
      "tools.0.server_url",
    ],
    [
      "a host above those that are allowed",
      { server_url: "https://allowed.test/mcp" },
      403,
      "tool_not_allowed",
      "tools.0.server_url",
    ],
    [
      "a private address",
      { server_url: "http://10.0.0.1/mcp" },
      400,
      "invalid_body",
      "tools.0.server_url",
    ],
    [
      "no address",
      { server_url: undefined, connector_id: "connector_gmail" },
      400,
      "invalid_body",
      "tools.0.server_url",
    ],
    [
      "a header with a line break",
      { headers: { "x-a": "a\r\nb: c" } },
      400,
      "invalid_body",
      "tools.0.headers.x-a",
    ],
    [
      "a label that is no name",
      { server_label: "a b" },
      400,
      "invalid_body",
      "tools.0.server_label",
    ],
    [
      "an approval of another kind",
      { require_approval: "sometimes" },
      400,
      "invalid_body",
      "tools.0.require_approval",
    ],
  ];
  test.each(cases)("%s", async (_what, more, status, code, param) => {
    const slug = gateway.modelThat(say("Never."));
    const response = await respond({ model: `test/${slug}`, tools: [shop(more)] });
    expect(response.status).toBe(status);
    expect(await response.json()).toMatchObject({ error: { code, param } });
    expect(sentTo(slug)).toEqual([]);
  });

  test("a server that does not answer as it should, at no charge", async () => {
    const odd = startMcpServer(
      (path) => new Response(`no ${SECRET}`, { status: path === "/401" ? 401 : 500 }),
    );
    for (const [path, told] of [
      ["/401", "answers with status 401"],
      ["/500", "answers with status 500"],
    ] as const) {
      const slug = gateway.modelThat(say("Never."));
      const server_url = `http://127.0.0.1:${odd.port}${path}`;
      const response = await respond({ model: `test/${slug}`, tools: [shop({ server_url })] });
      expect(response.status).toBe(400);
      const { error } = (await response.json()) as Json;
      expect(error).toMatchObject({ code: "mcp_server_failed", param: "tools.0.server_url" });
      expect(error.message).toContain(told);
      expect(sentTo(slug)).toEqual([]);
    }
    await odd.stop();
  });

  test("more servers than are called for one request", async () => {
    const tools = Array.from({ length: 17 }, (_, at) => shop({ server_label: `shop${at}` }));
    const response = await respond({ model: `test/${gateway.modelThat(say("Never."))}`, tools });
    expect(response.status).toBe(400);
    expect(server.asked).toEqual([]);
  });
});

test("the authorization stands in no answer, no stored response and no log", async () => {
  const slug = gateway.modelThat(call("shop__echo_headers", "{}"), say("Said."));
  const body = await wholeOf(await respond({ model: `test/${slug}` }));
  const stored = await (await gateway.request("GET", `/v1/responses/${body.id}`)).text();
  const items = await (await gateway.request("GET", `/v1/responses/${body.id}/input_items`)).text();
  for (const text of [JSON.stringify(body), stored, items, JSON.stringify(sentTo(slug))]) {
    expect(text).not.toContain(SECRET);
  }
  expect(body.tools).toEqual([
    {
      type: "mcp",
      server_label: "shop",
      server_url: `http://127.0.0.1:${server.port}/<redacted>`,
      require_approval: "never",
    },
  ]);
  expect(gateway.logLines.join("\n")).not.toContain(SECRET);
});

test("a client that goes away ends the call, and pays for what was done", async () => {
  const slug = gateway.modelThat(call("shop__wait", "{}"), say("Never."));
  const response = await respond({ model: `test/${slug}`, stream: true });
  const reader = response.body!.getReader();
  let text = "";
  while (!text.includes("response.mcp_call.in_progress")) {
    text += new TextDecoder().decode((await reader.read()).value);
  }
  await reader.cancel();
  await until("it is charged", async () => {
    const id = response.headers.get("x-gateway-request-id")!;
    const rows = await gateway.sql`SELECT status FROM transactions WHERE request_id = ${id}`;
    return rows.length === 1 && rows[0]!.status === 499;
  });
});
