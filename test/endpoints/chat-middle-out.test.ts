import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import {
  shareByProvider,
  withinLimit,
} from "../../src/inference/endpoints/chat-completions/middle-out.ts";
import type { ChatMessage } from "../../src/inference/endpoints/chat-completions/request.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { readStream } from "../support/stream-reader.ts";

let gateway: ChatGateway;
let slug: string;
beforeAll(async () => {
  gateway = await startChatGateway({ startingCreditUsd: 1_000 });
  slug = gateway.modelThat({ do: "complete" });
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const HEADER = "x-gateway-transforms";
/** White space that makes a thread read the body it stands behind. */
const PADDING = " ".repeat(262_145);
const TEXT = "Seven ships sail south. ".repeat(120);

const system = { role: "system", content: "Be brief." };
const last = { role: "user", content: "What was the first question?" };
/** Some 800 tokens each. */
const turns = (count: number): ChatMessage[] =>
  Array.from({ length: count }, (_, n) => ({
    role: n % 2 === 0 ? "user" : "assistant",
    content: `Turn ${n}. ${TEXT}`,
  }));
/** The model takes 128,000 tokens; this leaves the prompt a quarter of them. */
const ROOM = { max_tokens: 127_000 };

async function sent(body: Record<string, unknown>, padding = "") {
  const text = JSON.stringify({ model: `test/${slug}`, ...body }) + padding;
  const response = await gateway.request("POST", "/v1/chat/completions", text);
  expect(response.status).toBe(200);
  await response.arrayBuffer();
  const { messages } = gateway.upstream.served.at(-1)!.requestBody as { messages: ChatMessage[] };
  return { messages, header: response.headers.get(HEADER) };
}

test("a prompt that the model cannot take loses its middle, and a header says so", async () => {
  const messages = [system, ...turns(70), last];
  const body = { messages, transforms: ["middle-out"], ...ROOM };
  const cut = await sent(body);
  expect(cut.header).toBe("middle-out");
  expect(cut.messages[0]).toEqual(system);
  expect(cut.messages[1]).toEqual(messages[1]!);
  expect(cut.messages.slice(-2)).toEqual(messages.slice(-2));
  expect(cut.messages.length).toBeGreaterThan(20);
  expect(cut.messages.length).toBeLessThan(messages.length);
  expect(cut.messages.filter(({ content }) => String(content).includes("[…]"))).toHaveLength(1);
  // Read in a thread, it comes to the same.
  expect(await sent(body, PADDING)).toEqual(cut);
});

test("a prompt that the model takes is sent as it is, and without the transform any is", async () => {
  const fits = { messages: [system, ...turns(20), last], transforms: ["middle-out"], ...ROOM };
  expect(await sent(fits)).toEqual({ messages: fits.messages, header: null });
  const long = { messages: [system, ...turns(70), last], transforms: [], ...ROOM };
  expect(await sent(long)).toEqual({ messages: long.messages, header: null });
});

test("a stream says so in its headers too", async () => {
  const body = { messages: [...turns(70), last], transforms: ["middle-out"], ...ROOM };
  const response = await gateway.chat(slug, { ...body, stream: true });
  expect(response.headers.get(HEADER)).toBe("middle-out");
  await readStream(response);
});

test("an unknown transform is 400", async () => {
  for (const padding of ["", PADDING]) {
    const body = { model: `test/${slug}`, messages: [last], transforms: ["middle-out", "shuffle"] };
    const text = JSON.stringify(body) + padding;
    const response = await gateway.request("POST", "/v1/chat/completions", text);
    const { error } = await expectError(response, 400, "unsupported_parameter");
    expect(error.param).toBe("transforms.1");
  }
});

describe("what is cut", () => {
  const call = (id: string, result: string): ChatMessage[] => [
    { role: "assistant", content: null, tool_calls: [{ id, function: { name: "f" } }] },
    { role: "tool", tool_call_id: id, content: result },
    { role: "tool", tool_call_id: `${id}b`, content: result },
  ];
  const cut = (messages: ChatMessage[], limit: number) => withinLimit({ messages }, limit);

  test("results of tools stay with their calls, or go with them", () => {
    const messages = [
      system,
      ...Array.from({ length: 20 }, (_, n) => call(`c${n}`, TEXT)).flat(),
      last,
    ];
    for (let limit = 300; limit < 30_000; limit += 700) {
      const kept = cut(messages, limit);
      const calls = kept.flatMap(({ tool_calls: made }) => (made as { id: string }[]) ?? []);
      const results = kept.filter(({ role }) => role === "tool");
      expect(results.map(({ tool_call_id: id }) => id)).toEqual(
        calls.flatMap(({ id }) => [id, `${id}b`]),
      );
      expect(kept.at(-1)).toEqual(last);
    }
  });

  test("what came last stays although it alone is too long, cut in its middle", () => {
    const message = { role: "user", content: `Begin. ${TEXT.repeat(50)} End.` };
    const [kept, ...others] = cut([...turns(4), message], 1_000);
    expect(others).toEqual([]);
    expect(kept!.content).toMatch(/^Begin\. .*\n\[…\]\n.* End\.$/s);
    const inParts = { role: "user", content: [{ type: "text", text: message.content }] };
    const [part] = cut([inParts], 1_000)[0]!.content as unknown as readonly { text: string }[];
    expect(part!.text).toMatch(/^Begin\. .*\n\[…\]\n.* End\.$/s);
    const results = cut([last, ...call("c", TEXT.repeat(50))], 1_000).slice(-3);
    expect(results.map(({ role }) => role)).toEqual(["assistant", "tool", "tool"]);
    expect(String(results[1]!.content).length).toBeLessThan(3_000);
  });

  test("long instructions leave room for what follows them, and odd texts stay texts", () => {
    const kept = cut([{ role: "system", content: "\u{1f6a2}".repeat(20_000) }, last], 2_000);
    expect(kept.at(-1)).toEqual(last);
    const { content } = kept[0]!;
    expect((content as string).isWellFormed()).toBe(true);
    expect((content as string).length).toBeLessThan(2_000);
  });
});

describe("a prompt that the provider finds too long by its own count", () => {
  const COUNTED =
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 10021 tokens.";
  const ask = (model: string, more: Record<string, unknown>, padding = "") => {
    const messages = [system, ...turns(12), last];
    const body = { model: `test/${model}`, messages, max_tokens: 100, ...more };
    return gateway.request("POST", "/v1/chat/completions", JSON.stringify(body) + padding);
  };
  const rejects = (message: string) => ({ do: "error", status: 400, message }) as const;
  const bytesSent = (model: string) =>
    gateway.upstream.servedOf(model).map(({ requestBody }) => {
      const { messages } = requestBody as unknown as { messages: ChatMessage[] };
      return JSON.stringify(messages).length;
    });

  test.each([
    ["whole", false, ""],
    ["streamed", true, ""],
    ["long", false, PADDING],
  ])("is cut by that count, and sent again (%s)", async (_form, stream, padding) => {
    const model = gateway.modelThat(rejects(COUNTED), rejects(COUNTED), {
      do: "complete",
      content: "Short enough.",
    });
    const response = await ask(model, { stream, transforms: ["middle-out"] }, padding);
    expect(response.status).toBe(200);
    expect(response.headers.get(HEADER)).toBe("middle-out");
    expect(await response.text()).toContain(stream ? "Sho" : "Short");
    const [first, second, third] = bytesSent(model);
    expect(second! / first!).toBeWithin(0.65, 0.8);
    expect(third! / second!).toBeWithin(0.65, 0.8);
  });

  test("is 400 after three tries, and after one without the transform", async () => {
    const model = gateway.modelThat(rejects(COUNTED));
    const response = await ask(model, { transforms: ["middle-out"] });
    await expectError(response, 400, "context_length_exceeded");
    expect(bytesSent(model)).toHaveLength(3);
    const other = gateway.modelThat(rejects(COUNTED));
    await expectError(await ask(other, {}), 400, "context_length_exceeded");
    expect(bytesSent(other)).toHaveLength(1);
  });

  test.each([
    ["prompt is too long: 210,000 tokens > 200,000 maximum", 0.9],
    [
      "The input token count (1200000) exceeds the maximum number of tokens allowed (600000).",
      0.475,
    ],
    ["request (5000 tokens) exceeds the available context size (4096 tokens)", 0.778],
    [
      "maximum context length is 4096 tokens, you requested 100000 tokens (5 in the completion)",
      0.1,
    ],
    ["too long", 0.75],
  ])("%s leaves a share of %d", (message, share) => {
    expect(shareByProvider(message)).toBeCloseTo(share, 3);
  });
});
