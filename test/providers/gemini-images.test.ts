import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import { GoogleGenAI } from "@google/genai";
import {
  API_KEY,
  imageCall,
  imageFailureOf,
  imageProvider,
  imagesOf,
  mediaFile,
  startImageUpstream,
} from "../support/image-upstream.ts";

/** What is sent equals what Google's own package sends. There is no recording of these answers: they are as documented. */

const upstream = startImageUpstream();
afterAll(() => upstream.stop());

const PNG = Buffer.from("iVBORw0KGgoAAAANSUhEUgAA", "base64");
const answered = (parts: object[], more: object = {}) => ({
  candidates: [{ content: { role: "model", parts }, finishReason: "STOP", index: 0 }],
  usageMetadata: {
    promptTokenCount: 7,
    candidatesTokenCount: 1_290,
    promptTokensDetails: [{ modality: "TEXT", tokenCount: 7 }],
    candidatesTokensDetails: [{ modality: "IMAGE", tokenCount: 1_290 }],
  },
  ...more,
});
const image = { inlineData: { mimeType: "image/png", data: "aW1hZ2U=" } };

beforeEach(() => {
  upstream.asked.length = 0;
  upstream.answer = ({ path }) =>
    Response.json(
      path.endsWith(":predict")
        ? { predictions: [{ bytesBase64Encoded: "aW1hZ2U=", mimeType: "image/png" }] }
        : answered([image]),
    );
});

const google = imageProvider("google", `${upstream.origin}/v1beta`);
const vertex = imageProvider("vertex", `${upstream.origin}/v1`);
const IMAGEN = "imagen-4.0-generate-001";
const sdk = new GoogleGenAI({
  apiKey: API_KEY,
  httpOptions: { baseUrl: upstream.origin, apiVersion: "v1beta" },
});

describe("requests", () => {
  test("a Gemini model gets what Google's own package sends it", async () => {
    const model = "gemini-2.5-flash-image";
    await google.image!(imageCall(model, { size: "1536x1024", seed: 7 }));
    await sdk.models.generateContent({
      model,
      contents: "a boat",
      config: { responseModalities: ["IMAGE"], imageConfig: { aspectRatio: "3:2" }, seed: 7 },
    });
    const [ours, theirs] = upstream.asked;
    expect(ours!.path).toBe(theirs!.path);
    expect(ours!.body).toEqual(theirs!.body);
    expect(ours!.headers.get("x-goog-api-key")).toBe(API_KEY);
  });

  test("images to edit follow the prompt, as inline data", async () => {
    const images = [mediaFile(PNG), mediaFile(PNG.subarray(4), "b.jpg", "image/jpeg")];
    await google.image!(imageCall("gemini-3-pro-image", { task: "edit", images }));
    const parts = [
      { text: "a boat" },
      { inlineData: { mimeType: "image/png", data: PNG.toString("base64") } },
      { inlineData: { mimeType: "image/jpeg", data: PNG.subarray(4).toString("base64") } },
    ];
    await sdk.models.generateContent({
      model: "gemini-3-pro-image",
      contents: [{ role: "user", parts }],
      config: { responseModalities: ["IMAGE"] },
    });
    expect(upstream.asked[0]!.body).toEqual(upstream.asked[1]!.body);
  });

  test("Imagen gets at Vertex AI what Google's own package sends it", async () => {
    const call = { count: 2, aspectRatio: "16:9", outputFormat: "jpeg", outputCompression: 60 };
    await vertex.image!(imageCall(IMAGEN, call));
    const cloud = new GoogleGenAI({
      vertexai: true,
      apiKey: API_KEY,
      httpOptions: { baseUrl: upstream.origin, apiVersion: "v1" },
    });
    await cloud.models.generateImages({
      model: IMAGEN,
      prompt: "a boat",
      config: {
        numberOfImages: 2,
        aspectRatio: "16:9",
        includeRaiReason: true,
        outputMimeType: "image/jpeg",
        outputCompressionQuality: 60,
      },
    });
    const [ours, theirs] = upstream.asked;
    expect(ours!.path).toBe(`/v1/publishers/google/models/${IMAGEN}:predict`);
    expect(ours!.path).toBe(theirs!.path);
    expect(ours!.body).toEqual(theirs!.body);
  });

  test("Gemini's models have addresses of their own at Vertex AI", async () => {
    await vertex.image!(imageCall("gemini-2.5-flash-image"));
    expect(upstream.asked[0]!.path).toBe(
      "/v1/publishers/google/models/gemini-2.5-flash-image:generateContent",
    );
  });
});

describe("answers", () => {
  test("the image with its tokens; what the model draws while it thinks is no answer", async () => {
    upstream.answer = () =>
      Response.json(answered([{ ...image, thought: true }, { text: "Here it is." }, image]));
    expect(await imagesOf(google.image!(imageCall("gemini-3-pro-image")))).toEqual({
      kind: "images",
      images: [{ data: { base64: "aW1hZ2U=" } }],
      outputFormat: "png",
      usage: {
        promptTokens: 7,
        cachedPromptTokens: 0,
        cacheWriteTokens: 0,
        completionTokens: 1_290,
        reasoningTokens: 0,
        estimated: false,
        imageCompletionTokens: 1_290,
      },
    });
  });

  test("of Imagen's images those that were not filtered, with rewritten prompts", async () => {
    const predictions = [
      { raiFilteredReason: "Unable to show generated images." },
      { bytesBase64Encoded: "MQ==", mimeType: "image/jpeg", prompt: "a red boat" },
    ];
    upstream.answer = () => Response.json({ predictions });
    const made = await imagesOf(vertex.image!(imageCall(IMAGEN, { count: 2 })));
    expect(made.images).toEqual([{ data: { base64: "MQ==" }, revisedPrompt: "a red boat" }]);
    expect(made).toMatchObject({ outputFormat: "jpeg", usage: undefined });
  });
});

describe("failures", () => {
  const failed = (body: unknown, status = 200, model = "gemini-2.5-flash-image") => {
    const provider = model === IMAGEN ? vertex : google;
    upstream.answer = () =>
      typeof body === "string" ? new Response(body, { status }) : Response.json(body, { status });
    return imageFailureOf(provider.image!(imageCall(model)));
  };
  const ended = (finishReason: string, finishMessage?: string) => ({
    candidates: [{ finishReason, finishMessage, index: 0 }],
  });

  test.each([
    ["a blocked prompt", { promptFeedback: { blockReason: "PROHIBITED_CONTENT" } }],
    ["a withheld image", ended("IMAGE_SAFETY", "Unable to show the generated image.")],
    ["a filtered answer", ended("PROHIBITED_CONTENT")],
  ])("%s is the content policy", async (_name, body) => {
    expect((await failed(body)).kind).toBe("content_policy");
  });

  test("Imagen's filter is the content policy, in its words", async () => {
    const raiFilteredReason = "The prompt could not be submitted. Support codes: 42";
    const failure = await failed({ predictions: [{ raiFilteredReason }] }, 200, IMAGEN);
    expect(failure.kind).toBe("content_policy");
    expect(failure.message).toBe(raiFilteredReason);
  });

  test.each([
    ["an answer of text alone", answered([{ text: "Which boat?" }]), 200, "unavailable"],
    ["NO_IMAGE", ended("NO_IMAGE"), 200, "unavailable"],
    ["nothing", {}, 200, "unavailable"],
    ["no predictions", { predictions: [] }, 200, "unavailable"],
    ["HTML", "<html></html>", 200, "unavailable"],
    ["429", { error: { code: 429, message: "Resource exhausted" } }, 429, "rate_limited"],
    ["503", { error: { code: 503, message: "overloaded" } }, 503, "unavailable"],
    ["400", { error: { code: 400, message: "bad", status: "INVALID_ARGUMENT" } }, 400, "rejected"],
  ] as const)("%s", async (_name, body, status, kind) => {
    expect((await failed(body, status)).kind).toBe(kind);
  });
});
