import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createReadStream } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import OpenAI, { toFile } from "openai";
import { type FilesGateway, startFilesGateway } from "../support/files-gateway.ts";

const LINES = `${JSON.stringify({
  messages: [
    { role: "user", content: "hello" },
    { role: "assistant", content: "hi" },
  ],
})}\n`;

describe.each(["disk", "s3"] as const)("the openai SDK's files, on %s", (kind) => {
  let gateway: FilesGateway;
  let openai: OpenAI;
  beforeAll(async () => {
    gateway = await startFilesGateway(kind);
    const baseURL = `${gateway.baseUrl}/v1`;
    openai = new OpenAI({ apiKey: gateway.secretKey, baseURL, maxRetries: 0 });
  });
  afterAll(() => gateway.stop());

  test("create from a stream, a File, bytes and a Response", async () => {
    const path = join(gateway.dataDir, "train.jsonl");
    await writeFile(path, LINES);
    const sources = [
      createReadStream(path),
      new File([LINES], "train.jsonl"),
      await toFile(new TextEncoder().encode(LINES), "train.jsonl"),
      await toFile(new Response(LINES), "train.jsonl"),
    ];
    for (const file of sources) {
      const created = await openai.files.create({ file, purpose: "fine-tune" });
      expect(created).toMatchObject({
        object: "file",
        bytes: LINES.length,
        filename: "train.jsonl",
        purpose: "fine-tune",
        status: "processed",
      });
      expect(await (await openai.files.content(created.id)).text()).toBe(LINES);
    }
  });

  test("create with an expiry", async () => {
    const file = await toFile(new TextEncoder().encode("notes"), "notes.txt");
    const expires_after = { anchor: "created_at" as const, seconds: 7_200 };
    const created = await openai.files.create({ file, purpose: "user_data", expires_after });
    expect(created.expires_at! - created.created_at).toBe(7_200);
  });

  test("retrieve, wait for processing and delete", async () => {
    const file = await toFile(new TextEncoder().encode("notes"), "notes ä.txt");
    const created = await openai.files.create({ file, purpose: "user_data" });
    expect(await openai.files.waitForProcessing(created.id)).toEqual(created);
    expect(await openai.files.retrieve(created.id)).toEqual(created);
    expect(created.filename).toBe("notes ä.txt");
    expect(await openai.files.delete(created.id)).toEqual({
      id: created.id,
      object: "file",
      deleted: true,
    });
    const failure = await openai.files.retrieve(created.id).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(OpenAI.NotFoundError);
  });

  test("a list goes through its pages, though each file be deleted on the way", async () => {
    const ids: string[] = [];
    for (let n = 0; n < 7; n++) {
      const file = await toFile(new TextEncoder().encode(String(n)), `${n}.txt`);
      ids.push((await openai.files.create({ file, purpose: "assistants" })).id);
    }
    const listed: string[] = [];
    const pages = openai.files.list({ limit: 3, order: "asc", purpose: "assistants" });
    for await (const file of pages) {
      listed.push(file.id);
      await openai.files.delete(file.id);
    }
    expect(listed).toEqual(ids);
    expect((await openai.files.list({ purpose: "assistants" })).data).toEqual([]);
  });

  test("a bad line is told with its number", async () => {
    const file = await toFile(new TextEncoder().encode(`${LINES}{"messages": 5}\n`), "bad.jsonl");
    const failure = await openai.files
      .create({ file, purpose: "fine-tune" })
      .catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(OpenAI.BadRequestError);
    expect(failure).toMatchObject({ code: "invalid_jsonl", param: "line 2: messages" });
  });
});
