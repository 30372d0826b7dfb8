import type { ByteBuffer } from "../../../lib/growing-bytes.ts";
import { kindOfImage } from "../../../lib/image-header.ts";
import { NO_TOKENS, type Usage } from "../../../lib/usage.ts";
import { type PieceReader, ProviderFailure } from "../../../providers/interface.ts";
import type { ImageEvent, ImageFacts } from "../../../providers/media.ts";
import { StreamedAnswer } from "../../../providers/streamed-answer.ts";
import { isBase64 } from "./base64-pieces.ts";
import type { MadeOfRequest } from "./cost-bound.ts";
import { factsOf, type MadeImages } from "./made-images.ts";
import { factMembers, imageFrame } from "./render-images.ts";
import type { AcceptedImages } from "./request.ts";

/** Of one image, whole or in part: what the event loop moves in one go. */
const MAX_IMAGE_BYTES = 16 * 1024 * 1024;
/** What shows the dimensions of an image, as base64. */
const HEAD_CHARACTERS = 65_536;
/** More than a stream may be ahead of its last checkpoint: no image leaves before it is charged for. */
const TOKENS_OF_EVENT = 1_024;

/**
 * A stream of images as the client gets it. The last image that was asked for is kept back, so that it leaves
 * with the end, after the charge.
 */
export class StreamedImages extends StreamedAnswer<readonly ImageEvent[]> {
  readonly #request: AcceptedImages;
  #facts: ImageFacts = {};
  #usage: Usage | undefined;
  #whole = 0;
  #partials = 0;
  /** An image has come in part, and not as a whole yet. */
  #isUnderWay = false;
  #last: string | undefined;

  constructor(request: AcceptedImages, output: ByteBuffer, nowSeconds: number) {
    super(output, nowSeconds);
    this.#request = request;
  }

  /** Each image counts, whatever its bytes. */
  override get outputTokens(): number {
    return (this.#whole + this.#partials) * TOKENS_OF_EVENT;
  }

  /** Bounded by the number and the size of the images here. */
  override get outputBytes(): number {
    return 0;
  }

  override get usage(): Usage | undefined {
    return this.#usage;
  }

  /**
   * What is charged for. An image that has begun to come counts as made, as its provider makes and bills it;
   * where the provider itself reports a failure it does not.
   */
  get made(): MadeOfRequest {
    const begun = this.#isUnderWay && this.failure === undefined ? 1 : 0;
    const isWhole = begun === 0 && !this.#isUnderWay;
    return {
      images: this.#whole + begun,
      partials: this.#partials,
      facts: this.#facts,
      reported: isWhole ? this.#usage : undefined,
    };
  }

  /** The last image, with what the whole answer used; "" where fewer came than were asked for. */
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
    // More than were asked for are not passed on, nor charged for.
    if (this.#partials >= most) return;
    this.noteBegun();
    this.#partials++;
    this.#isUnderWay = true;
    this.startedChoices = this.finishedChoices + 1;
    const type = `${this.#prefix}.partial_image`;
    this.output.add(imageFrame({ ...this.#members(type), partial_image_index: index }, base64));
  }

  #takeWhole(base64: string, usage: Usage | undefined): void {
    this.noteBegun();
    this.#whole++;
    this.#isUnderWay = false;
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

  /** Clients expect all of them: what the provider does not say is as it was asked for. */
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

/** Only known where all of them are. */
function sumOf(one: Usage | undefined, other: Usage | undefined): Usage | undefined {
  if (one === undefined || other === undefined) return undefined;
  const sum = (name: "imagePromptTokens" | "imageCompletionTokens") =>
    (one[name] ?? 0) + (other[name] ?? 0);
  return {
    ...other,
    promptTokens: one.promptTokens + other.promptTokens,
    cachedPromptTokens: one.cachedPromptTokens + other.cachedPromptTokens,
    completionTokens: one.completionTokens + other.completionTokens,
    imagePromptTokens: sum("imagePromptTokens"),
    imageCompletionTokens: sum("imageCompletionTokens"),
  };
}

function assertImage(base64: string): void {
  if (isBase64(base64, MAX_IMAGE_BYTES)) return;
  throw new ProviderFailure(
    "unavailable",
    "the provider sent an image that is no base64, or too long",
  );
}

function sizeOf(base64: string): string | undefined {
  const kind = kindOfImage(Buffer.from(base64.slice(0, HEAD_CHARACTERS), "base64"));
  return kind?.width === undefined ? undefined : `${kind.width}x${kind.height}`;
}

/** A whole answer as the events of a stream without partial images. */
export function readerOfWhole({
  images,
  facts,
  reported,
}: MadeImages): PieceReader<readonly ImageEvent[]> {
  let next = 0;
  return {
    read: async () => {
      const image = images[next++];
      if (image === undefined) return { done: true };
      const base64 = image.bytes.toString("base64");
      // The usage is that of all of them, and comes with the last one.
      const usage = next === images.length ? reported : reported && NO_TOKENS;
      return { done: false, value: [{ type: "image", base64, usage, ...facts }] };
    },
    cancel: async () => {
      next = images.length;
    },
  };
}
