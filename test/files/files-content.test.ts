import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { VirtualClock } from "../../src/lib/clock.ts";
import { expectError } from "../support/error-envelope.ts";
import {
  type FilesGateway,
  getContent,
  startFilesGateway,
  uploaded,
} from "../support/files-gateway.ts";
import { until } from "../support/until.ts";

const HOUR_MS = 3_600_000;
const LINE = '{"messages":[{"role":"user","content":"x"}]}\n';

describe.each(["disk", "s3"] as const)("content on %s", (kind) => {
  let gateway: FilesGateway;
  const clock = new VirtualClock(Date.now());
  beforeAll(async () => {
    gateway = await startFilesGateway(kind, { clock });
  });
  afterAll(() => gateway.stop());

  test("comes with headers that let no browser take it for a page", async () => {
    const { id } = await uploaded(gateway, "user_data", "<script>alert(1)</script>", {
      filename: "r\u00e9sum\u00e9 %x; a.html",
      type: "text/html",
    });
    const { headers } = await getContent(gateway, id);
    expect(headers.get("content-disposition")).toBe(
      `attachment; filename="r_sum_ _x_ a.html"; filename*=UTF-8''r%C3%A9sum%C3%A9%20%25x%3B%20a.html`,
    );
    expect(headers.get("x-content-type-options")).toBe("nosniff");
    expect(headers.get("content-security-policy")).toContain("sandbox");
    expect(headers.get("content-length")).toBe("25");
  });

  test("has the type of its purpose, or the one that Accept asks for where it fits", async () => {
    const lines = (await uploaded(gateway, "fine-tune", LINE, { type: "text/html" })).id;
    const typeFor = async (accept: string) =>
      (await getContent(gateway, lines, { accept })).headers.get("content-type");
    expect(await typeFor("*/*")).toBe("application/jsonl");
    expect(await typeFor("application/binary")).toBe("application/jsonl");
    expect(await typeFor("application/octet-stream")).toBe("application/octet-stream");
    expect(await typeFor("text/html, text/plain;q=0.5")).toBe("text/plain");
    expect(await typeFor("text/plain;q=0.1, */*;q=0.2")).toBe("application/jsonl");
    expect(await typeFor("application/x-ndjson;q=junk")).toBe("application/jsonl");
    const csv = (await uploaded(gateway, "user_data", "a,b", { type: "text/csv" })).id;
    expect((await getContent(gateway, csv)).headers.get("content-type")).toBe("text/csv");
  });

  test("is given in the range asked for, to the byte", async () => {
    const { id } = await uploaded(gateway, "user_data", "0123456789");
    for (const [range, status, text, part] of [
      ["bytes=0-0", 206, "0", "bytes 0-0/10"],
      ["bytes=3-5", 206, "345", "bytes 3-5/10"],
      ["bytes=7-", 206, "789", "bytes 7-9/10"],
      ["bytes=-2", 206, "89", "bytes 8-9/10"],
      ["bytes=-20", 206, "0123456789", "bytes 0-9/10"],
      ["bytes=5-999", 206, "56789", "bytes 5-9/10"],
      [`bytes=5-${"9".repeat(400)}`, 206, "56789", "bytes 5-9/10"],
      [`bytes=-${"9".repeat(20)}`, 206, "0123456789", "bytes 0-9/10"],
      ["bytes=5-4", 200, "0123456789", null],
      ["bytes=0-1,3-4", 200, "0123456789", null],
      ["lines=1-2", 200, "0123456789", null],
    ] as const) {
      const response = await getContent(gateway, id, { range });
      const told = response.headers.get("content-range");
      expect([range, response.status, await response.text(), told]).toEqual([
        range,
        status,
        text,
        part,
      ]);
      expect(response.headers.get("accept-ranges")).toBe("bytes");
    }
    for (const range of [
      "bytes=10-",
      "bytes=-0",
      "bytes=999999999999999-",
      `bytes=${"9".repeat(20)}-`,
    ]) {
      const response = await getContent(gateway, id, { range });
      expect(response.headers.get("content-range")).toBe("bytes */10");
      await expectError(response, 416, "range_not_satisfiable");
    }
  });

  test("is not sent again to who has it, and a range only of what he has", async () => {
    const { id } = await uploaded(gateway, "user_data", "0123456789");
    const etag = (await getContent(gateway, id)).headers.get("etag")!;
    expect(etag).toBe(`"${createHash("sha256").update("0123456789").digest("hex")}"`);
    for (const known of [etag, `"a", W/${etag}`, "*"]) {
      const response = await getContent(gateway, id, { "if-none-match": known });
      expect([response.status, await response.text()]).toEqual([304, ""]);
      expect(response.headers.get("etag")).toBe(etag);
    }
    expect((await getContent(gateway, id, { "if-none-match": '"other"' })).status).toBe(200);
    const range = "bytes=1-2";
    for (const wanted of [etag, `"other", ${etag}`, "*"]) {
      expect((await getContent(gateway, id, { range, "if-match": wanted })).status).toBe(206);
    }
    for (const gone of ['"other"', `W/${etag}`, etag.slice(1, -1)]) {
      const response = await getContent(gateway, id, { range, "if-match": gone });
      await expectError(response, 412, "precondition_failed");
    }
    expect((await getContent(gateway, id, { range, "if-range": etag })).status).toBe(206);
    expect((await getContent(gateway, id, { range, "if-range": '"old"' })).status).toBe(200);
  });

  test("is told about by HEAD without its bytes", async () => {
    const { id } = await uploaded(gateway, "user_data", new Uint8Array(3_000_000));
    const response = await gateway.request("HEAD", `/v1/files/${id}/content`);
    expect([response.status, await response.text()]).toEqual([200, ""]);
    expect(response.headers.get("content-length")).toBe("3000000");
  });

  test("of a file that is deleted while it is read is read to its end", async () => {
    const content = new Uint8Array(24 * 1024 * 1024);
    for (let at = 0; at < content.length; at += 4_096) content[at] = (at / 4_096) % 251;
    const { id } = await uploaded(gateway, "user_data", content);
    const before = await gateway.countStored();
    const reader = (await getContent(gateway, id)).body!.getReader();
    const hash = createHash("sha256").update((await reader.read()).value!);
    expect((await gateway.request("DELETE", `/v1/files/${id}`)).status).toBe(200);
    await until("its bytes are gone", async () => (await gateway.countStored()) === before - 1);
    await expectError(await getContent(gateway, id), 404, "file_not_found");
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      hash.update(next.value);
    }
    expect(hash.digest("hex")).toBe(createHash("sha256").update(content).digest("hex"));
  });

  test("is to be had without a key by a link, for an hour", async () => {
    const { id } = await uploaded(gateway, "fine-tune", LINE, { filename: "train.jsonl" });
    const response = await gateway.request("GET", `/v1/files/${id}/download_url`);
    const link = (await response.json()) as { url: string; expires_at: number };
    expect(link).toEqual({
      id,
      object: "file.download_url",
      url: expect.any(String),
      expires_at: expect.any(Number),
    } as never);
    expect(link.expires_at * 1_000 - clock.nowMs()).toBeWithin(HOUR_MS - 1_001, HOUR_MS + 1);
    const content = await fetch(link.url);
    expect([content.status, await content.text()]).toEqual([200, LINE]);
    expect(content.headers.get("content-disposition")).toContain('filename="train.jsonl"');
    expect((await fetch(link.url, { headers: { range: "bytes=0-3" } })).status).toBe(206);
  });

  if (kind === "s3") {
    test("is asked of the store itself by a link", async () => {
      const { id } = await uploaded(gateway, "user_data", "x");
      const response = await gateway.request("GET", `/v1/files/${id}/download_url`);
      const { url } = (await response.json()) as { url: string };
      expect(url).toStartWith(`${gateway.s3!.endpoint}/`);
      expect(new URL(url).searchParams.get("X-Amz-Expires")).toBe("3600");
    });

    test("of a store that is out of order is 503, and comes again with it", async () => {
      const { id } = await uploaded(gateway, "user_data", "x");
      gateway.s3!.faults.push({
        matches: (method) => method === "GET",
        answer: () => new Response("no", { status: 403 }),
      });
      await expectError(await getContent(gateway, id), 503, "overloaded");
      gateway.s3!.faults.splice(0);
      expect((await getContent(gateway, id)).status).toBe(200);
    });
    return;
  }

  test("is refused to a link that was changed, that is another file's, or that is old", async () => {
    const { id } = await uploaded(gateway, "user_data", "secret");
    const other = (await uploaded(gateway, "user_data", "other")).id;
    const response = await gateway.request("GET", `/v1/files/${id}/download_url`);
    const { url, expires_at: expires } = (await response.json()) as {
      url: string;
      expires_at: number;
    };
    for (const changed of [
      url.replace(id, other),
      url.replace(`expires=${expires}`, `expires=${expires + 1}`),
      url.replace(/.$/, (last) => (last === "0" ? "1" : "0")),
    ]) {
      expect(changed).not.toBe(url);
      await expectError(await fetch(changed), 404, "file_not_found");
    }
    for (const broken of ["", "?expires=1", url.replace(/.$/, ""), url.replace("expires=", "a=")]) {
      const path = broken.startsWith("http") ? broken : url.replace(/\?.*/, broken);
      await expectError(await fetch(path), 400, "invalid_query");
    }
    clock.advance(HOUR_MS - 2_000);
    expect((await fetch(url)).status).toBe(200);
    clock.advance(2_000);
    await expectError(await fetch(url), 404, "file_not_found");
  });

  test("is refused to a link whose file was deleted", async () => {
    const { id } = await uploaded(gateway, "user_data", "secret");
    const response = await gateway.request("GET", `/v1/files/${id}/download_url`);
    const { url } = (await response.json()) as { url: string };
    await gateway.request("DELETE", `/v1/files/${id}`);
    await expectError(await fetch(url), 404, "file_not_found");
  });
});
