import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { readdir, readlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Type } from "typebox";
import { createFormReader, type ModelForm } from "../../src/http/model-form.ts";
import { optional } from "../../src/http/route.ts";
import { SpooledUploads } from "../../src/http/spooled-uploads.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { GatewayError } from "../../src/lib/errors.ts";

const PNG = Buffer.concat([
  Buffer.from("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489", "hex"),
  Buffer.alloc(64),
]);
const MEBIBYTE = 1024 * 1024;

const FORM: ModelForm = {
  fields: Type.Object({
    model: Type.String(),
    prompt: optional(Type.String({ maxLength: 32_000 })),
    n: optional(Type.Integer({ minimum: 1 })),
    temperature: optional(Type.Number()),
    stream: optional(Type.Boolean()),
    include: optional(Type.Array(Type.Enum(["logprobs"]))),
    timestamp_granularities: optional(Type.Array(Type.Enum(["word", "segment"]))),
    chunking_strategy: optional(
      Type.Union([
        Type.Literal("auto"),
        Type.Object({ type: Type.Literal("server_vad"), threshold: optional(Type.Number()) }),
      ]),
    ),
    metadata: optional(Type.Object({})),
  }),
  files: {
    image: {
      ...{ isRequired: true, maxFiles: 3, maxBytes: MEBIBYTE, excess: "payload_too_large" },
      ...{ types: new Set(["image/png"]), typeNames: "a PNG" },
    },
    mask: {
      ...{ maxFiles: 1, maxBytes: MEBIBYTE, excess: "invalid_body" },
      ...{ types: new Set(["image/png"]), typeNames: "a PNG" },
    },
  },
};

const folder = mkdtempSync(join(tmpdir(), "passing-"));
afterAll(() => rmSync(folder, { recursive: true }));
const files = new SpooledUploads(folder);
const readForm = createFormReader(FORM);
const pace = { clock: systemClock, minBytesPerSecond: 1 };

let admissions = 0;
function read(body: BodyInit, headers: Record<string, string> = {}) {
  const request = new Request("http://localhost/", { method: "POST", body, headers });
  const connection = {
    owner: "org",
    keepOpenForBody() {},
    async admitLongBody() {
      admissions++;
    },
  };
  return readForm(request, connection, { files, ...pace });
}

type Part = readonly [name: string, value: string | Blob];

function formOf(...parts: Part[]): FormData {
  const form = new FormData();
  for (const [name, value] of parts) {
    if (typeof value === "string") form.append(name, value);
    else form.append(name, value, "a.png");
  }
  return form;
}

const png = new Blob([PNG], { type: "text/html" });
const withImage = (...parts: Part[]) => formOf(["model", "m"], ["image", png], ...parts);

async function refusal(body: BodyInit): Promise<Pick<GatewayError, "code" | "param">> {
  try {
    (await read(body)).release();
  } catch (error) {
    if (error instanceof GatewayError) return { code: error.code, param: error.param };
    throw error;
  }
  throw new Error("it was read");
}

/** Files of the folder, those that are open and gone from it included. */
async function openFiles(): Promise<string[]> {
  if (process.platform !== "linux") return readdirSync(folder);
  const links = await Promise.all(
    (await readdir("/proc/self/fd")).map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => "")),
  );
  return links.filter((link) => link.startsWith(folder));
}

describe("fields of a form", () => {
  test("become what the schema asks for, however the client writes lists and objects", async () => {
    const read_ = await read(
      withImage(
        ["n", "2"],
        ["temperature", "0.5"],
        ["stream", "true"],
        ["prompt", "12"],
        ["include[]", "logprobs"],
        ["timestamp_granularities", "word"],
        ["timestamp_granularities", "segment"],
        ["chunking_strategy[type]", "server_vad"],
        ["chunking_strategy[threshold]", "0.25"],
        ["metadata", '{"idempotency_key":"k"}'],
        ["unknown", "5"],
        ["other[a][]", "x"],
      ),
    );
    expect(read_.fields).toEqual({
      model: "m",
      n: 2,
      temperature: 0.5,
      stream: true,
      prompt: "12",
      include: ["logprobs"],
      timestamp_granularities: ["word", "segment"],
      chunking_strategy: { type: "server_vad", threshold: 0.25 },
      metadata: { idempotency_key: "k" },
      unknown: "5",
      other: { a: ["x"] },
    });
    read_.release();
    const whole = await read(
      withImage(["timestamp_granularities", '["word"]'], ["chunking_strategy", "auto"]),
    );
    expect(whole.fields).toMatchObject({
      timestamp_granularities: ["word"],
      chunking_strategy: "auto",
    });
    whole.release();
  });

  test("of 32,000 characters of any script are taken, and one more is refused", async () => {
    const long = "😀".repeat(16_000);
    const read_ = await read(withImage(["prompt", long]));
    expect(read_.fields.prompt).toBe(long);
    read_.release();
    const tooLong = "x".repeat(32_001);
    expect(await refusal(withImage(["prompt", tooLong]))).toEqual({
      code: "invalid_body",
      param: "prompt",
    });
    expect(await refusal(withImage(["prompt", "x".repeat(140_000)]))).toEqual({
      code: "invalid_body",
      param: "prompt",
    });
  });

  test.each([
    ["a text for an integer", "n", "two"],
    ["an exponent for an integer", "n", "1e1"],
    ["a number below its least", "n", "0"],
    ["a boolean in another spelling", "stream", "True"],
    ["a number that is infinite", "temperature", "1e999"],
    ["an item that the list may not hold", "include[]", "everything"],
    ["a member where there is a text", "prompt[a]", "x"],
    ["a NUL", "prompt", "a\0b"],
    ["bytes that are no UTF-8", "prompt", "\ufffd"],
    ["a name that would change all objects", "metadata[__proto__]", "x"],
    ["more levels than any client writes", "a[b][c][d][e][f]", "x"],
    ["a name with half a bracket", "a[b", "x"],
    ["a text for a file", "image", "x"],
  ])("are refused with their name: %s", async (_, name, value) => {
    const { code, param } = await refusal(withImage([name, value]));
    expect(code).toBe("invalid_body");
    expect(param).toStartWith(name.replace(/\[\]$/, "").slice(0, 3));
  });

  test("given twice, or as a list and a text, are refused", async () => {
    expect(await refusal(withImage(["n", "1"], ["n", "1"]))).toMatchObject({ param: "n" });
    expect(await refusal(withImage(["x", "1"], ["x[]", "1"]))).toMatchObject({ param: "x[]" });
  });
});

describe("files of a form", () => {
  test("of one name come in their order, typed by their bytes, and are read as often as wanted", async () => {
    const second = Buffer.concat([PNG, Buffer.from("second")]);
    const read_ = await read(
      formOf(
        ["image[]", png],
        ["model", "m"],
        ["image", new Blob([second])],
        ["mask", png],
        ["prompt", "p"],
      ),
    );
    const { image, mask } = read_.files;
    expect(
      image!.map(({ name, contentType, sizeBytes }) => [name, contentType, sizeBytes]),
    ).toEqual([
      ["image.png", "image/png", PNG.length],
      ["image.png", "image/png", second.length],
    ]);
    expect(mask).toHaveLength(1);
    for (const _ of [1, 2]) {
      expect(Buffer.from(await new Response(image![1]!.stream()).bytes())).toEqual(second);
      expect(Buffer.from(await image![1]!.bytes())).toEqual(second);
    }
    read_.release();
  });

  test("are typed and read though the memory of their pieces was freed when these were written", async () => {
    const part = `--b\r\nContent-Disposition: form-data; name="image"; filename="m.png"\r\n\r\n`;
    const end = `\r\n--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n`;
    const pieces = [Buffer.from(part), PNG, Buffer.alloc(65_536, 1), Buffer.from(end)];
    const body = new ReadableStream<Uint8Array>({
      async pull(controller) {
        await Bun.sleep(1);
        const piece = pieces.shift();
        // In memory of its own, as the pieces of a request are.
        if (piece === undefined) controller.close();
        else controller.enqueue(new Uint8Array(piece));
      },
    });
    const read_ = await read(body, { "content-type": "multipart/form-data; boundary=b" });
    expect(read_.files.image![0]).toMatchObject({
      contentType: "image/png",
      sizeBytes: PNG.length + 65_536,
    });
    read_.release();
  });

  test("are gone from the disk when the request ends, and no reader gets another file's bytes", async () => {
    const body = Buffer.concat([PNG, Buffer.alloc(900_000)]);
    const read_ = await read(formOf(["model", "m"], ["image", new Blob([body])]));
    expect(readdirSync(folder)).toEqual([]);
    expect(await openFiles()).toHaveLength(1);
    const [image] = read_.files.image!;
    const reader = image!.stream().getReader();
    await reader.read();
    const underWay = image!.bytes();
    read_.release();
    read_.release();
    expect(Buffer.from(await underWay)).toEqual(body);
    await expect(reader.read()).rejects.toThrow("released");
    await Bun.sleep(20);
    expect(await openFiles()).toEqual([]);
  });

  test.each<[string, FormData, string]>([
    ["none", formOf(["model", "m"]), "image"],
    ["more than the rule allows", withImage(["mask", png], ["mask", png]), "mask"],
    [
      "more than the rule allows, of a list",
      withImage(["image", png], ["image", png], ["image", png]),
      "image",
    ],
    ["of a name that is no file's", withImage(["model2", png]), "model2"],
    ["empty", formOf(["model", "m"], ["image", new Blob([])]), "image"],
    ["HTML", formOf(["model", "m"], ["image", new Blob(["<html>"])]), "image"],
    [
      "a file that is too large for its rule",
      withImage(["mask", new Blob([PNG, Buffer.alloc(MEBIBYTE)])]),
      "mask",
    ],
  ])("are refused, and nothing of them stays: %s", async (_, body, param) => {
    expect(await refusal(body)).toEqual({ code: "invalid_body", param });
    await Bun.sleep(5);
    expect(await openFiles()).toEqual([]);
  });

  test("of more bytes than all may have are refused by the stated length, before one is read", async () => {
    const request = (headers: Record<string, string>) =>
      read(new ReadableStream({ pull: () => Promise.reject(new Error("was read")) }), {
        "content-type": "multipart/form-data; boundary=b",
        ...headers,
      });
    expect(request({ "content-length": String(5 * MEBIBYTE) })).rejects.toMatchObject({
      code: "payload_too_large",
    });
    expect(request({ "content-type": "application/json" })).rejects.toMatchObject({
      code: "unsupported_media_type",
    });
    expect(request({ "content-encoding": "gzip" })).rejects.toMatchObject({
      code: "unsupported_media_type",
    });
  });

  test("that never end are cut off at the first byte too many, and their client is admitted before", async () => {
    let sent = 0;
    const head = `--b\r\nContent-Disposition: form-data; name="mask"; filename="m.png"\r\n\r\n`;
    const endless = new ReadableStream<Uint8Array>({
      pull(controller) {
        controller.enqueue(sent === 0 ? Buffer.from(head) : Buffer.alloc(65_536));
        sent++;
      },
    });
    const before = admissions;
    const reading = read(endless, { "content-type": "multipart/form-data; boundary=b" });
    await expect(reading).rejects.toMatchObject({ code: "invalid_body", param: "mask" });
    expect(admissions).toBe(before + 1);
    expect(sent).toBeLessThan(24);
    await Bun.sleep(5);
    expect(await openFiles()).toEqual([]);
  });

  test("of a client that goes away are removed", async () => {
    const part = `--b\r\nContent-Disposition: form-data; name="image"; filename="m.png"\r\n\r\n`;
    let isFirst = true;
    const cut = new ReadableStream<Uint8Array>({
      pull(controller) {
        if (isFirst) controller.enqueue(Buffer.concat([Buffer.from(part), PNG]));
        else controller.error(new Error("gone"));
        isFirst = false;
      },
    });
    const reading = read(cut, { "content-type": "multipart/form-data; boundary=b" });
    await expect(reading).rejects.toMatchObject({ code: "client_closed_request" });
    await Bun.sleep(5);
    expect(await openFiles()).toEqual([]);
  });

  test("on a disk that takes none are a 503", async () => {
    const unwritable = new SpooledUploads("/dev/null/passing");
    const connection = { owner: "o", keepOpenForBody() {}, async admitLongBody() {} };
    const request = new Request("http://localhost/", { method: "POST", body: withImage() });
    const reading = readForm(request, connection, { files: unwritable, ...pace });
    await expect(reading).rejects.toMatchObject({ code: "overloaded" });
  });
});

test("forms are told apart by what they hold, not by their boundaries", async () => {
  const texts: string[] = [];
  for (const body of [
    withImage(["prompt", "a"]),
    withImage(["prompt", "a"]),
    withImage(["prompt", "b"]),
    formOf(["model", "m"], ["image", new Blob([PNG, "x"])], ["prompt", "a"]),
  ]) {
    const { text, release } = await read(body);
    texts.push(text);
    release();
  }
  expect(texts[0]).toBe(texts[1]!);
  expect(new Set(texts).size).toBe(3);
});
