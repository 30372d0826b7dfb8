import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { billOf, billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { assertOpenResponses, responseEvents } from "../support/open-responses.ts";
import { until } from "../support/until.ts";
import { recordedAnswers } from "../upstream/recorded-answers.ts";
import { listRecordings } from "../upstream/recordings.ts";

type Fields = Record<string, unknown>;

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const respond = (body: Fields, init?: RequestInit & { key?: string }) =>
  gateway.request("POST", "/v1/responses", { input: "hello", ...body }, init);
const LOOK = {
  type: "function",
  name: "look",
  parameters: { type: "object", properties: { at: { type: "string" } }, required: ["at"] },
};

async function wholeOf(response: Response): Promise<Fields> {
  expect(response.status).toBe(200);
  const body = (await response.json()) as Fields;
  assertOpenResponses("ResponseResource", body);
  return body;
}

/** What the same request costs as a chat. */
async function billOfChat(slug: string, messages: Fields[], rest: Fields = {}) {
  const response = await gateway.chat(slug, { messages, ...rest });
  await response.text();
  return billOfResponse(gateway, response);
}

describe("a response", () => {
  test("is of the published form, named after its request, and billed as its chat", async () => {
    const slug = gateway.modelThat({ do: "complete", content: "Very well." });
    const response = await respond({
      model: `test/${slug}`,
      instructions: "Be brief.",
      metadata: { a: "b" },
      user: "u",
    });
    const body = await wholeOf(response);
    const name = response.headers.get("x-gateway-request-id")!.slice("req_".length);
    expect(body).toMatchObject({
      id: `resp_${name}`,
      object: "response",
      status: "completed",
      model: `test/${slug}`,
      instructions: "Be brief.",
      metadata: { a: "b" },
      output: [
        {
          type: "message",
          id: `msg_${name}00`,
          role: "assistant",
          status: "completed",
          content: [{ type: "output_text", text: "Very well.", annotations: [] }],
        },
      ],
    });
    const bill = await billOfResponse(gateway, response);
    const asChat = await billOfChat(slug, [
      { role: "system", content: "Be brief." },
      { role: "user", content: "hello" },
    ]);
    expect(bill).toMatchObject({
      chargeNano: asChat.chargeNano,
      promptTokens: asChat.promptTokens,
      completionTokens: asChat.completionTokens,
      details: { user: "u", metadata: { a: "b" } },
    });
    expect((body.usage as Fields).cost).toBe(Number(bill.chargeNano) / 1e9);
    expect(response.headers.get("x-gateway-cost")).not.toBeNull();
  });

  test("holds calls of functions, whose outputs go on in the next request", async () => {
    const slug = gateway.modelThat(
      { do: "complete", toolCalls: [{ name: "look", arguments: '{"at":"x"}' }] },
      { do: "complete", content: "Dark." },
    );
    const first = await wholeOf(await respond({ model: `test/${slug}`, tools: [LOOK] }));
    const [call] = first.output as Fields[];
    expect(call).toMatchObject({ type: "function_call", name: "look", arguments: '{"at":"x"}' });
    const output = { type: "function_call_output", call_id: call!.call_id, output: "nothing" };
    const input = [{ role: "user", content: "hello" }, call, output];
    const second = await wholeOf(await respond({ model: `test/${slug}`, tools: [LOOK], input }));
    expect(second.output).toMatchObject([{ content: [{ text: "Dark." }] }]);
  });

  describe.each(["whole", "streamed", "long"] as const)(
    "with namespaces of tools, as Codex offers those of servers (%s)",
    (form) => {
      const read = { type: "function", name: "read", parameters: { type: "object" } };
      const long = { ...read, name: "a_tool_with_a_very_long_name_".repeat(3) };
      const OFFERED = [
        { namespace: "mcp__files__", name: "read" },
        { namespace: "mcp__files__", name: "patch" },
        { namespace: "mcp__files__", name: "odd näme" },
        { namespace: "mcp__files", name: "read" },
        { namespace: "mcp__other__", name: long.name },
        { namespace: "mcp__other__", name: `${long.name}2` },
      ];
      const tools = [
        { type: "function", name: "mcp__files__patch", parameters: { type: "object" } },
        {
          type: "namespace",
          name: "mcp__files__",
          description: "Files.",
          tools: [read, { type: "custom", name: "patch" }, { ...read, name: "odd näme" }],
        },
        { type: "namespace", name: "mcp__files", tools: [read] },
        {
          type: "namespace",
          name: "mcp__other__",
          tools: [long, { ...long, name: `${long.name}2` }],
        },
      ];
      // Too long for the event loop, and read by a thread.
      const instructions = form === "long" ? "x ".repeat(200_000) : "Be brief.";
      const ask = async (slug: string, input: Fields[]): Promise<Fields> => {
        const body = { model: `test/${slug}`, tools, instructions, input };
        const response = await respond({ ...body, stream: form === "streamed" });
        expect(response.headers.get("x-gateway-dropped-parameters")).toBeNull();
        if (form !== "streamed") {
          expect(response.status).toBe(200);
          return (await response.json()) as Fields;
        }
        // The published form has no custom tools.
        const events = [...(await response.text()).matchAll(/^data: (\{.*)$/gm)].map(
          ([, data]) => JSON.parse(data!) as Fields,
        );
        const done = events.filter(({ type }) => type === "response.output_item.done");
        const { response: last } = events.at(-1) as { response: Fields };
        expect(done.map(({ item }) => item)).toEqual(last.output as Fields[]);
        return last;
      };
      const sentTo = (slug: string) =>
        gateway.upstream.servedOf(slug).at(-1)!.requestBody as unknown as {
          tools: { type: string; function: { name: string } }[];
          messages: { tool_calls?: { function: { name: string } }[] }[];
        };

      test("models have a function for each, whose calls name namespace and tool", async () => {
        const slug = gateway.modelThat({ do: "complete", content: "No call." });
        const question = { role: "user", content: "hello" };
        await ask(slug, [question]);
        const names = sentTo(slug).tools.map((tool) => tool.function.name);
        expect(names[0]).toBe("mcp__files__patch");
        expect(names[1]).toBe("mcp__files__read");
        expect(new Set(names).size).toBe(1 + OFFERED.length);
        for (const name of names) expect(name).toMatch(/^[\w-]{1,64}$/);
        for (const [at, { namespace, name }] of OFFERED.entries()) {
          const called = names[at + 1]!;
          const text = name === "patch" ? '{"input":"+ a"}' : "{}";
          gateway.upstream.enqueue(slug, {
            do: "complete",
            toolCalls: [{ name: called, arguments: text }],
          });
          const { output } = await ask(slug, [question]);
          const [call] = output as [Fields];
          const type = name === "patch" ? "custom_tool_call" : "function_call";
          expect(call).toMatchObject({ type, namespace, name });
          if (name === "patch") expect(call.input).toBe("+ a");
          // The conversation goes on under the same names.
          const result = { type: `${type}_output`, call_id: call.call_id, output: "done" };
          gateway.upstream.enqueue(slug, { do: "complete", content: "Done." });
          await ask(slug, [question, call, result]);
          const calls = sentTo(slug).messages.flatMap((message) => message.tool_calls ?? []);
          expect(calls.map((one) => one.function.name)).toEqual([called]);
        }
        // A function of the caller's own is none of a namespace.
        gateway.upstream.enqueue(slug, {
          do: "complete",
          toolCalls: [{ name: "mcp__files__patch", arguments: "{}" }],
        });
        const { output } = await ask(slug, [question]);
        expect(output).toMatchObject([{ type: "function_call", name: "mcp__files__patch" }]);
        expect((output as Fields[])[0]).not.toContainKey("namespace");
      });
    },
  );

  test("that was cut by its limit is incomplete", async () => {
    const body = await wholeOf(
      await respond({ model: "sandbox/chat", input: "Hello there", max_output_tokens: 2 }),
    );
    expect(body).toMatchObject({
      status: "incomplete",
      incomplete_details: { reason: "max_output_tokens" },
      completed_at: null,
    });
  });

  test("of a body too long for the event loop is the same as of a short one", async () => {
    const text = "x ".repeat(200_000);
    const input = [{ role: "user", content: [{ type: "input_text", text }] }];
    const long = await respond({ model: "sandbox/chat", input, max_output_tokens: 10 });
    const body = await wholeOf(long);
    expect(body.max_output_tokens).toBe(10);
    const chat = await gateway.request("POST", "/v1/chat/completions", {
      model: "sandbox/chat",
      messages: [{ role: "user", content: text }],
      max_tokens: 10,
    });
    await chat.text();
    const [bill, asChat] = [
      await billOfResponse(gateway, long),
      await billOfResponse(gateway, chat),
    ];
    expect(bill.chargeNano).toBe(asChat.chargeNano);
  });

  test("comes once for an idempotency key", async () => {
    const slug = gateway.modelThat({ do: "complete", content: "Once." });
    const headers = { "idempotency-key": "responses-once" };
    const first = await respond({ model: `test/${slug}` }, { headers });
    const second = await respond({ model: `test/${slug}` }, { headers });
    expect(await second.text()).toBe(await first.text());
    expect(second.headers.get("x-gateway-idempotent-replay")).toBe("true");
  });

  test("names what was left out", async () => {
    const response = await respond({
      model: "sandbox/chat",
      tools: [{ type: "web_search", external_web_access: true }],
      client_metadata: { a: "b" },
      reasoning: { effort: "low", summary: "auto" },
      prompt_cache_key: "k",
    });
    await wholeOf(response);
    const dropped = response.headers.get("x-gateway-dropped-parameters")!.split(", ").sort();
    expect(dropped).toEqual(["client_metadata", "prompt_cache_key", "tools.web_search"]);
  });
});

describe("a stream", () => {
  test("is of the published events, and billed as its chat", async () => {
    const response = await respond({
      model: "sandbox/chat",
      stream: true,
      reasoning: { effort: "low" },
      tools: [LOOK],
      tool_choice: "required",
    });
    expect(response.headers.get("content-type")).toStartWith("text/event-stream");
    const events = responseEvents(await response.text());
    const { response: last } = events.at(-1) as { response: Fields };
    assertOpenResponses("ResponseResource", last);
    expect((last.output as Fields[]).map(({ type }) => type)).toEqual([
      "reasoning",
      "function_call",
    ]);
    const bill = await billOfResponse(gateway, response);
    expect((last.usage as Fields).cost).toBe(Number(bill.chargeNano) / 1e9);
  });

  test("that breaks ends with the failed response and an error, and what came is billed", async () => {
    const slug = gateway.modelThat({ do: "cut", events: 8, afterEvents: 5 });
    const response = await respond({ model: `test/${slug}`, stream: true });
    const events = responseEvents(await response.text());
    expect(events.slice(-2)).toMatchObject([
      {
        type: "response.failed",
        response: { status: "failed", error: { code: "provider_error" } },
      },
      { type: "error", error: { code: "provider_error", type: "provider_error" } },
    ]);
    expect((await billOfResponse(gateway, response)).chargeNano > 0n).toBeTrue();
  });

  test("that its client leaves is billed for what was produced", async () => {
    const response = await respond({ model: "sandbox/chat", input: "count to 5000", stream: true });
    await response.body!.getReader().cancel();
    const id = response.headers.get("x-gateway-request-id")!;
    const bill = await until("the charge", () => billOf(gateway, id));
    expect(bill).toMatchObject({ status: 499 });
  });
});

describe("each recorded answer of OpenAI's wire", () => {
  const recorded = recordedAnswers().filter(({ name }) => listRecordings().includes(name));

  test.each(recorded.map((one) => [one.name, one] as const))(
    "%s is a response of the published form that says the same",
    async (name, { stream, said }) => {
      const slug = gateway.modelThat({ do: "replay", recording: name });
      const asked = { model: `test/${slug}`, stream, reasoning: { summary: "auto" } };
      const response = await respond(asked);
      const text = await response.text();
      const body = (stream ? responseEvents(text).at(-1)!.response : JSON.parse(text)) as Fields;
      assertOpenResponses("ResponseResource", body);
      const items = body.output as { type: string; [member: string]: unknown }[];
      const ofType = (type: string) => items.filter((item) => item.type === type);
      const textsOf = (lists: unknown[]) =>
        (lists as { text: string }[][])
          .flatMap((list) => list.map(({ text: one }) => one))
          .join("");
      expect({
        content: textsOf(ofType("message").map(({ content }) => content)),
        reasoning: textsOf(ofType("reasoning").map(({ summary }) => summary)),
        calls: ofType("function_call").map((call) => ({
          name: call.name,
          input: JSON.parse(call.arguments as string),
        })),
      }).toEqual({ content: said.content, reasoning: said.reasoning, calls: [...said.calls] });
      if (said.tokens === null) return;
      expect(body.usage).toMatchObject({
        input_tokens: said.tokens.prompt,
        input_tokens_details: { cached_tokens: said.tokens.cached },
        output_tokens: said.tokens.completion,
      });
    },
  );
});

describe("errors", () => {
  test.each([
    [400, "unsupported_parameter", { tools: [{ type: "riddle" }] }],
    [400, "invalid_body", { temperature: "5" }],
    [400, "invalid_body", { input: [{ type: "item_reference", id: "msg_x" }] }],
    [404, "model_not_found", { model: "no/such" }],
  ] as const)("%d %s", async (status, code, fields) => {
    const response = await respond({ model: "sandbox/chat", ...fields });
    expect(response.status).toBe(status);
    expect(await response.json()).toMatchObject({ error: { code } });
  });

  test("a field that no provider of the model has is named as it is here", async () => {
    const strict = await startStrict();
    expect(strict).toMatchObject({
      error: { code: "unsupported_parameter", param: "top_logprobs" },
    });
  });
});

async function startStrict(): Promise<unknown> {
  const groq = await startChatGateway({ primaryType: "groq" });
  try {
    const slug = groq.modelThat({ do: "complete", content: "a" });
    const body = { model: `test/${slug}`, input: "hello", top_logprobs: 2 };
    return await (await groq.request("POST", "/v1/responses", body)).json();
  } finally {
    await groq.stop();
  }
}
