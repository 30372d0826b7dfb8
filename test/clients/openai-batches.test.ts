import { afterAll, beforeAll, expect, test } from "bun:test";
import OpenAI from "openai";
import { chatLine } from "../support/batches.ts";
import { type FilesGateway, startFilesGateway } from "../support/files-gateway.ts";
import { until } from "../support/until.ts";

let gateway: FilesGateway;
let openai: OpenAI;
beforeAll(async () => {
  gateway = await startFilesGateway();
  const baseURL = `${gateway.baseUrl}/v1`;
  openai = new OpenAI({ apiKey: gateway.secretKey, baseURL, maxRetries: 0 });
});
afterAll(() => gateway.stop());

test("the openai SDK's batches: create, retrieve, list through pages, and cancel", async () => {
  const lines = chatLine("one") + chatLine("two");
  const file = await openai.files.create({
    file: new File([lines], "requests.jsonl"),
    purpose: "batch",
  });
  const order = {
    input_file_id: file.id,
    endpoint: "/v1/chat/completions",
    completion_window: "24h",
  } as const;
  const created = await openai.batches.create({ ...order, metadata: { name: "first" } });
  const ended = await until("the batch has ended", async () => {
    const batch = await openai.batches.retrieve(created.id);
    return batch.status === "completed" ? batch : undefined;
  });
  expect(ended.request_counts).toEqual({ total: 2, completed: 2, failed: 0 });
  const content = await (await openai.files.content(ended.output_file_id!)).text();
  const answers = content
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { custom_id: string; response: { status_code: number } });
  expect(answers.map(({ custom_id, response }) => [custom_id, response.status_code])).toEqual([
    ["one", 200],
    ["two", 200],
  ]);

  const second = await openai.batches.create(order);
  const ids: string[] = [];
  for await (const batch of openai.batches.list({ limit: 1 })) ids.push(batch.id);
  expect(ids).toEqual([second.id, created.id]);
  const failure = await openai.batches.cancel(created.id).catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(OpenAI.ConflictError);
  const unknown = await openai.batches
    .retrieve(`batch_${"0".repeat(32)}`)
    .catch((error: unknown) => error);
  expect(unknown).toBeInstanceOf(OpenAI.NotFoundError);
});
