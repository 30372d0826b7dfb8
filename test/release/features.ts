import { expect } from "bun:test";
import OpenAI, { toFile } from "openai";
import { pdfOf } from "../support/documents.ts";
import { until } from "../support/until.ts";

/** Longer than what a gateway parses on its event loop. */
const LONG_TEXT = "a ".repeat(200_000);

/** Settings of a gateway that `useEveryPart` can use. */
export const FEATURE_SETTINGS = { GATEWAY_CODE_INTERPRETER: "true" } as const;

/**
 * Uses each part of a gateway that loads files or modules by their path: threads, child processes, WebAssembly, SQL
 * and pages.
 */
export async function useEveryPart(baseUrl: string, key: string): Promise<void> {
  const client = new OpenAI({ baseURL: `${baseUrl}/v1`, apiKey: key, maxRetries: 0 });
  await answersChats(client);
  await encodesMedia(client);
  await readsDocuments(client);
  await runsPython(client);
  await servesPages(baseUrl);
}

async function answersChats(client: OpenAI): Promise<void> {
  for (const content of ["hi", LONG_TEXT]) {
    const { choices } = await client.chat.completions.create({
      model: "sandbox/chat",
      max_tokens: 10,
      messages: [{ role: "user", content }],
    });
    expect(choices[0]?.message.content).toStartWith("You said: ");
  }
}

async function encodesMedia(client: OpenAI): Promise<void> {
  for (const [format, beginning] of [
    ["jpeg", "\xff\xd8\xff"],
    ["webp", "RIFF"],
  ] as const) {
    const { data } = await client.images.generate({
      model: "sandbox/image",
      prompt: "a lighthouse",
      output_format: format,
      response_format: "b64_json",
    });
    expect(atob(data![0]!.b64_json!)).toStartWith(beginning);
  }
  const speech = await client.audio.speech.create({
    model: "sandbox/tts",
    voice: "alloy",
    input: "hello",
    response_format: "opus",
  });
  expect(Buffer.from(await speech.arrayBuffer()).toString("latin1")).toStartWith("OggS");
}

async function readsDocuments(client: OpenAI): Promise<void> {
  const file = await client.files.create({
    file: await toFile(pdfOf(["The lighthouse was built in 1884."]), "lighthouse.pdf"),
    purpose: "assistants",
  });
  const store = await client.vectorStores.create({ name: "harbours", file_ids: [file.id] });
  await until("the file is indexed", async () => {
    const { file_counts: counts } = await client.vectorStores.retrieve(store.id);
    return counts.in_progress === 0;
  });
  const { data } = await client.vectorStores.search(store.id, { query: "lighthouse" });
  expect(data[0]?.content[0]?.text).toContain("1884");
}

async function runsPython(client: OpenAI): Promise<void> {
  const { output } = await client.responses.create({
    model: "sandbox/chat",
    input: "calculate",
    tools: [{ type: "code_interpreter", container: { type: "auto" } }],
    include: ["code_interpreter_call.outputs"],
  });
  const call = output.find(({ type }) => type === "code_interpreter_call");
  expect(call).toMatchObject({ status: "completed", outputs: [{ type: "logs" }] });
}

async function servesPages(baseUrl: string): Promise<void> {
  const read = async (path: string): Promise<string> => {
    const response = await fetch(new URL(path, `${baseUrl}/`));
    expect(response.status, path).toBe(200);
    return response.text();
  };
  const page = await read("dashboard");
  const assets = [...page.matchAll(/"(dashboard\/assets\/[^"]+)"/g)].map(([, path]) => path!);
  expect(assets).toHaveLength(2);
  for (const path of assets) expect((await read(path)).length).toBeGreaterThan(10_000);
  expect(await read("docs")).toContain("<html");
  expect(JSON.parse(await read("openapi.json"))).toHaveProperty("openapi");
}
