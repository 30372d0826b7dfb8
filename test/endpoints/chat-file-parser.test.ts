import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { pdfOf } from "../support/documents.ts";
import { expectError } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";

let gateway: ChatGateway;
let slug: string;
beforeAll(async () => {
  // Its models take no documents.
  gateway = await startChatGateway({ primaryType: "deepseek", startingCreditUsd: 1_000 });
  slug = gateway.modelThat({ do: "complete" });
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const PARSER = { plugins: [{ id: "file-parser" }] };
const QUESTION = { type: "text", text: "What does it say?" };
/** White space that makes a thread read the body it stands behind. */
const PADDING = " ".repeat(262_145);

function messagesWith(bytes: Uint8Array | string, filename = "report.pdf") {
  const file_data = `data:application/pdf;base64,${Buffer.from(bytes).toString("base64")}`;
  return [{ role: "user", content: [QUESTION, { type: "file", file: { filename, file_data } }] }];
}

function post(body: Record<string, unknown>, padding = ""): Promise<Response> {
  const text = JSON.stringify({ model: `test/${slug}`, ...body }) + padding;
  return gateway.request("POST", "/v1/chat/completions", text);
}

test("a model that takes no documents gets their text, whether the body is read in a thread or not", async () => {
  const messages = messagesWith(pdfOf(["The harbour opens at six."]));
  for (const padding of ["", PADDING]) {
    const response = await post({ messages, ...PARSER }, padding);
    expect(response.status).toBe(200);
    await response.arrayBuffer();
    const sent = gateway.upstream.served.at(-1)!.requestBody as { messages: typeof messages };
    const text = JSON.stringify(sent.messages);
    expect(text).toContain("The harbour opens at six.");
    expect(text).toContain("report.pdf");
    expect(text).not.toContain("base64");
    expect(sent).not.toHaveProperty("plugins");
  }
});

test.each(["pdf-text", "cloudflare-ai", null])("the engine %p reads them", async (engine) => {
  const messages = messagesWith(pdfOf(["The harbour opens at six."]));
  const response = await post({ messages, plugins: [{ id: "file-parser", pdf: { engine } }] });
  expect(response.status).toBe(200);
  await response.arrayBuffer();
  const sent = JSON.stringify(gateway.upstream.served.at(-1)!.requestBody);
  expect(sent).toContain("The harbour opens at six.");
});

test("without the plugin, and with the model's own reading, it is refused for that model", async () => {
  const messages = messagesWith(pdfOf(["The harbour opens at six."]));
  for (const plugins of [[], [{ id: "file-parser", pdf: { engine: "native" } }]]) {
    const refused = await post({ messages, plugins });
    await expectError(refused, 400, "unsupported_parameter");
  }
});

test("what cannot be read is 400 that names the part, and options that it lacks are refused", async () => {
  for (const padding of ["", PADDING]) {
    const damaged = await post({ messages: messagesWith("%PDF-1.7 nothing"), ...PARSER }, padding);
    const { error } = await expectError(damaged, 400, "invalid_body");
    expect(error).toMatchObject({ param: "messages.0.content.1" });
    expect(error.message).toContain("damaged");
    for (const [plugin, param] of [
      [{ pdf: { engine: "mistral-ocr" } }, "plugins.0.pdf.engine"],
      [{ images: true }, "plugins.0.images"],
    ] as const) {
      const plugins = [{ id: "file-parser", ...plugin }];
      const refused = await post({ messages: messagesWith("a"), plugins }, padding);
      const answer = await expectError(refused, 400, "unsupported_parameter");
      expect(answer.error.param).toBe(param);
    }
  }
});

test("a body that is refused for another reason is so with the plugin too", async () => {
  for (const padding of ["", PADDING]) {
    await expectError(await post({ messages: [], ...PARSER }, padding), 400, "invalid_body");
  }
  const many = Array.from({ length: 11 }, () => messagesWith("text", "a.txt")[0]!);
  await expectError(await post({ messages: many, ...PARSER }), 400, "invalid_body");
});
