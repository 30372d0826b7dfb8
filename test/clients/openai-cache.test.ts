import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import OpenAI from "openai";
import { type BuiltInGateway, startBuiltInGateway } from "../support/built-in-gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";

const MODEL = "openai/gpt-4o-mini";
const UPSTREAM_MODEL = "gpt-4o-mini";

let gateway: BuiltInGateway;
let openai: OpenAI;
beforeAll(async () => {
  gateway = await startBuiltInGateway();
  openai = new OpenAI({
    apiKey: gateway.secretKey,
    baseURL: gateway.apiUrl,
    maxRetries: 0,
    defaultHeaders: { "X-Gateway-Cache": "on" },
  });
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const outcomeOf = (response: Response) => response.headers.get("x-gateway-cache");
const callsOf = (model: string) => gateway.upstream.servedOf(model).length;
const asking = (content: string) => ({
  model: MODEL,
  messages: [{ role: "user" as const, content }],
});

describe("a hit reads as any other answer", () => {
  test("of a chat, whole and streamed", async () => {
    gateway.upstream.enqueue(UPSTREAM_MODEL, { do: "complete", content: "Very well, thank you." });
    const before = callsOf(UPSTREAM_MODEL);
    const first = await openai.chat.completions.create(asking("How are you?")).withResponse();
    expect(outcomeOf(first.response)).toBe("miss");
    const whole = await openai.chat.completions.create(asking("How are you?")).withResponse();
    expect(outcomeOf(whole.response)).toBe("hit");
    expect(whole.data.choices).toEqual(first.data.choices);
    const runner = openai.chat.completions.stream({
      ...asking("How are you?"),
      stream_options: { include_usage: true },
    });
    const completion = await runner.finalChatCompletion();
    expect(completion.choices[0]).toMatchObject({
      message: { content: "Very well, thank you." },
      finish_reason: "stop",
    });
    expect(completion.usage).toMatchObject({ ...first.data.usage, cost: 0 });
    expect(callsOf(UPSTREAM_MODEL) - before).toBe(1);
  });

  test("of a streamed call of tools", async () => {
    const toolCalls = [{ name: "get_weather", arguments: '{"city":"Rome"}' }];
    gateway.upstream.enqueue(UPSTREAM_MODEL, { do: "complete", toolCalls });
    const body = {
      ...asking("The weather in Rome?"),
      tools: [
        {
          type: "function" as const,
          function: { name: "get_weather", parameters: { type: "object" } },
        },
      ],
    };
    const before = callsOf(UPSTREAM_MODEL);
    for (let call = 0; call < 3; call++) {
      const completion = await openai.chat.completions.stream(body).finalChatCompletion();
      const [choice] = completion.choices;
      expect(choice!.finish_reason).toBe("tool_calls");
      expect(choice!.message.tool_calls![0]).toMatchObject({ function: toolCalls[0] });
    }
    expect(callsOf(UPSTREAM_MODEL) - before).toBe(1);
  });

  test("of a response, whole and streamed, that is stored and continued", async () => {
    gateway.upstream.enqueue(UPSTREAM_MODEL, { do: "complete", content: "It is calm." });
    const before = callsOf(UPSTREAM_MODEL);
    const body = { model: MODEL, input: "How is the sea?" };
    const first = await openai.responses.create(body);
    const whole = await openai.responses.create(body).withResponse();
    expect(outcomeOf(whole.response)).toBe("hit");
    expect(whole.data.output_text).toBe("It is calm.");
    expect(whole.data.id).not.toBe(first.id);
    expect((await openai.responses.retrieve(whole.data.id)).output_text).toBe("It is calm.");
    const streamed = await openai.responses.stream(body).finalResponse();
    expect(streamed.output_text).toBe("It is calm.");
    expect(callsOf(UPSTREAM_MODEL) - before).toBe(1);
    gateway.upstream.enqueue(UPSTREAM_MODEL, { do: "complete", content: "Still calm." });
    const next = await openai.responses.create({
      ...body,
      input: "And now?",
      previous_response_id: streamed.id,
    });
    expect(next.output_text).toBe("Still calm.");
  });

  test("of embeddings, in each encoding", async () => {
    const model = "openai/text-embedding-3-small";
    const calls = () => callsOf("text-embedding-3-small");
    for (const encoding of [undefined, "float", "base64"] as const) {
      const body = { model, input: ["one", "two"], encoding_format: encoding };
      const before = calls();
      const first = await openai.embeddings.create(body).withResponse();
      const again = await openai.embeddings.create({ ...body, user: "ada" }).withResponse();
      expect(outcomeOf(again.response)).toBe("hit");
      expect(again.data.data).toEqual(first.data.data);
      expect(again.data.usage).toMatchObject({ ...first.data.usage, cost: 0 });
      // The SDK asks for base64 where nothing is asked for.
      expect(calls() - before).toBe(encoding === "base64" ? 0 : 1);
      expect(outcomeOf(first.response)).toBe(encoding === "base64" ? "hit" : "miss");
    }
    const other = await openai.embeddings.create({ model, input: ["two", "one"] }).withResponse();
    expect(outcomeOf(other.response)).toBe("miss");
  });
});
