import { isFields } from "../../lib/json.ts";
import type { Usage } from "../../lib/usage.ts";
import { ProviderFailure } from "../interface.ts";
import type { GeneratedImage, GeneratedImages, ImageEvent, ImageFacts } from "../media.ts";
import { SseDecoder } from "../sse-decoder.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { eventOf } from "../transport/stream-event.ts";
import { failureInside, failureOfErrorBody } from "./failure-mapping.ts";

/** Largest event of a stream. It contains one image in base64. */
const MAX_EVENT_BYTES = 16 * 1024 * 1024;

type Fields = Readonly<Record<string, unknown>>;

/** Reads a list of images. Throws ProviderFailure if the text is not one. */
export const openAiImageList = new AnswerRead(
  import.meta.url,
  (text, { failureContext }: { readonly failureContext: FailureContext }): GeneratedImages => {
    const answer = parsedAnswer(text);
    if (!isFields(answer)) throw brokenAnswer("JSON that is not an object");
    const { data, usage } = answer;
    // xAI reports its cost in an `error` that is otherwise empty. An answer with images has not failed.
    const hasImages = Array.isArray(data) && data.length > 0;
    const failure = hasImages ? undefined : failureInside(answer, failureContext);
    if (failure !== undefined) throw failure;
    if (!hasImages) throw brokenAnswer("no images");
    return { kind: "images", images: data.map(imageOf), usage: usageOf(usage), ...factsOf(answer) };
  },
);

function imageOf(item: unknown): GeneratedImage {
  if (!isFields(item)) throw brokenAnswer("an invalid image");
  // At xAI: the image was created and is withheld.
  if (item.respect_moderation === false) {
    throw new ProviderFailure("content_policy", "The provider withheld an image (moderation).");
  }
  const { b64_json: base64, url, revised_prompt: revised } = item;
  const revisedPrompt = textOf(revised);
  const prompt = revisedPrompt !== undefined && { revisedPrompt };
  if (textOf(base64) !== undefined)
    return { data: { base64: withoutHead(base64 as string) }, ...prompt };
  if (textOf(url) !== undefined) return { data: { url: url as string }, ...prompt };
  throw brokenAnswer("an image without data");
}

/** Returns plain base64. Some servers send data URLs instead. */
function withoutHead(base64: string): string {
  return base64.startsWith("data:") ? base64.slice(base64.indexOf(",") + 1) : base64;
}

function factsOf({ size, quality, background, output_format: format }: Fields): ImageFacts {
  return {
    size: textOf(size),
    quality: textOf(quality),
    background: textOf(background),
    outputFormat: textOf(format),
  };
}

/**
 * Returns the reported usage. Undefined if none is reported, or an impossible one. Without details, all output tokens
 * count as image tokens.
 */
function usageOf(raw: unknown): Usage | undefined {
  if (!isFields(raw)) return undefined;
  const { input_tokens: promptTokens, output_tokens: completionTokens } = raw;
  if (!isCount(promptTokens) || !isCount(completionTokens)) return undefined;
  if (promptTokens + completionTokens === 0) return undefined;
  const ofInput = isFields(raw.input_tokens_details) ? raw.input_tokens_details : {};
  const ofOutput = isFields(raw.output_tokens_details) ? raw.output_tokens_details : {};
  const ofCache = isFields(ofInput.cached_tokens_details) ? ofInput.cached_tokens_details : {};
  const cachedPromptTokens = within(ofInput.cached_tokens, promptTokens);
  const cachedImagePromptTokens = within(ofCache.image_tokens, cachedPromptTokens);
  // The tokens of images include cached ones.
  const imagePromptTokens = Math.max(
    0,
    within(ofInput.image_tokens, promptTokens - cachedPromptTokens + cachedImagePromptTokens) -
      cachedImagePromptTokens,
  );
  return {
    promptTokens,
    cachedPromptTokens,
    cacheWriteTokens: 0,
    completionTokens,
    reasoningTokens: 0,
    estimated: false,
    ...(imagePromptTokens > 0 && { imagePromptTokens }),
    ...(cachedImagePromptTokens > 0 && { cachedImagePromptTokens }),
    imageCompletionTokens: within(ofOutput.image_tokens ?? completionTokens, completionTokens),
  };
}

/**
 * Reads a stream of images (https://platform.openai.com/docs/api-reference/images-streaming). It ends with the last of
 * the requested images.
 */
export class ImageEventDecoder extends SseDecoder<ImageEvent> {
  readonly #count: number;
  readonly #context: FailureContext;
  #images = 0;
  #hasFailed = false;

  constructor(count: number, context: FailureContext) {
    super(MAX_EVENT_BYTES);
    this.#count = count;
    this.#context = context;
  }

  override get isOver(): boolean {
    return this.#hasFailed || this.#images >= this.#count;
  }

  override push(bytes: Uint8Array, events: ImageEvent[]): void {
    try {
      super.push(bytes, events);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw brokenAnswer("an event that is too large");
    }
  }

  override end(events: ImageEvent[]): void {
    super.end(events);
    if (this.#images === 0 && !this.#hasFailed) throw brokenAnswer("a stream without an image");
  }

  protected override take(data: string, events: ImageEvent[]): void {
    const event = eventOf(data);
    const type = textOf(event.type) ?? "";
    if (type === "error" || isFields(event.error)) {
      this.#hasFailed = true;
      const body = isFields(event.error) ? event : { error: event };
      events.push({ type: "error", failure: failureOfErrorBody(body, this.#context) });
      return;
    }
    const base64 = textOf(event.b64_json);
    if (base64 === undefined) return;
    if (type.endsWith(".partial_image")) {
      const index = isCount(event.partial_image_index) ? event.partial_image_index : 0;
      events.push({ type: "partial", index, base64, ...factsOf(event) });
    } else if (type.endsWith(".completed")) {
      this.#images++;
      events.push({ type: "image", base64, usage: usageOf(event.usage), ...factsOf(event) });
    }
  }
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

function within(value: unknown, most: number): number {
  return isCount(value) ? Math.min(value, most) : 0;
}
