import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { type ChatGateway, chatBody, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { exchange, sendRaw } from "../support/raw-http.ts";

const MEBIBYTE = 1_048_576;
const MAX_DEPTH = 64;

let gateway: ChatGateway;
let slug: string;
beforeAll(async () => {
  gateway = await startChatGateway();
  slug = gateway.modelThat({ do: "complete" });
});
afterAll(() => gateway.stop());
afterEach(() => {
  gateway.upstream.served.length = 0;
});

const post = (body: string | Uint8Array<ArrayBuffer>, headers: Record<string, string> = {}) =>
  fetch(`${gateway.baseUrl}/v1/chat/completions`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${gateway.secretKey}`,
      "content-type": "application/json",
      ...headers,
    },
    body,
  });

/** A valid request with `text` as one more member. */
const withMember = (text: string) => `${JSON.stringify(chatBody(slug)).slice(0, -1)},${text}}`;
const nested = (levels: number, open: string, close: string) =>
  open.repeat(levels) + close.repeat(levels);

function expectNothingCalled(): void {
  expect(gateway.upstream.served).toEqual([]);
}

describe("a body that is no JSON is 400 invalid_json", () => {
  const BODIES = {
    empty: "",
    "white space": " \n\t ",
    truncated: '{"model": "a',
    "two values": "{} {}",
    "a trailing comma": '{"model": "a",}',
    "single quotes": "{'model': 'a'}",
    comments: '{"model": "a" /* b */}',
    NaN: '{"model": "a", "temperature": NaN}',
    "a raw control character": '{"model": "a\u0001"}',
    "a raw NUL": '{"model": "a\u0000"}',
    "a hexadecimal number": '{"seed": 0x10}',
    "form data": "model=a&messages=b",
    HTML: "<html></html>",
  };
  test.each(Object.entries(BODIES))("%s", async (_, body) => {
    await expectError(await post(body), 400, "invalid_json");
    expectNothingCalled();
  });

  test("bytes that are no UTF-8", async () => {
    const text = Buffer.from(JSON.stringify(chatBody(slug, { user: "AB" })));
    for (const bytes of [
      [0xff],
      [0xc3],
      [0xed, 0xa0, 0x80],
      [0xf5, 0x80, 0x80, 0x80],
      [0xc0, 0xaf],
    ]) {
      const at = text.indexOf("AB");
      const body = Buffer.concat([text.subarray(0, at), Buffer.from(bytes), text.subarray(at + 2)]);
      await expectError(await post(new Uint8Array(body)), 400, "invalid_json");
    }
    for (const encoding of ["utf16le", "latin1"] as const) {
      const body = new Uint8Array(Buffer.from(JSON.stringify({ model: "ü" }), encoding));
      expect((await post(body)).status).toBe(400);
    }
    expectNothingCalled();
  });
});

describe("JSON that is no request is 400 invalid_body", () => {
  const VALUES = ["null", "[]", '[{"model":"a"}]', '"text"', "5", "true", "{}", "1e400", "-0"];
  test.each(VALUES)("%s", async (body) => {
    await expectError(await post(body), 400, "invalid_body");
    expectNothingCalled();
  });
});

describe("nesting beyond 64 levels is refused", () => {
  test.each([
    ["arrays", "[", "]", "0"],
    ["objects", '{"a":', "}", "0"],
  ])("%s", async (_, open, close, core) => {
    const member = (levels: number) =>
      withMember(`"extra":${open.repeat(levels)}${core}${close.repeat(levels)}`);
    // The body itself is the first level.
    expect((await post(member(MAX_DEPTH - 1))).status).toBe(200);
    await expectError(await post(member(MAX_DEPTH)), 400, "invalid_body");
    await expectError(await post(member(100_000)), 400, "invalid_body");
  });

  test("also where it is nothing but nesting, closed or not", async () => {
    for (const body of [nested(100_000, "[", "]"), nested(1_000_000, "[", "]")]) {
      await expectError(await post(body), 400, "invalid_body");
    }
    // Levels are counted before anything is parsed.
    for (const body of ["[".repeat(100_000), '{"a":'.repeat(100_000)]) {
      await expectError(await post(body), 400, "invalid_body");
    }
    expectNothingCalled();
  });
});

/** Sent beyond the limit: more would lie unread, and might reset the connection before its answer. */
const BEYOND_BYTES = 1_024;

describe("a body over 32 MB is 413", () => {
  const head = (framing: string) =>
    Buffer.from(
      [
        "POST /v1/chat/completions HTTP/1.1",
        "host: gateway.test",
        "connection: close",
        `authorization: Bearer ${gateway.secretKey}`,
        "content-type: application/json",
        framing,
        "\r\n",
      ].join("\r\n"),
    );
  const padded = (bytes: number) => {
    const start = withMember('"extra":"');
    return `${start.slice(0, -1)}${"x".repeat(bytes - start.length - 1)}"}`;
  };

  test("by its stated length", async () => {
    const response = await post(padded(33 * MEBIBYTE));
    await expectError(response, 413, "payload_too_large");
    expectNothingCalled();
  });

  test("by its length where it comes in chunks without a stated one", async () => {
    const piece = new Uint8Array(MEBIBYTE).fill(0x20);
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        for (let pieces = 0; pieces < 32; pieces++) controller.enqueue(piece);
        controller.enqueue(piece.subarray(0, BEYOND_BYTES));
        controller.close();
      },
    });
    const response = await fetch(`${gateway.baseUrl}/v1/chat/completions`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${gateway.secretKey}`,
        "content-type": "application/json",
      },
      body,
    });
    await expectError(response, 413, "payload_too_large");
    expectNothingCalled();
  });

  test("and is not read further: one in chunks without an end is refused where it is too large", async () => {
    const piece = new Uint8Array(MEBIBYTE).fill(0x20);
    const frame = (bytes: Uint8Array) => [
      Buffer.from(`${bytes.length.toString(16)}\r\n`),
      bytes,
      Buffer.from("\r\n"),
    ];
    const whole = Array.from({ length: 32 }, () => frame(piece)).flat();
    const beyond = frame(piece.subarray(0, BEYOND_BYTES));
    const response = await exchange(gateway, [
      head("transfer-encoding: chunked"),
      ...whole,
      ...beyond,
    ]);
    await expectError(response, 413, "payload_too_large");
  });

  test("and is not waited for: a length that is only stated is refused at once", async () => {
    const length = `content-length: ${600 * MEBIBYTE}`;
    const response = await exchange(gateway, [head(length)]);
    await expectError(response, 413, "payload_too_large");
  });

  test("32 MB are accepted", async () => {
    const response = await post(padded(32 * MEBIBYTE));
    expect(response.status).toBe(200);
  });
});

describe("a content type that is not JSON in UTF-8 is 415", () => {
  const REFUSED = [
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "text/plain",
    "text/json",
    "application/octet-stream",
    "application/json; charset=latin1",
    "application/json; charset=utf-16",
    'application/json; charset="iso-8859-1"',
    "application/jsonp",
    "application/xml, application/json",
    "json",
  ];
  test.each(REFUSED)("%s", async (contentType) => {
    const response = await post(JSON.stringify(chatBody(slug)), { "content-type": contentType });
    await expectError(response, 415, "unsupported_media_type");
    expectNothingCalled();
  });

  test("none at all, or an empty one", async () => {
    const headers = [["authorization", `Bearer ${gateway.secretKey}`]] as const;
    const body = JSON.stringify(chatBody(slug));
    for (const contentType of [[], [["content-type", ""]]] as const) {
      const response = await sendRaw(gateway, { headers: [...headers, ...contentType], body });
      await expectError(response, 415, "unsupported_media_type");
    }
    expectNothingCalled();
  });

  test.each(["gzip", "br", "deflate", "zstd", "identity, gzip", "x-none"])(
    "one that says of itself that it is compressed: %s",
    async (encoding) => {
      const plain = JSON.stringify(chatBody(slug));
      const body = encoding.endsWith("gzip") ? Bun.gzipSync(plain) : plain;
      const response = await sendRaw(gateway, {
        headers: [
          ["authorization", `Bearer ${gateway.secretKey}`],
          ["content-type", "application/json"],
          ["content-encoding", encoding],
        ],
        body,
      });
      const { error } = await expectError(response, 415, "unsupported_media_type");
      expect(error.param).toBe("Content-Encoding");
      expect(response.headers.get("accept-encoding")).toBe("identity");
      expectNothingCalled();
    },
  );

  test("but identity is no compression", async () => {
    for (const encoding of ["identity", "Identity, identity", ""]) {
      const response = await post(JSON.stringify(chatBody(slug)), { "content-encoding": encoding });
      expect(response.status).toBe(200);
    }
  });

  const ACCEPTED = [
    "application/json",
    "APPLICATION/JSON",
    "application/json;charset=utf-8",
    'application/json ; charset="UTF-8"',
    "application/json; charset=us-ascii",
    "application/vnd.api+json",
  ];
  test.each(ACCEPTED)("but %s is accepted", async (contentType) => {
    const response = await post(JSON.stringify(chatBody(slug)), { "content-type": contentType });
    expect(response.status).toBe(200);
  });
});

test("the books are closed afterwards", () => expectBooksClosed(gateway));
