import { afterAll, describe, expect, test } from "bun:test";
import { systemClock, VirtualClock } from "../../src/lib/clock.ts";
import { StorageError } from "../../src/platform/storage/interface.ts";
import { PART_BYTES, S3Storage } from "../../src/platform/storage/s3.ts";
import { BUCKET, type S3Server, startS3Server } from "../support/s3-server.ts";
import { until } from "../support/until.ts";
import { fileStorageContract } from "./file-storage.ts";

function storageOf(server: S3Server, secretAccessKey = server.credentials.secretAccessKey) {
  const { endpoint, credentials } = server;
  const settings = { ...credentials, secretAccessKey, bucket: BUCKET, endpoint };
  return new S3Storage(settings, systemClock);
}

fileStorageContract("S3", () => {
  const server = startS3Server();
  return {
    storage: storageOf(server),
    countEverything: async () => server.bucket.objects.size + server.bucket.uploads.size,
    stop: () => server.stop(),
  };
});

const server = startS3Server();
const storage = storageOf(server);
afterAll(() => server.stop());
const address = {
  expiresInSeconds: 3_600,
  contentType: "application/jsonl",
  contentDisposition: `attachment; filename="a b.jsonl"; filename*=UTF-8''a%20b.jsonl`,
};

async function put(key: string, bytes: Uint8Array): Promise<void> {
  const writer = storage.write(key);
  await writer.write(bytes);
  await writer.finish();
}

describe("the store of these tests", () => {
  test("speaks S3 with a client of Bun's, and refuses a wrong secret", async () => {
    const options = { ...server.credentials, endpoint: server.endpoint, bucket: BUCKET };
    const client = new Bun.S3Client(options);
    await client.write("files/by_other", "hello");
    expect(await client.file("files/by_other").text()).toBe("hello");
    expect(await client.file("files/by_other").slice(1, 3).text()).toBe("el");
    expect(await (await fetch(client.presign("files/by_other"))).text()).toBe("hello");
    const wrong = new Bun.S3Client({ ...options, secretAccessKey: "wrong" });
    await expect(wrong.file("files/by_other").text()).rejects.toThrow();
    await client.delete("files/by_other");
  });
});

describe("S3", () => {
  test("a wrong secret is an error of the store, with what it said", async () => {
    const refused = storageOf(server, "wrong").read("obj_00000001");
    await expect(refused).rejects.toThrow(StorageError);
    await expect(refused).rejects.toThrow("SignatureDoesNotMatch");
  });

  test("a signed address gives the bytes without credentials, under the name asked for", async () => {
    await put("obj_signed_1", new TextEncoder().encode("one\ntwo\n"));
    const url = await storage.signedUrl("obj_signed_1", address);
    const answer = await fetch(url);
    expect(await answer.text()).toBe("one\ntwo\n");
    expect(answer.headers.get("content-type")).toBe(address.contentType);
    expect(answer.headers.get("content-disposition")).toBe(address.contentDisposition);
    expect(new URL(url).searchParams.get("X-Amz-Expires")).toBe("3600");
  });

  test("a signed address is good for its object alone, and not for ever", async () => {
    await put("obj_signed_2", new Uint8Array(3));
    const url = await storage.signedUrl("obj_signed_2", address);
    const other = url.replace("obj_signed_2", "obj_signed_1");
    expect((await fetch(other)).status).toBe(403);
    const longer = url.replace("Expires=3600", "Expires=7200");
    expect((await fetch(longer)).status).toBe(403);
    const old = await storage.signedUrl("obj_signed_2", { ...address, expiresInSeconds: -1 });
    expect((await fetch(old)).status).toBe(403);
  });

  test("a part that failed in passing is sent again", async () => {
    let failures = 2;
    const fault = {
      matches: (method: string, url: URL) => method === "PUT" && url.searchParams.has("partNumber"),
      answer: () => (failures-- > 0 ? new Response("later", { status: 503 }) : undefined),
    };
    server.faults.push(fault);
    const bytes = new Uint8Array(PART_BYTES * 2 + 9).fill(3);
    await put("obj_retried", bytes);
    server.faults.splice(0);
    expect(server.bucket.objects.get("files/obj_retried")).toEqual(bytes);
  });

  test("an error that comes with 200 is an error", async () => {
    server.faults.push({
      matches: (method, url) => method === "POST" && url.searchParams.has("uploadId"),
      answer: () => new Response("  <Error><Code>InternalError</Code></Error>"),
    });
    const writer = storage.write("obj_not_completed");
    await writer.write(new Uint8Array(PART_BYTES + 1));
    await expect(writer.finish()).rejects.toThrow(StorageError);
    server.faults.splice(0);
    await writer.abort();
    expect(server.bucket.uploads.size).toBe(0);
  });

  test("an upload whose completion was answered to nobody is whole", async () => {
    let isFirst = true;
    server.faults.push({
      matches: (method, url) => method === "POST" && url.searchParams.has("uploadId"),
      answer() {
        if (!isFirst) return undefined;
        isFirst = false;
        for (const [id, upload] of server.bucket.uploads) {
          const parts = [...upload.parts].map(
            ([number, { etag }]) => `<PartNumber>${number}</PartNumber><ETag>${etag}</ETag>`,
          );
          server.bucket.complete(upload.key, id, parts.join(""));
        }
        return new Response("", { status: 500 });
      },
    });
    await put("obj_completed_twice", new Uint8Array(PART_BYTES + 1));
    server.faults.splice(0);
    expect(server.bucket.objects.get("files/obj_completed_twice")).toHaveLength(PART_BYTES + 1);
  });

  test("a slow store holds the writer back with two parts in hand", async () => {
    const { promise: open, resolve } = Promise.withResolvers<undefined>();
    server.faults.push({ matches: (method) => method === "PUT", answer: () => open });
    const writer = storage.write("obj_held_back");
    const piece = new Uint8Array(PART_BYTES / 8);
    let written = 0;
    const writing = (async () => {
      for (; written < 40; written++) await writer.write(piece);
    })();
    await until("both buffers are full", () => written >= 16);
    await until("the first part is on its way", () => server.requests.at(-1)?.startsWith("PUT"));
    for (let turn = 0; turn < 20; turn++) await new Promise((next) => setImmediate(next));
    expect(written).toBeLessThanOrEqual(17);
    resolve(undefined);
    await writing;
    await writer.finish();
    server.faults.splice(0);
    expect(server.bucket.objects.get("files/obj_held_back")).toHaveLength(PART_BYTES * 5);
  });

  test("a redirect is refused, and what it leads to is not asked", async () => {
    await put("obj_redirected", new Uint8Array(3));
    server.requests.splice(0);
    server.faults.push({
      matches: (_method, url) => url.pathname.endsWith("obj_redirected"),
      answer: () => Response.redirect(`${server.endpoint}/elsewhere`, 307),
    });
    await expect(storage.read("obj_redirected")).rejects.toThrow("answers 307");
    server.faults.splice(0);
    expect(server.requests).toHaveLength(1);
  });

  test("a store that never answers is given up by the clock", async () => {
    const clock = new VirtualClock();
    const { endpoint, credentials } = server;
    const waiting = new S3Storage({ ...credentials, bucket: BUCKET, endpoint }, clock);
    server.faults.push({ matches: () => true, answer: () => new Promise(() => {}) });
    server.requests.splice(0);
    const reading = waiting.read("obj_unanswered").catch((error: unknown) => error);
    for (let attempt = 1; attempt <= 3; attempt++) {
      await until("the request arrives, after the delay of a retry", () => {
        if (server.requests.length < attempt) clock.advance(20);
        return server.requests.length === attempt;
      });
      clock.advance(60_000);
    }
    expect(String(await reading)).toContain("does not answer");
    server.faults.splice(0);
  });

  test("a store that cannot be reached is an error of the store", async () => {
    const gone = startS3Server();
    const lost = storageOf(gone);
    await gone.stop();
    await expect(lost.read("obj_00000001")).rejects.toThrow("cannot be reached");
    await expect(lost.remove("obj_00000001")).rejects.toThrow(StorageError);
    await lost.write("obj_00000001").abort();
  });
});
