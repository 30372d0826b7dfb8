import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { expectRefused, fileOf } from "../support/file-uploads.ts";
import {
  type FilesGateway,
  formOf,
  type StoredFile,
  sendForm,
  startFilesGateway,
} from "../support/files-gateway.ts";
import { exchange } from "../support/raw-http.ts";

let gateway: FilesGateway;
beforeAll(async () => {
  gateway = await startFilesGateway();
});
afterAll(() => gateway.stop());

describe("a form is refused that", () => {
  const good: [string, File] = ["file", fileOf("x")];
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
    ["has a purpose that is a file", formOf(["purpose", fileOf("batch")]), "purpose"],
    ["has an unknown field", formOf(["purpose", "user_data"], good, ["user", "ada"]), "user"],
    [
      "has a file of another name",
      formOf(["purpose", "user_data"], ["upload", fileOf("x")]),
      "upload",
    ],
    ["has a very long purpose", formOf(["purpose", "x".repeat(5_000)], good), "purpose"],
    [
      "has a file with too long a name",
      formOf(["purpose", "batch"], ["file", fileOf("x", "n".repeat(256))]),
      "file",
    ],
  ] as const)("%s, and the part at fault is named", async (_, form, param) => {
    const error = await expectRefused(gateway, () => sendForm(gateway, form), 400, "invalid_body");
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
      await expectRefused(gateway, send, 415, "unsupported_media_type");
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
    await expectRefused(gateway, () => raw(body, type), 400, "invalid_body");
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
        await expectRefused(gateway, send, 415, "unsupported_media_type");
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

  test.each([
    ["application/octet-stream", 'name="purpose"', 'name="file"; filename="a"'],
    ["text/plain; charset=utf-8", 'name="purpose"', 'name="file"; filename="a"'],
  ])("but one that calls every part %s is taken", async (type, ...dispositions) => {
    const [field, content] = dispositions.map((one) => `${one}\r\nContent-Type: ${type}`);
    const response = await raw(`${part(field!, "user_data")}${part(content!, "abc")}--b--\r\n`);
    expect(await response.json()).toMatchObject({ bytes: 3, purpose: "user_data" });
  });

  test.each([
    ["na\u00efve \u65e5\u672c.txt", "na\u00efve \u65e5\u672c.txt"],
    ["../../\u00e9tc/passwd", "passwd"],
    ["c:\\\u00e9.txt", "\u00e9.txt"],
  ])(
    "but one whose filename is written as .NET writes %s is taken under it",
    async (name, kept) => {
      const word = `=?utf-8?B?${Buffer.from(name).toString("base64")}?=`;
      const star = `filename*=utf-8''${encodeURIComponent(name)}`;
      for (const more of ["", `; ${star}`]) {
        const head = `name="file"; filename="${word}"${more}`;
        const response = await raw(`${purpose}${part(head, "abc")}--b--\r\n`);
        expect(await response.json()).toMatchObject({ filename: kept });
      }
    },
  );

  test("that hides a name of control characters, or none, in one of .NET's", async () => {
    for (const name of ["a\0b", "a\r\nb", "..", "a/.."]) {
      const word = `=?utf-8?B?${Buffer.from(name).toString("base64")}?=`;
      const content = part(`name="file"; filename="${word}"`, "abc");
      await expectRefused(gateway, () => raw(`${purpose}${content}--b--\r\n`), 400, "invalid_body");
    }
  });

  test("but what its head and tail hold besides is passed over", async () => {
    const body = `preamble\r\n${purpose}${part('name="file"; filename="../../etc/pass\\"wd"', "abc")}--b--\r\nepilogue`;
    const made = (await (await raw(body)).json()) as StoredFile;
    expect(made).toMatchObject({ bytes: 3, status: "processed" });
    expect(made.filename).not.toContain("/");
  });
});
