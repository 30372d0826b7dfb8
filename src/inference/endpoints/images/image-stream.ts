import type { ByteBuffer } from "../../../lib/byte-buffer.ts";
import { kindOfImage } from "../../../lib/image-header.ts";
import { NO_TOKENS, type Usage } from "../../../lib/usage.ts";
import { type PieceReader, ProviderFailure } from "../../../providers/interface.ts";
import type { ImageEvent, ImageFacts } from "../../../providers/media.ts";
import { StreamedAnswer } from "../../../providers/streamed-answer.ts";
import { isBase64 } from "./base64-pieces.ts";
import type { ImagesResult } from "./cost-bound.ts";
import { type DecodedImages, factsOf } from "./decoded-images.ts";
import { factMembers, imageFrame } from "./render-images.ts";
import type { AcceptedImages } from "./request.ts";

/** Maximum bytes of one complete or partial image. The event loop can process this size in one step. */
const MAX_IMAGE_BYTES = 16 * 1024 * 1024;
/** Characters of base64 that are enough to read an image's dimensions. */
const HEAD_CHARACTERS = 65_536;
/**
 * Tokens metered per image. More than a stream can be ahead of its last checkpoint, so no image is sent
 * before it is charged.
 */
const TOKENS_OF_EVENT = 1_024;

/**
 * A stream of images as the client receives it. The last requested image is held back, so that it is sent
 * with the end of the stream, after the charge.
 */
export class StreamedImages extends StreamedAnswer<readonly ImageEvent[]> {
  readonly #request: AcceptedImages;
  #facts: ImageFacts = {};
  #usage: Usage | undefined;
  #whole = 0;
  #partials = 0;
  /** True if an image has arrived only in part. */
  #isPending = false;
  #last: string | undefined;

  constructor(request: AcceptedImages, output: ByteBuffer, nowSeconds: number) {
    super(output, nowSeconds);
    this.#request = request;
  }

  /** Counts each image by a fixed number, whatever its bytes. */
  override get outputTokens(): number {
    return (this.#whole + this.#partials) * TOKENS_OF_EVENT;
  }

  /** Returns 0, because the number and size of the images are already bounded here. */
  override get outputBytes(): number {
    return 0;
  }

  override get usage(): Usage | undefined {
    return this.#usage;
  }

  /**
   * The images to charge. An image that has begun to arrive counts, because its provider generates and bills
   * it. It does not count if the provider reports a failure.
   */
  get result(): ImagesResult {
    const begun = this.#isPending && this.failure === undefined ? 1 : 0;
    const isWhole = begun === 0 && !this.#isPending;
    return {
      images: this.#whole + begun,
      partials: this.#partials,
      facts: this.#facts,
      reported: isWhole ? this.#usage : undefined,
    };
  }

  /** Returns the last image with the usage of the complete answer, or "" if fewer images arrived than requested. */
  ending(usage: Readonly<Record<string, unknown>>): string {
    return this.#last === undefined ? "" : this.#completed(this.#last, usage);
  }

  protected override take(events: readonly ImageEvent[]): void {
    for (const event of events) {
      if (this.isDone) return;
      this.noteEvents(1);
      if (event.type === "error") {
        this.noteReportedError(event.failure);
        return;
      }
      assertImage(event.base64);
      this.#facts = factsOf(event, sizeOf(event.base64));
      if (event.type === "partial") this.#takePartial(event.index, event.base64);
      else this.#takeWhole(event.base64, event.usage);
    }
  }

  protected override takeEnd(): void {
    this.noteDone();
  }

  #takePartial(index: number, base64: string): void {
    const most = (this.#request.fields.partial_images ?? 0) * this.#request.count;
    // Partial images beyond the requested number are neither sent nor charged.
    if (this.#partials >= most) return;
    this.noteBegun();
    this.#partials++;
    this.#isPending = true;
    this.startedChoices = this.finishedChoices + 1;
    const type = `${this.#prefix}.partial_image`;
    this.output.add(imageFrame({ ...this.#members(type), partial_image_index: index }, base64));
  }

  #takeWhole(base64: string, usage: Usage | undefined): void {
    this.noteBegun();
    this.#whole++;
    this.#isPending = false;
    this.#usage = this.#whole === 1 ? usage : sumOf(this.#usage, usage);
    this.finishedChoices++;
    this.startedChoices = this.finishedChoices;
    if (this.#whole < this.#request.count) {
      this.output.add(this.#completed(base64));
      return;
    }
    this.#last = base64;
    this.noteDone();
  }

  #completed(base64: string, usage?: Readonly<Record<string, unknown>>): string {
    return imageFrame({ ...this.#members(`${this.#prefix}.completed`), usage }, base64);
  }

  get #prefix(): string {
    return this.#request.task === "generate" ? "image_generation" : "image_edit";
  }

  /**
   * Returns the members of an event. Clients expect all of them, so members that the provider does not state
   * have the requested values.
   */
  #members(type: string) {
    const { fields } = this.#request;
    const { size, quality, background, outputFormat } = this.#facts;
    return {
      type,
      created_at: this.created,
      ...factMembers({
        size: size ?? fields.size ?? "auto",
        quality: quality ?? fields.quality ?? "auto",
        background: background ?? fields.background ?? "auto",
        outputFormat: outputFormat ?? fields.output_format ?? "png",
      }),
    };
  }
}

/** Returns the sum of two usages, or undefined if one of them is unknown. */
function sumOf(left: Usage | undefined, right: Usage | undefined): Usage | undefined {
  if (left === undefined || right === undefined) return undefined;
  const sum = (name: "imagePromptTokens" | "imageCompletionTokens") =>
    (left[name] ?? 0) + (right[name] ?? 0);
  return {
    ...right,
    promptTokens: left.promptTokens + right.promptTokens,
    cachedPromptTokens: left.cachedPromptTokens + right.cachedPromptTokens,
    completionTokens: left.completionTokens + right.completionTokens,
    imagePromptTokens: sum("imagePromptTokens"),
    imageCompletionTokens: sum("imageCompletionTokens"),
  };
}

function assertImage(base64: string): void {
  if (isBase64(base64, MAX_IMAGE_BYTES)) return;
  throw new ProviderFailure(
    "unavailable",
    "the provider sent an image that is not base64 or is too large",
  );
}

function sizeOf(base64: string): string | undefined {
  const kind = kindOfImage(Buffer.from(base64.slice(0, HEAD_CHARACTERS), "base64"));
  return kind?.width === undefined ? undefined : `${kind.width}x${kind.height}`;
}

/** Returns a complete answer as the events of a stream without partial images. */
export function readerOfWhole({
  images,
  facts,
  reported,
}: DecodedImages): PieceReader<readonly ImageEvent[]> {
  let next = 0;
  return {
    read: async () => {
      const image = images[next++];
      if (image === undefined) return { done: true };
      const base64 = image.bytes.toString("base64");
      // The usage covers all images, so it is part of the last event.
      const usage = next === images.length ? reported : reported && NO_TOKENS;
      return { done: false, value: [{ type: "image", base64, usage, ...facts }] };
    },
    cancel: async () => {
      next = images.length;
    },
  };
}
