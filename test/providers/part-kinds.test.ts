import { expect, test } from "bun:test";
import { PROVIDER_TYPES } from "../../src/platform/config/provider-types.ts";
import { anthropicFields } from "../../src/providers/anthropic/chat-fields.ts";
import { chatFieldsOf } from "../../src/providers/chat-fields.ts";
import { geminiFields } from "../../src/providers/gemini/chat-fields.ts";
import { isAtWebAddress, kindOfPart, type PartKind } from "../../src/providers/part-kinds.ts";

const file = (file_data: unknown) => ({ type: "file", file: { file_data } });

test.each<[{ type: string; file?: unknown; file_id?: string }, PartKind | undefined]>([
  [{ type: "text" }, undefined],
  [{ type: "refusal" }, undefined],
  [{ type: "image_url" }, "image"],
  [{ type: "input_audio" }, "audio"],
  [{ type: "video_url" }, "video"],
  [{ type: "hologram" }, "other"],
  [{ type: "__proto__" }, "other"],
  [file("data:application/pdf;base64,JVBE"), "file"],
  [file("data:text/csv,a;b"), "file"],
  [file("data:,plain"), "file"],
  [file("https://example.com/a.pdf"), "file"],
  [file("JVBERi0="), "file"],
  [file("data:IMAGE/png;base64,AA=="), "image"],
  [file("data:audio/wav;base64,AA=="), "audio"],
  [file("data:video/mp4;base64,AA=="), "video"],
  [file("data:application/zip;base64,AA=="), "binary_file"],
  [{ type: "file", file: { file_id: "file-1" } }, "file_id"],
  [{ type: "file", file: { file_id: "file-1", file_data: "" } }, "file_id"],
  [{ type: "file", file_id: "file-1" }, "file_id"],
  [{ type: "file" }, "file"],
])("%j is of the kind %s", (part, kind) => {
  expect(kindOfPart(part)).toBe(kind);
});

test("each wire tells which kinds its models take", () => {
  const model = { model: "m", modelId: "test/m" };
  const kinds: PartKind[] = ["image", "audio", "video", "file", "binary_file", "file_id", "other"];
  const taken = (fields: ReturnType<typeof chatFieldsOf>) =>
    kinds.filter((kind) => fields.takesPart(kind, model));
  expect(taken(anthropicFields("anthropic"))).toEqual(["image", "file"]);
  expect(taken(geminiFields("google"))).toEqual(kinds.slice(0, 5));
  expect(taken(chatFieldsOf("deepseek"))).toEqual(["other"]);
  expect(taken(chatFieldsOf("openai"))).not.toContain("video");
  expect(taken(chatFieldsOf("openai-compatible"))).toEqual(kinds);
  // Which of them a model takes is for its provider to say.
  for (const type of Object.keys(PROVIDER_TYPES)) {
    expect(chatFieldsOf(type).takesPart("other", model)).toBeTrue();
  }
});

test.each<[Record<string, unknown> & { type: string }, boolean]>([
  [{ type: "image_url", image_url: { url: "https://example.com/a.png" } }, true],
  [{ type: "image_url", image_url: "HTTP://example.com/a.png" }, true],
  [{ type: "image_url", image_url: { url: "data:image/png;base64,AA==" } }, false],
  [{ type: "image_url", image_url: { url: "s3://bucket/a.png" } }, false],
  [{ type: "image_url", image_url: null }, false],
  [{ type: "video_url", video_url: { url: "https://example.com/a.mp4" } }, true],
  [{ type: "file", file: { file_data: "https://example.com/a.pdf" } }, true],
  [{ type: "file", file: { file_data: "JVBERi0=" } }, false],
  [{ type: "file", file: { file_id: "https://example.com" } }, false],
  [{ type: "input_audio", input_audio: { data: "AA==", format: "wav" } }, false],
  [{ type: "__proto__" }, false],
])("whether %j is to be fetched: %p", (part, expected) => {
  expect(isAtWebAddress(part)).toBe(expected);
});
