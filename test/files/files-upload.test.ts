import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { expectError } from "../support/error-envelope.ts";
import { BATCH, CHAT, expectRefused, fileOf } from "../support/file-uploads.ts";
import {
  type FilesGateway,
  formOf,
  getContent,
  type StoredFile,
  sendForm,
  startFilesGateway,
  upload,
  uploaded,
} from "../support/files-gateway.ts";
import { image } from "../support/image-heads.ts";
import { exchange } from "../support/raw-http.ts";

const MEGABYTE = 1024 * 1024;

let gateway: FilesGateway;
beforeAll(async () => {
  gateway = await startFilesGateway();
});
afterAll(() => gateway.stop());

describe("an upload", () => {
  test("is answered with the file object of the spec", async () => {
    const beforeSeconds = Math.floor(Date.now() / 1_000);
    const response = await upload(gateway, "user_data", "hello", { filename: "a.txt" });
    expect(response.status).toBe(200);
    const body = (await response.json()) as StoredFile;
    expect(body).toEqual({
      id: expect.stringMatching(/^file_[0-9a-f]{32}$/),
      object: "file",
      bytes: 5,
      filename: "a.txt",
      purpose: "user_data",
      created_at: expect.any(Number),
      expires_at: null,
      status: "processed",
      status_details: null,
    });
    expect(body.created_at).toBeWithin(beforeSeconds, beforeSeconds + 60);
    const again = await gateway.request("GET", `/v1/files/${body.id}`);
    expect((await again.json()) as StoredFile).toEqual(body);
  });

  test("of the same bytes twice makes two files", async () => {
    const [one, two] = [
      await uploaded(gateway, "assistants", "same"),
      await uploaded(gateway, "assistants", "same"),
    ];
    expect(one.id).not.toBe(two.id);
    await gateway.request("DELETE", `/v1/files/${one.id}`);
    expect(await (await getContent(gateway, two.id)).text()).toBe("same");
  });

  test.each([
    ["fine-tune", CHAT],
    ["batch", BATCH],
    ["assistants", "\0any bytes\xff"],
    ["vision", image("png", 3, 4)],
    ["user_data", ""],
  ] as const)(
    "for %s is kept to the byte, its purpose before or behind it",
    async (purpose, content) => {
      const part = fileOf(content);
      for (const form of [
        formOf(["purpose", purpose], ["file", part]),
        formOf(["file", part], ["purpose", purpose]),
      ]) {
        const response = await sendForm(gateway, form);
        expect(response.status).toBe(200);
        const { id, bytes } = (await response.json()) as StoredFile;
        expect(bytes).toBe(part.size);
        const read = await (await getContent(gateway, id)).bytes();
        expect(Buffer.from(read)).toEqual(Buffer.from(await part.bytes()));
      }
    },
  );

  test("for vision is kept for 24 hours", async () => {
    const made = await uploaded(gateway, "vision", image("jpeg", 10, 10));
    expect(made.expires_at! - made.created_at).toBe(86_400);
  });

  type Part = [name: string, value: string];
  const expiry = (anchor: string, seconds: string): Part[] => [
    ["expires_after[anchor]", anchor],
    ["expires_after[seconds]", seconds],
  ];
  const asJson = (json: string): Part[] => [["expires_after", json]];

  test.each<[Part[], number]>([
    [expiry("created_at", "3600"), 3_600],
    [asJson('{"anchor": "created_at", "seconds": 2592000}'), 2_592_000],
  ])("expires when it says: %j", async (parts, seconds) => {
    const file = fileOf("abc");
    for (const form of [
      formOf(...parts, ["purpose", "user_data"], ["file", file]),
      formOf(["file", file], ["purpose", "user_data"], ...parts.toReversed()),
    ]) {
      const made = (await (await sendForm(gateway, form)).json()) as StoredFile;
      expect(made.expires_at! - made.created_at).toBe(seconds);
    }
    const seen = formOf(...parts, ["purpose", "vision"], ["file", fileOf(image("png", 3, 4))]);
    const { expires_at, created_at } = (await (await sendForm(gateway, seen)).json()) as StoredFile;
    expect(expires_at! - created_at).toBe(Math.min(seconds, 86_400));
  });

  test.each<[Part[]]>([
    [[["expires_after[anchor]", "created_at"]]],
    [[["expires_after[seconds]", "3600"]]],
    [expiry("last_active_at", "3600")],
    [expiry("created_at", "3599")],
    [expiry("created_at", "2592001")],
    [expiry("created_at", "1e4")],
    [[...expiry("created_at", "3600"), ["expires_after[days]", "1"]]],
    [[...expiry("created_at", "3600"), ["expires_after[anchor]", "created_at"]]],
    [asJson("3600")],
    [asJson('{"anchor": "created_at", "seconds": "3600"}')],
    [asJson('{"anchor": "created_at"}')],
  ])("is refused if it says so wrongly: %j", async (parts) => {
    const form = formOf(["purpose", "user_data"], ["file", fileOf("abc")], ...parts);
    const send = () => sendForm(gateway, form);
    const { param } = await expectRefused(gateway, send, 400, "invalid_body");
    expect(param).toBe("expires_after");
  });

  test("of several megabytes with its purpose at the end is checked and kept", async () => {
    const lines = CHAT.repeat(60_000);
    const response = await sendForm(
      gateway,
      formOf(["file", fileOf(lines)], ["purpose", "fine-tune"]),
    );
    const { id } = (await response.json()) as StoredFile;
    const read = await (await getContent(gateway, id)).bytes();
    const hash = (data: string | Uint8Array) => createHash("sha256").update(data).digest("hex");
    expect(hash(read)).toBe(hash(lines));
    const bad = formOf(["file", fileOf(`${lines}oops\n`)], ["purpose", "fine-tune"]);
    const { message } = await expectRefused(
      gateway,
      () => sendForm(gateway, bad),
      400,
      "invalid_jsonl",
    );
    expect(message).toContain("Line 60001");
  });
});

describe("sizes", () => {
  test("a vision file of 20 MB is taken and one byte more is 413, wherever its purpose stands", async () => {
    const head = image("png", 8, 8);
    const full = new Uint8Array(20 * MEGABYTE);
    full.set(head);
    await uploaded(gateway, "vision", full);
    const over = new Uint8Array(20 * MEGABYTE + 1);
    over.set(head);
    for (const form of [
      formOf(["purpose", "vision"], ["file", fileOf(over)]),
      formOf(["file", fileOf(over)], ["purpose", "vision"]),
    ]) {
      const error = await expectRefused(
        gateway,
        () => sendForm(gateway, form),
        413,
        "payload_too_large",
      );
      expect(error).toMatchObject({ param: "file", message: expect.stringContaining("20 MB") });
    }
  });

  test("a body that says it is larger than 512 MB is 413 before it is read", async () => {
    const head = (bytes: number) =>
      `POST /v1/files HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer ${gateway.secretKey}\r\ncontent-type: multipart/form-data; boundary=b\r\ncontent-length: ${bytes}\r\n\r\n`;
    const refused = () => exchange(gateway, [Buffer.from(head(600 * MEGABYTE))]);
    const error = await expectRefused(gateway, refused, 413, "payload_too_large");
    expect(error.message).toContain("512 MB");
  });

  test("other routes take no such sizes: administrative ones 1 MB at most", async () => {
    const body = JSON.stringify({ name: "x".repeat(MEGABYTE) });
    await expectError(await gateway.request("POST", "/v1/keys", body), 413, "payload_too_large");
  });
});
