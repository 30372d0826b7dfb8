import { describe, expect, test } from "bun:test";
import { checkOf, UndecidedCheck } from "../../src/jobs/files/file-check.ts";
import { MAX_LINE_BYTES } from "../../src/jobs/files/json-lines-check.ts";
import { GatewayError } from "../../src/lib/errors.ts";
import type { UploadPurpose } from "../../src/lib/file-record.ts";
import { readImageHeader } from "../../src/lib/image-header.ts";
import { type ImageKind, image } from "../support/image-heads.ts";

const message = (role: string, content: unknown, more: object = {}) => ({ role, content, ...more });
const chat = (...messages: unknown[]): string => JSON.stringify({ messages });
const GOOD = chat(message("system", "s"), message("user", "u"), message("assistant", "a"));
const envelope = (changed: object = {}): string =>
  JSON.stringify({ custom_id: "a", method: "POST", url: "/v1/embeddings", body: {}, ...changed });

/** The fault of a content, in one piece, byte after byte, and by a check that is told the purpose late. */
function faultOf(purpose: UploadPurpose, content: string | Uint8Array): GatewayError | undefined {
  const bytes = new Uint8Array(Buffer.from(content as string));
  const faults = [bytes.byteLength, 1, 7].map((pieceBytes) => {
    if (pieceBytes < 7 && bytes.byteLength > 10_000) return undefined;
    const check = checkOf(purpose)!;
    const late = new UndecidedCheck();
    return [check, late].map((one) =>
      thrownBy(() => {
        for (let at = 0; at < bytes.byteLength; at += Math.max(1, pieceBytes)) {
          // Whoever owns the piece writes over it afterwards.
          const piece = bytes.slice(at, at + Math.max(1, pieceBytes));
          one.write(piece);
          piece.fill(0);
        }
        one.end();
        if (one === late) late.decide(purpose);
      }),
    );
  });
  const [fault, ...others] = faults.flatMap((pair) => pair ?? []);
  for (const other of others) expect(other).toEqual(fault as GatewayError);
  return fault;
}

function thrownBy(run: () => void): GatewayError | undefined {
  try {
    run();
  } catch (error) {
    if (error instanceof GatewayError) return error;
    throw error;
  }
  return undefined;
}

describe("training lines are taken that", () => {
  test.each([
    ["are in chat format", `${GOOD}\n${GOOD}\n`],
    ["end without a line break", GOOD],
    ["end in CRLF, with blank lines between", `${GOOD}\r\n\r\n  \r\n${GOOD}\r\n`],
    ["begin with a byte order mark", `\ufeff${GOOD}\n`],
    ["hold other characters than ASCII", chat(message("user", "日本 \u2028 🎈"))],
    ["have content in parts", chat(message("user", [{ type: "text", text: "x" }]))],
    [
      "call tools",
      chat(
        message("assistant", null, { tool_calls: [{ id: "1", type: "function" }] }),
        message("tool", "42", { tool_call_id: "1" }),
      ),
    ],
    [
      "call functions without any content",
      '{"messages":[{"role":"assistant","function_call":{}}]}',
    ],
    [
      "carry fields for the provider",
      JSON.stringify({ messages: [message("user", "x")], tools: [], x: 1 }),
    ],
  ])("%s", (_, content) => {
    expect(faultOf("fine-tune", content)).toBeUndefined();
  });
});

test("a file of blank lines takes no time of anybody", () => {
  for (const blank of ["\n", " \r\n"]) {
    const bytes = new Uint8Array(Buffer.from(blank.repeat(24_000_000 / blank.length)));
    const before = process.cpuUsage();
    expect(thrownBy(() => checkOf("fine-tune")!.write(bytes))).toBeUndefined();
    const { user, system } = process.cpuUsage(before);
    expect((user + system) / 1_000).toBeLessThan(800);
  }
});

describe("a training line is refused, and named, that", () => {
  test.each([
    ["is no JSON", "{", "line 2", "is not valid JSON"],
    [
      "holds more small members than are parsed in a moment",
      `{"messages":[{"role":"user","content":"x"}],"x":{${'"":1,'.repeat(200_000)}"":1}}`,
      "line 2",
      "holds more than 200000 objects, arrays and members",
    ],
    ["is a bare value", '"x"', "line 2", "is not a JSON object"],
    ["is null", "null", "line 2", "is not a JSON object"],
    ["has two values", `${GOOD}${GOOD}`, "line 2", "is not valid JSON"],
    ["has no messages", "{}", "line 2: messages", "is missing"],
    ["has messages of another kind", '{"messages":{}}', "line 2: messages", "must be an array"],
    ["has no message", chat(), "line 2: messages", "must hold a message"],
    ["has a message that is none", chat("x"), "line 2: messages.0", "must be an object"],
    ["has no role", '{"messages":[{"content":"x"}]}', "line 2: messages.0.role", "is missing"],
    [
      "has a role that is none",
      chat(message("robot", "x")),
      "line 2: messages.0.role",
      "must be one of",
    ],
    [
      "has a role of Object's own",
      chat(message("toString", "x")),
      "line 2: messages.0.role",
      "must be one of",
    ],
    [
      "has no content",
      '{"messages":[{"role":"user"}]}',
      "line 2: messages.0.content",
      "is missing",
    ],
    [
      "has null for a user's content",
      chat(message("user", null)),
      "line 2: messages.0.content",
      "must not be null",
    ],
    [
      "has a number for content",
      chat(message("user", "x"), message("user", 5)),
      "line 2: messages.1.content",
      "must be a string or",
    ],
    [
      "has no parts",
      chat(message("user", [])),
      "line 2: messages.0.content",
      "must be a string or",
    ],
    [
      "answers no call",
      chat(message("tool", "x")),
      "line 2: messages.0.tool_call_id",
      "must be a string",
    ],
    [
      "has calls that are none",
      chat(message("assistant", null, { tool_calls: "x" })),
      "line 2: messages.0.tool_calls",
      "must be an array",
    ],
    [
      "has tools that are none",
      JSON.stringify({ messages: [message("user", "x")], tools: 5 }),
      "line 2: tools",
      "must be an array",
    ],
    [
      "is nested too deeply",
      `{"messages":${"[".repeat(100)}${"]".repeat(100)}}`,
      "line 2",
      "nested deeper",
    ],
    [
      "holds a NUL character",
      '{"messages":[{"role":"user","content":"a\\u0000b"}]}',
      "line 2",
      "NUL character",
    ],
    [
      "holds a lone surrogate, in a name",
      '{"messages":[{"role":"user","content":"a","\\ud800":1}]}',
      "line 2",
      "lone surrogate",
    ],
    ["begins with a byte order mark", `\ufeff${GOOD}`, "line 2", "is not valid JSON"],
  ])("%s", (_, line, param, words) => {
    const fault = faultOf("fine-tune", `${GOOD}\n${line}\n${GOOD}\n`)!;
    expect(fault).toMatchObject({ code: "invalid_jsonl", param });
    expect(fault.message).toContain(words);
    expect(fault.message).toStartWith("Line 2 of the file");
  });

  test("stands behind blank ones", () => {
    const fault = faultOf("fine-tune", `\n${GOOD}\n\r\n\n \t\n  {\n`);
    expect(fault).toMatchObject({ code: "invalid_jsonl", param: "line 6" });
  });

  test("is not UTF-8", () => {
    const fault = faultOf("fine-tune", Buffer.from(`${GOOD}\n{"messages":"\xff"}\n`, "latin1"));
    expect(fault).toMatchObject({ code: "invalid_jsonl", param: "line 2" });
  });

  test("nests so deeply that no parser follows", () => {
    const deep = `${GOOD}\n${"[".repeat(1_000_000)}\n`;
    expect(faultOf("fine-tune", deep)).toMatchObject({ code: "invalid_jsonl", param: "line 2" });
  });

  test("is longer than a line may be, before all of it has come", () => {
    const check = checkOf("fine-tune")!;
    const piece = new Uint8Array(64 * 1024).fill(0x20);
    let taken = 0;
    const fault = thrownBy(() => {
      for (; taken < MAX_LINE_BYTES * 4; taken += piece.byteLength) check.write(piece);
    });
    expect(fault).toMatchObject({ code: "invalid_jsonl", param: "line 1" });
    expect(taken).toBeLessThanOrEqual(MAX_LINE_BYTES);
  });
});

describe("a batch's line", () => {
  test("is taken in its envelope", () => {
    expect(faultOf("batch", `${envelope()}\n${envelope({ custom_id: "b" })}`)).toBeUndefined();
  });

  test.each([
    ["custom_id", { custom_id: undefined }, "is missing"],
    ["custom_id", { custom_id: "" }, "not empty"],
    ["custom_id", { custom_id: 5 }, "must be a string"],
    ["method", { method: "GET" }, '"POST"'],
    ["url", { url: "https://example.com/v1/embeddings" }, "path of an endpoint"],
    ["url", { url: "/v1/../admin" }, "path of an endpoint"],
    ["body", { body: "x" }, "must be an object"],
    ["body", { body: undefined }, "is missing"],
    ["model", { model: "x" }, "is not a field"],
  ])("is refused for its %s: %p", (field, changed, words) => {
    const fault = faultOf("batch", `${envelope()}\n${envelope(changed)}`)!;
    expect(fault).toMatchObject({ code: "invalid_jsonl", param: `line 2: ${field}` });
    expect(fault.message).toContain(words);
  });
});

describe("images", () => {
  const kinds: [ImageKind, string][] = [
    ["png", "image/png"],
    ["jpeg", "image/jpeg"],
    ["webp-lossy", "image/webp"],
    ["webp-lossless", "image/webp"],
    ["webp-extended", "image/webp"],
  ];

  test.each(kinds)(
    "of the format %s are measured, and as soon as their dimensions have come",
    (kind, contentType) => {
      const bytes = image(kind, 640, 481);
      expect(readImageHeader(bytes)).toEqual({ contentType, width: 640, height: 481 });
      for (let length = 0; length < bytes.byteLength; length++) {
        const seen = readImageHeader(bytes.subarray(0, length));
        if (seen !== "unfinished") expect(seen).toEqual({ contentType, width: 640, height: 481 });
      }
      expect(faultOf("vision", bytes)).toBeUndefined();
    },
  );

  test.each(["png", "jpeg", "webp-lossless", "webp-extended"] as const)(
    "of the format %s may have 16384 pixels a side and no more",
    (kind) => {
      expect(faultOf("vision", image(kind, 16_384, 16_384))).toBeUndefined();
      if (kind === "webp-lossless") return;
      for (const [width, height] of [
        [16_385, 1],
        [1, 16_385],
      ] as const) {
        expect(faultOf("vision", image(kind, width, height))!.message).toContain("16384");
      }
    },
  );

  test("without dimensions are refused", () => {
    for (const kind of ["png", "jpeg"] as const) {
      expect(faultOf("vision", image(kind, 0, 5))!.message).toContain("damaged");
    }
    const endless = Buffer.concat([
      image("jpeg", 1, 1).subarray(0, 2),
      Buffer.from([0xff, 0xe0, 0, 2]),
    ]);
    expect(faultOf("vision", endless)!.message).toContain("PNG, JPEG");
    const scan = Buffer.from([0xff, 0xd8, 0xff, 0xda, ...Array(40).fill(0)]);
    expect(faultOf("vision", scan)!.message).toContain("damaged");
  });

  test("that hide their dimensions behind a megabyte are refused there", () => {
    const check = checkOf("vision")!;
    const segment = Buffer.concat([Buffer.from([0xff, 0xe0, 0xff, 0xff]), Buffer.alloc(65_533)]);
    check.write(Buffer.from([0xff, 0xd8]));
    const fault = thrownBy(() => {
      for (let n = 0; n < 20; n++) check.write(segment);
    });
    expect(fault!.message).toContain("damaged");
  });

  test("of random bytes never throw anything but a refusal", () => {
    for (let round = 0; round < 2_000; round++) {
      const bytes = crypto.getRandomValues(new Uint8Array(64));
      const kind = kinds[round % kinds.length]![0];
      bytes.set(image(kind, 5, 5).subarray(0, round % 24));
      faultOf("vision", bytes);
    }
  });
});
