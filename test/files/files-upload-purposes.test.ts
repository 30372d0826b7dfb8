import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { BATCH, CHAT, expectRefused } from "../support/file-uploads.ts";
import { type FilesGateway, startFilesGateway, upload } from "../support/files-gateway.ts";
import { image } from "../support/image-heads.ts";

let gateway: FilesGateway;
beforeAll(async () => {
  gateway = await startFilesGateway();
});
afterAll(() => gateway.stop());

describe("what a purpose wants", () => {
  test.each([
    ["fine-tune", `${CHAT}not json\n`, "line 2", "not valid JSON"],
    ["fine-tune", `${CHAT}\n\n{"messages": []}`, "line 4: messages", "must hold a message"],
    ["fine-tune", "[1]\n", "line 1", "not a JSON object"],
    ["fine-tune", "\n\n", "file", "has no line"],
    ["fine-tune", "", "file", "has no line"],
    ["batch", CHAT, "line 1: custom_id", "is missing"],
    ["batch", BATCH + BATCH.replace("POST", "GET"), "line 2: method", "POST"],
  ])("%s: a bad line is named, with what is wrong", async (purpose, content, param, words) => {
    const error = await expectRefused(
      gateway,
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
      gateway,
      () => upload(gateway, "vision", content),
      400,
      "invalid_body",
    );
    expect(error).toMatchObject({ param: "file", message: expect.stringContaining(words) });
  });
});
