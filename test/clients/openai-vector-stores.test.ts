import { afterAll, beforeAll, expect, test } from "bun:test";
import OpenAI, { toFile } from "openai";
import { type FilesGateway, startFilesGateway } from "../support/files-gateway.ts";

let gateway: FilesGateway;
let openai: OpenAI;
beforeAll(async () => {
  gateway = await startFilesGateway();
  openai = new OpenAI({
    apiKey: gateway.secretKey,
    baseURL: `${gateway.baseUrl}/v1`,
    maxRetries: 0,
  });
});
afterAll(() => gateway.stop());

const LEAVE = "Every employee has 27 days of paid leave a year. Unused days expire in March.";
const TRAVEL =
  "Trains are booked in second class. Flights need the approval of the head of department.";
const POLL = { pollIntervalMs: 50 };

const textFile = (text: string, name: string) => toFile(new TextEncoder().encode(text), name);

test("the openai SDK creates a store, adds and polls files, searches, lists and deletes", async () => {
  const store = await openai.vectorStores.create({
    name: "Handbook",
    metadata: { team: "people" },
  });
  expect(store).toMatchObject({
    object: "vector_store",
    name: "Handbook",
    status: "completed",
    usage_bytes: 0,
    file_counts: { in_progress: 0, completed: 0, failed: 0, cancelled: 0, total: 0 },
    metadata: { team: "people" },
  });
  const leave = await openai.vectorStores.files.uploadAndPoll(
    store.id,
    await textFile(LEAVE, "leave.md"),
    POLL,
  );
  expect(leave).toMatchObject({ status: "completed", last_error: null, usage_bytes: LEAVE.length });
  const travel = await openai.files.create({
    file: await textFile(TRAVEL, "travel.txt"),
    purpose: "assistants",
  });
  const added = await openai.vectorStores.files.createAndPoll(
    store.id,
    { file_id: travel.id, attributes: { year: 2026 } },
    POLL,
  );
  expect(added).toMatchObject({ id: travel.id, status: "completed", attributes: { year: 2026 } });

  const found = await openai.vectorStores.search(store.id, {
    query: "How many days of leave do employees have?",
  });
  expect(found.data[0]).toEqual({
    file_id: leave.id,
    filename: "leave.md",
    score: 1,
    attributes: {},
    content: [{ type: "text", text: LEAVE }],
  });
  const filtered = await openai.vectorStores.search(store.id, {
    query: ["days of leave", "class of trains"],
    filters: { type: "gte", key: "year", value: 2026 },
    max_num_results: 3,
    rewrite_query: true,
  });
  expect(filtered.data.map(({ file_id }) => file_id)).toEqual([travel.id]);

  const listed = [];
  for await (const file of openai.vectorStores.files.list(store.id, { limit: 1, order: "asc" })) {
    listed.push(file.id);
  }
  expect(listed).toEqual([leave.id, travel.id]);
  const content = [];
  for await (const part of openai.vectorStores.files.content(leave.id, {
    vector_store_id: store.id,
  })) {
    content.push(part.text);
  }
  expect(content).toEqual([LEAVE]);

  await openai.vectorStores.files.delete(leave.id, { vector_store_id: store.id });
  const after = await openai.vectorStores.search(store.id, { query: "leave" });
  expect(after.data).toEqual([]);
  expect((await openai.files.retrieve(leave.id)).status).toBe("processed");
  expect(await openai.vectorStores.delete(store.id)).toEqual({
    id: store.id,
    object: "vector_store.deleted",
    deleted: true,
  });
  const gone = await openai.vectorStores.retrieve(store.id).catch((error: unknown) => error);
  expect(gone).toBeInstanceOf(OpenAI.NotFoundError);
});

test("the openai SDK adds files in a batch and polls it", async () => {
  const store = await openai.vectorStores.create({ name: "Batch" });
  const files = [await textFile(LEAVE, "leave.md"), await textFile(TRAVEL, "travel.txt")];
  const batch = await openai.vectorStores.fileBatches.uploadAndPoll(store.id, { files }, POLL);
  expect(batch).toMatchObject({
    status: "completed",
    vector_store_id: store.id,
    file_counts: { completed: 2, total: 2 },
  });
  const names = await openai.vectorStores.fileBatches.listFiles(batch.id, {
    vector_store_id: store.id,
    filter: "completed",
  });
  expect(names.data).toHaveLength(2);
  expect((await openai.vectorStores.retrieve(store.id)).file_counts.completed).toBe(2);
});
