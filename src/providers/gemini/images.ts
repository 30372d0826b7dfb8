import { isFields } from "../../lib/json.ts";
import { ratioOfSize } from "../image-models.ts";
import { ProviderFailure } from "../interface.ts";
import type { GeneratedImage, GeneratedImages, ImageCall } from "../media.ts";
import { AnswerRead } from "../thread-work.ts";
import { MAX_IMAGES_BYTES, parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import { FileInJson, jsonWithFiles } from "../transport/json-with-files.ts";
import { refusalOf } from "./answer-reader.ts";
import type { BatchOptions, PostToModel } from "./embeddings.ts";
import { failureInside } from "./failure-mapping.ts";
import { isFiltered } from "./finish-reason.ts";
import { reportedUsage } from "./reported-usage.ts";

type Fields = Readonly<Record<string, unknown>>;

/**
 * Returns images by one of Google's models: Imagen by `predict`
 * (https://docs.cloud.google.com/vertex-ai/generative-ai/docs/model-reference/imagen-api), Gemini by
 * `generateContent` (https://ai.google.dev/gemini-api/docs/image-generation). Rejects with ProviderFailure.
 */
export async function geminiImages(call: ImageCall, post: PostToModel): Promise<GeneratedImages> {
  const { model, modelId = model, count } = call;
  const isImagen = `${model} ${modelId}`.includes("imagen");
  const method = isImagen ? "predict" : "generateContent";
  const body = isImagen ? JSON.stringify(prediction(call)) : contents(call);
  return post(method, body, googleImages, count, MAX_IMAGES_BYTES);
}

function prediction(call: ImageCall): Fields {
  const { prompt, count, size, aspectRatio, outputFormat, outputCompression } = call;
  const hasOutput = outputFormat !== undefined || outputCompression !== undefined;
  return {
    instances: [{ prompt }],
    parameters: {
      sampleCount: count,
      aspectRatio: aspectRatio ?? ratioOfSize(size),
      // Without this field Google omits filtered images without a reason.
      includeRaiReason: true,
      ...(hasOutput && {
        outputOptions: {
          mimeType: outputFormat && `image/${outputFormat}`,
          compressionQuality: outputCompression,
        },
      }),
    },
  };
}

function contents(call: ImageCall): string | ReadableStream<Uint8Array> {
  const { prompt, images, size, aspectRatio = ratioOfSize(size), seed, fields } = call;
  const parts = images.map((file) => ({
    inlineData: { mimeType: file.contentType, data: new FileInJson(file) },
  }));
  return jsonWithFiles({
    contents: [{ role: "user", parts: [{ text: prompt }, ...parts] }],
    safetySettings: fields.safety_settings,
    generationConfig: {
      responseModalities: ["IMAGE"],
      ...(aspectRatio !== undefined && { imageConfig: { aspectRatio } }),
      seed,
    },
  });
}

/** Reads answers of both methods. Throws ProviderFailure if there is no image. */
export const googleImages = new AnswerRead(
  import.meta.url,
  (text, { failureContext }: BatchOptions): GeneratedImages => {
    const answer = parsedAnswer(text);
    const failure = failureInside(answer, failureContext);
    if (failure !== undefined) throw failure;
    if (!isFields(answer)) throw brokenAnswer("JSON that is not an object");
    return Array.isArray(answer.predictions) ? predicted(answer.predictions) : generated(answer);
  },
);

/**
 * Returns the images of an answer of `predict`. The entry of a filtered image contains the reason instead.
 */
function predicted(predictions: readonly unknown[]): GeneratedImages {
  const listed = predictions.filter(isFields);
  const images: GeneratedImage[] = [];
  let format: string | undefined;
  for (const { bytesBase64Encoded: base64, mimeType, prompt } of listed) {
    if (typeof base64 !== "string" || base64 === "") continue;
    format ??= formatOf(mimeType);
    // The prompt is reported if the model has rewritten it.
    const revisedPrompt = typeof prompt === "string" && prompt !== "" ? prompt : undefined;
    images.push({ data: { base64 }, ...(revisedPrompt !== undefined && { revisedPrompt }) });
  }
  if (images.length > 0) return { kind: "images", images, usage: undefined, outputFormat: format };
  const reasons = listed.map(({ raiFilteredReason }) => raiFilteredReason);
  const reason = reasons.find((text): text is string => typeof text === "string");
  if (reason === undefined) throw brokenAnswer("no images");
  throw new ProviderFailure("content_policy", reason.slice(0, 2_000));
}

/**
 * Returns the images of an answer of `generateContent`. Images of the model's thoughts do not belong to its
 * answer.
 */
function generated(answer: Fields): GeneratedImages {
  const refusal = refusalOf(answer.promptFeedback);
  if (refusal !== undefined) throw refusal;
  const candidates = Array.isArray(answer.candidates) ? answer.candidates.filter(isFields) : [];
  const parts = candidates.flatMap(({ content }) =>
    isFields(content) && Array.isArray(content.parts) ? content.parts.filter(isFields) : [],
  );
  const images: GeneratedImage[] = [];
  let format: string | undefined;
  for (const { inlineData, thought } of parts) {
    if (thought === true || !isFields(inlineData)) continue;
    const { mimeType, data } = inlineData;
    if (typeof data !== "string" || data === "") continue;
    format ??= formatOf(mimeType);
    images.push({ data: { base64: data } });
  }
  if (images.length === 0) throw withoutImage(candidates);
  const usage = reportedUsage(answer.usageMetadata)?.usage;
  return { kind: "images", images, usage, outputFormat: format };
}

function withoutImage(candidates: readonly Fields[]): ProviderFailure {
  for (const { finishReason, finishMessage } of candidates) {
    if (typeof finishReason !== "string" || !isFiltered(finishReason)) continue;
    const detail = typeof finishMessage === "string" ? `: ${finishMessage}` : "";
    const message = `The provider withheld the image (${finishReason})${detail}`.slice(0, 2_000);
    return new ProviderFailure("content_policy", message);
  }
  return brokenAnswer("no image");
}

function formatOf(mimeType: unknown): string | undefined {
  return typeof mimeType === "string" && mimeType.startsWith("image/")
    ? mimeType.slice("image/".length)
    : undefined;
}
