import { describe, expect, test } from "bun:test";
import type { CatalogueModel } from "../../src/lib/catalogue-model.ts";
import {
  estimatedPromptTokens,
  promptSize,
  promptTokenBound,
} from "../../src/services/chat/cost-bound.ts";

const CONTEXT_LENGTH = 128_000;
const model = { contextLength: CONTEXT_LENGTH } as CatalogueModel;
const DATA_URL = "data:image/png;base64,AA==";

const sizeOf = (message: Record<string, unknown>) =>
  promptSize({ messages: [{ role: "user", ...message }] });

describe.each<[string, Record<string, unknown>]>([
  ["an image by URL", { type: "image_url", image_url: { url: "https://example.com/a.png" } }],
  ["an image within the request", { type: "image_url", image_url: { url: DATA_URL } }],
  ["an image by a bare URL", { type: "image_url", image_url: "https://example.com/a.png" }],
  ["an image by a bare data URL", { type: "image_url", image_url: DATA_URL }],
  ["a sound", { type: "input_audio", input_audio: { data: "AA==", format: "wav" } }],
  ["a file", { type: "file", file: { file_id: "file_1" } }],
  ["a part of a type nobody knows", { type: "hologram", hologram: "https://example.com/a" }],
  ["a part of a type that objects have by nature", { type: "constructor" }],
])("%s", (_name, part) => {
  test("is bounded by the context length, and estimated as some thousand tokens at most", () => {
    const size = sizeOf({ content: [{ type: "text", text: "what is this?" }, part] });
    expect(promptTokenBound(size, model)).toBe(CONTEXT_LENGTH);
    expect(estimatedPromptTokens(size, model)).toBeGreaterThanOrEqual(1_000);
    expect(estimatedPromptTokens(size, model)).toBeLessThan(2_000);
  });
});

test.each(["audio", "images"])("media that a message has as %s is bounded likewise", (field) => {
  const size = sizeOf({ content: "and this?", [field]: [{ id: "audio_1" }] });
  expect(promptTokenBound(size, model)).toBe(CONTEXT_LENGTH);
  const none = sizeOf({ content: "and this?", [field]: null });
  expect(promptTokenBound(none, model)).toBeLessThan(100);
});

test("text is bounded by its bytes, whether it comes in parts or not", () => {
  const text = "é".repeat(100);
  for (const content of [text, [{ type: "text", text }]]) {
    const bound = promptTokenBound(sizeOf({ content }), model);
    expect(bound).toBeGreaterThanOrEqual(200);
    expect(bound).toBeLessThan(300);
  }
});

test("the bytes of an image are not estimated as text", () => {
  const url = `data:image/jpeg;base64,${"A".repeat(1_400_000)}`;
  const size = sizeOf({ content: [{ type: "image_url", image_url: { url } }] });
  expect(estimatedPromptTokens(size, model)).toBeLessThan(2_000);
});
