import { expect, test } from "bun:test";
import { kindOfImage } from "../../src/lib/image-header.ts";
import { image } from "../support/image-heads.ts";
import { startStopwatch } from "../support/stopwatch.ts";

test.each([
  ["png", image("png", 1024, 1536), { contentType: "image/png", width: 1024, height: 1536 }],
  ["jpeg", image("jpeg", 640, 480), { contentType: "image/jpeg", width: 640, height: 480 }],
  ["webp", image("webp-lossless", 3, 5), { contentType: "image/webp", width: 3, height: 5 }],
  ["gif", image("gif", 8, 8), { contentType: "image/gif" }],
  ["avif", Buffer.from("\0\0\0\x1cftypavif\0\0\0\0avif"), { contentType: "image/avif" }],
  ["svg", Buffer.from("<svg xmlns='x'/>"), { contentType: "image/svg+xml" }],
  [
    "svg behind a prologue",
    Buffer.from('\ufeff<?xml version="1.0"?>\n<!-- a --><!-- b > -->\n<svg width="1">'),
    { contentType: "image/svg+xml" },
  ],
])("what an image is comes from its bytes: %s", (_, bytes, kind) => {
  expect(kindOfImage(bytes)).toEqual(kind);
});

test.each([
  ["nothing", ""],
  ["HTML", "<!doctype html><svg>"],
  ["HTML with an SVG in it", "<html><body><svg></svg>"],
  ["JSON", '{"error":"<svg>"}'],
  ["a PNG without its dimensions", "\x89PNG\r\n\x1a\n"],
  ["a comment without an end", `<!--${"-".repeat(5_000)}<svg>`],
  ["an archive", "PK\x03\x04"],
])("what is no image is none: %s", (_, text) => {
  expect(kindOfImage(Buffer.from(text, "latin1"))).toBeUndefined();
});

test("a JPEG with a megabyte in front of its dimensions is one, without them", () => {
  const filled = Buffer.concat([Buffer.from([0xff, 0xd8]), Buffer.alloc(30 * 1024 * 1024, 0xff)]);
  const elapsedMs = startStopwatch();
  expect(kindOfImage(filled)).toEqual({ contentType: "image/jpeg" });
  expect(elapsedMs()).toBeLessThan(200);
  expect(kindOfImage(filled.subarray(0, 1_000))).toBeUndefined();
});

test("hostile beginnings are told at once", () => {
  const parts = ["<!---->", "<?xml>", "<!--", "<!doctype svg", " ", "<?xml "];
  const elapsedMs = startStopwatch();
  for (const part of parts) {
    expect(kindOfImage(Buffer.from(part.repeat(100_000)))).toBeUndefined();
  }
  expect(elapsedMs()).toBeLessThan(500);
});
