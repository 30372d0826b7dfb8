import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { expectError } from "../support/error-envelope.ts";
import {
  type FilesGateway,
  fileBooks,
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

let gateway: FilesGateway;
beforeAll(async () => {
  gateway = await startFilesGateway();
});
afterAll(() => gateway.stop());

const MEGABYTE = 1024 * 1024;
const CHAT = `${JSON.stringify({ messages: [{ role: "user", content: "hé" }] })}\n`;
const BATCH = `${JSON.stringify({
  custom_id: "1",
  method: "POST",
  url: "/v1/chat/completions",
  body: { model: "sandbox/chat", messages: [] },
})}\n`;
const file = (content: string | Uint8Array, name = "file.bin"): File =>
  new File([content as BlobPart], name);

/** Refused, and nothing of it is left. */
async function expectRefused(send: () => Promise<Response>, status: number, code: string) {
  const before = { stored: await gateway.countStored(), ...(await fileBooks(gateway)) };
  const { error } = await expectError(await send(), status, code);
  expect({ stored: await gateway.countStored(), ...(await fileBooks(gateway)) }).toEqual(before);
  return error;
}

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
      const part = file(content);
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

  test("of several megabytes with its purpose at the end is checked and kept", async () => {
    const lines = CHAT.repeat(60_000);
    const response = await sendForm(
      gateway,
      formOf(["file", file(lines)], ["purpose", "fine-tune"]),
    );
    const { id } = (await response.json()) as StoredFile;
    const read = await (await getContent(gateway, id)).bytes();
    const hash = (data: string | Uint8Array) => createHash("sha256").update(data).digest("hex");
    expect(hash(read)).toBe(hash(lines));
    const bad = formOf(["file", file(`${lines}oops\n`)], ["purpose", "fine-tune"]);
    const { message } = await expectRefused(() => sendForm(gateway, bad), 400, "invalid_jsonl");
    expect(message).toContain("Line 60001");
  });
});

describe("a form is refused that", () => {
  const good: [string, File] = ["file", file("x")];
  test.each([
    ["has no file", formOf(["purpose", "user_data"]), "file"],
    ["has no purpose", formOf(good), "purpose"],
    ["has an unknown purpose", formOf(good, ["purpose", "evals"]), "purpose"],
    [
      "names a purpose of the gateway's own",
      formOf(good, ["purpose", "fine-tune-results"]),
      "purpose",
    ],
    ["has two purposes", formOf(["purpose", "batch"], ["purpose", "batch"], good), "purpose"],
    ["has two files", formOf(["purpose", "user_data"], good, good), "file"],
    ["has a file that is a field", formOf(["purpose", "user_data"], ["file", "text"]), "file"],
    ["has a purpose that is a file", formOf(["purpose", file("batch")]), "purpose"],
    ["has an unknown field", formOf(["purpose", "user_data"], good, ["user", "ada"]), "user"],
    [
      "has a file of another name",
      formOf(["purpose", "user_data"], ["upload", file("x")]),
      "upload",
    ],
    ["has a very long purpose", formOf(["purpose", "x".repeat(5_000)], good), "purpose"],
    [
      "has a file with too long a name",
      formOf(["purpose", "batch"], ["file", file("x", "n".repeat(256))]),
      "file",
    ],
  ] as const)("%s, and the part at fault is named", async (_, form, param) => {
    const error = await expectRefused(() => sendForm(gateway, form), 400, "invalid_body");
    expect(error.param).toBe(param);
  });

  test("is none: 415, before anything is read", async () => {
    for (const headers of [
      { "content-type": "application/json" },
      { "content-type": "application/x-www-form-urlencoded" },
      { "content-type": "multipart/form-data; boundary=b", "content-encoding": "gzip" },
      {},
    ] as Record<string, string>[]) {
      const send = () => gateway.request("POST", "/v1/files", undefined, { headers, body: "{}" });
      await expectRefused(send, 415, "unsupported_media_type");
    }
  });

  const raw = (body: string, type = "multipart/form-data; boundary=b") =>
    exchange(gateway, [
      Buffer.from(
        `POST /v1/files HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer ${gateway.secretKey}\r\ncontent-type: ${type}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
      ),
    ]);
  const part = (disposition: string, content: string) =>
    `--b\r\nContent-Disposition: form-data; ${disposition}\r\n\r\n${content}\r\n`;
  const purpose = part('name="purpose"', "user_data");

  test.each([
    ["has no boundary", "x", "multipart/form-data"],
    ["is empty", "", undefined],
    ["never ends", purpose + part('name="file"; filename="a"', "abc"), undefined],
    [
      "ends in the middle of the file",
      `${purpose}--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nabc`,
      undefined,
    ],
    ["ends in the middle of a heading", "--b\r\nContent-Dispo", undefined],
    ["is no form at all", "hello\r\n".repeat(100), undefined],
    [
      "has a file with a name of control characters",
      `${purpose}${part('name="file"; filename="a\x01b"', "abc")}--b--\r\n`,
      undefined,
    ],
    [
      "has a file with a name of later control characters",
      `${purpose}${part('name="file"; filename="a\u0085b"', "abc")}--b--\r\n`,
      undefined,
    ],
    [
      "has much more around its parts than in them",
      `${"x".repeat(70_000)}\r\n${purpose}${part('name="file"; filename="a"', "abc")}--b--\r\n`,
      undefined,
    ],
    ["has hundreds of parts", `${part('name="x"', "1").repeat(300)}--b--\r\n`, undefined],
    ["has a part without a name", `${part("", "1")}--b--\r\n`, undefined],
  ])("%s", async (_, body, type) => {
    await expectRefused(() => raw(body, type), 400, "invalid_body");
  });

  test.each(["base64", "quoted-printable"])(
    "has a part that is encoded as %s: 415",
    async (encoding) => {
      const encoded = (one: string) =>
        one.replace("\r\n\r\n", `\r\nContent-Transfer-Encoding: ${encoding}\r\n\r\n`);
      const content = part('name="file"; filename="a"', "YWJj");
      for (const parts of [
        purpose + encoded(content),
        encoded(content),
        encoded(purpose) + content,
      ]) {
        const send = () => raw(`${parts}--b--\r\n`);
        await expectRefused(send, 415, "unsupported_media_type");
      }
    },
  );

  test.each(["7bit", "8bit", "BINARY"])(
    "but one that says it is as it is (%s) is taken",
    async (encoding) => {
      const head = `name="file"; filename="a"\r\nContent-Transfer-Encoding: ${encoding}`;
      const response = await raw(`${purpose}${part(head, "abc")}--b--\r\n`);
      expect(await response.json()).toMatchObject({ bytes: 3, status: "processed" });
    },
  );

  test("but what its head and tail hold besides is passed over", async () => {
    const body = `preamble\r\n${purpose}${part('name="file"; filename="../../etc/pass\\"wd"', "abc")}--b--\r\nepilogue`;
    const made = (await (await raw(body)).json()) as StoredFile;
    expect(made).toMatchObject({ bytes: 3, status: "processed" });
    expect(made.filename).not.toContain("/");
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
      formOf(["purpose", "vision"], ["file", file(over)]),
      formOf(["file", file(over)], ["purpose", "vision"]),
    ]) {
      const error = await expectRefused(() => sendForm(gateway, form), 413, "payload_too_large");
      expect(error).toMatchObject({ param: "file", message: expect.stringContaining("20 MB") });
    }
  });

  test("a body that says it is larger than 512 MB is 413 before it is read", async () => {
    const head = (bytes: number) =>
      `POST /v1/files HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer ${gateway.secretKey}\r\ncontent-type: multipart/form-data; boundary=b\r\ncontent-length: ${bytes}\r\n\r\n`;
    const refused = () => exchange(gateway, [Buffer.from(head(600 * MEGABYTE))]);
    const error = await expectRefused(refused, 413, "payload_too_large");
    expect(error.message).toContain("512 MB");
  });

  test("other routes take no such sizes: administrative ones 1 MB at most", async () => {
    const body = JSON.stringify({ name: "x".repeat(MEGABYTE) });
    await expectError(await gateway.request("POST", "/v1/keys", body), 413, "payload_too_large");
  });
});

describe("what a purpose wants", () => {
  test.each([
    ["fine-tune", `${CHAT}not json\n`, "line 2", "not valid JSON"],
    ["fine-tune", `${CHAT}\n\n{"messages": []}`, "line 4: messages", "must hold a message"],
    ["fine-tune", "[1]\n", "line 1", "not a JSON object"],
    ["fine-tune", "\n\n", "file", "holds no line"],
    ["fine-tune", "", "file", "holds no line"],
    ["batch", CHAT, "line 1: custom_id", "is missing"],
    ["batch", BATCH + BATCH.replace("POST", "GET"), "line 2: method", "POST"],
  ])("%s: a bad line is named, with what is wrong", async (purpose, content, param, words) => {
    const error = await expectRefused(
      () => upload(gateway, purpose, content),
      400,
      "invalid_jsonl",
    );
    expect(error.param).toBe(param);
    expect(error.message).toContain(words);
  });

  test.each([
    ["text", "hello, this is text", "PNG, JPEG or WEBP"],
    ["a GIF", image("gif", 9, 9), "PNG, JPEG or WEBP"],
    ["nothing", "", "PNG, JPEG or WEBP"],
    ["an SVG", "<svg xmlns='http://www.w3.org/2000/svg'/>", "PNG, JPEG or WEBP"],
    ["an image that is too wide", image("png", 16_385, 1), "16385"],
    ["an image that is too high", image("webp-lossy", 1, 16_383 + 1), "damaged"],
    ["an image that is cut", image("jpeg", 9, 9).subarray(0, 16), "damaged"],
  ])("vision: %s is refused", async (_, content, words) => {
    const error = await expectRefused(
      () => upload(gateway, "vision", content),
      400,
      "invalid_body",
    );
    expect(error).toMatchObject({ param: "file", message: expect.stringContaining(words) });
  });
});
