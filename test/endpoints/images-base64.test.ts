import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  base64Length,
  bytesOfBase64,
  isBase64,
  writeBase64,
} from "../../src/inference/endpoints/images/base64-pieces.ts";
import { imagesOf } from "../../src/inference/endpoints/images/decoded-images.ts";
import { renderImages } from "../../src/inference/endpoints/images/render-images.ts";
import { image } from "../support/image-heads.ts";
import { measureLoopHold, shortestHoldMs } from "../support/loop-hold.ts";

const MEBIBYTE = 1024 * 1024;

describe("base64 of images", () => {
  test("is what other code makes of it, there and back", async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ minLength: 1, maxLength: 200 }), async (bytes) => {
        const text = Buffer.from(bytes).toString("base64");
        expect(await bytesOfBase64(text, 200)).toEqual(Buffer.from(bytes));
        expect(isBase64(text, 200)).toBe(true);
        const into = Buffer.alloc(base64Length(bytes.length) + 2, "-");
        await writeBase64(Buffer.from(bytes), into, 1);
        expect(into.toString()).toBe(`-${text}-`);
      }),
    );
  });

  test("is so for pieces of a long one", async () => {
    for (const length of [786_431, 786_432, 786_433, 3_000_001]) {
      const bytes = Buffer.alloc(length);
      for (let at = 0; at < length; at += 997) bytes[at] = at % 256;
      const text = bytes.toString("base64");
      expect((await bytesOfBase64(text, length))!.equals(bytes)).toBe(true);
      const into = Buffer.alloc(text.length);
      await writeBase64(bytes, into, 0);
      expect(into.toString() === text).toBe(true);
    }
  });

  test.each([
    "",
    "A",
    "AAA",
    "AAAAA",
    "AA=A",
    "A===",
    "====",
    "AAAA====",
    "AA==AAAA",
    "AAA\n",
    "AA-_",
    "AA A",
    "AAA\0",
    "ÄÄÄÄ",
  ])("is not %p", async (text) => {
    expect(await bytesOfBase64(text, 100)).toBeUndefined();
    expect(isBase64(text, 100)).toBe(false);
  });

  test("is not what stands for more bytes than allowed, nor what is wrong far behind", async () => {
    expect(await bytesOfBase64("AAAA", 2)).toBeUndefined();
    const long = "A".repeat(4 * MEBIBYTE);
    expect(await bytesOfBase64(`${long}A*AA`, 10 * MEBIBYTE)).toBeUndefined();
    expect(await bytesOfBase64(`${long.slice(4)}====`, 10 * MEBIBYTE)).toBeUndefined();
  });
});

test("an answer of 32 MB in base64 does not hold the event loop for 50 ms", async () => {
  const bytes = Buffer.concat([image("png", 3_840, 2_160), Buffer.alloc(24 * MEBIBYTE, 7)]);
  const generated = {
    kind: "images",
    images: [{ data: { base64: bytes.toString("base64") } }],
    usage: undefined,
  } as const;
  const held = await shortestHoldMs(50, async () => {
    const hold = measureLoopHold();
    const { images } = await imagesOf(generated, 1, undefined as never, undefined as never);
    const { buffer, start, end } = await renderImages(
      images,
      undefined,
      { prompt: "" } as never,
      false,
    );
    expect(end - start).toBeGreaterThan(32 * MEBIBYTE);
    expect(buffer.subarray(start, start + 20).toString()).toBe('[{"b64_json":"iVBORw');
    return hold.stop();
  });
  expect(held).toBeLessThan(50);
});
