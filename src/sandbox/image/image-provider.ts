import { kindOfImage } from "../../lib/image-header.ts";
import { ProviderFailure } from "../../providers/interface.ts";
import type {
  GeneratedImage,
  GeneratedImages,
  ImageCall,
  ImageEvent,
  ImageFacts,
  ImageStream,
  MediaFile,
} from "../../providers/media.ts";
import { unknownModel } from "../drills.ts";
import { GeneratedPieces } from "../generated-pieces.ts";
import { aborted } from "../wait.ts";
import { PictureEncoder, type PictureFormat } from "./encode-picture.ts";
import { type Colour, drawPicture, type Picture, upperPart } from "./picture.ts";

const MODEL = "image";
/** Model that simulates a safety filter. */
const REFUSING_MODEL = "image-refusal";
const MIN_SIDE = 16;
const MAX_SIDE = 2048;
const DEFAULT_SIZE = { width: 1024, height: 1024 };
const MAX_IMAGES = 10;
/** Bytes at the beginning of a file that are searched for the image size. */
const HEADER_BYTES = 65_536;
const FORMATS: readonly PictureFormat[] = ["png", "jpeg", "webp"];

/** The pictures to draw for one call. */
interface Order {
  readonly width: number;
  readonly height: number;
  readonly format: PictureFormat;
  readonly isTransparent: boolean;
  readonly text: string;
  /** The task and its input images. */
  readonly origin: string;
}

/**
 * Draws pictures that show their prompt, on a background colour derived from the prompt or seed. The same
 * call gets the same pictures. Sides are 16 to 2048 pixels. Throws ProviderFailure for calls that it cannot
 * draw.
 */
export class SandboxImages {
  readonly #encoder = new PictureEncoder();

  async image(call: ImageCall): Promise<GeneratedImages | ImageStream> {
    if (call.signal.aborted) throw aborted(call.signal);
    const model = call.model.replace(/^sandbox\//, "");
    if (model === REFUSING_MODEL) throw refusal();
    if (model !== MODEL) throw unknownModel(model, "image");
    const order = await orderOf(call);
    if (call.stream) {
      return {
        kind: "image-events",
        reader: () => new GeneratedPieces(() => this.#events(call, order), call.signal),
      };
    }
    const images: GeneratedImage[] = [];
    for (let index = 0; index < call.count; index++) {
      if (call.signal.aborted) throw aborted(call.signal);
      const base64 = await this.#encoded(call, order, pictureOf(call, order, index));
      images.push({ data: { base64 }, ...revisedPrompt(call) });
    }
    return { kind: "images", images, usage: undefined, ...factsOf(call, order) };
  }

  async *#events(call: ImageCall, order: Order): AsyncGenerator<readonly ImageEvent[], void> {
    const { count, partialImages = 0 } = call;
    const facts = factsOf(call, order);
    for (let image = 0; image < count; image++) {
      const picture = pictureOf(call, order, image);
      for (let index = 0; index < partialImages; index++) {
        const part = upperPart(picture, (index + 1) / (partialImages + 1));
        const base64 = await this.#encoded(call, order, part);
        yield [{ type: "partial", index, base64, ...facts }];
      }
      const base64 = await this.#encoded(call, order, picture);
      yield [{ type: "image", base64, usage: undefined, ...facts }];
    }
  }

  async #encoded(call: ImageCall, { format }: Order, picture: Picture): Promise<string> {
    const encoded = await this.#encoder.encode(picture, format, call.outputCompression);
    return encoded.toString("base64");
  }
}

async function orderOf(call: ImageCall): Promise<Order> {
  const { count, outputFormat = "png", background } = call;
  if (count > MAX_IMAGES) throw rejected("n", `n must be at most ${MAX_IMAGES}`);
  const format = FORMATS.find((name) => name === outputFormat);
  if (format === undefined)
    throw rejected("output_format", "output_format must be png, jpeg or webp");
  const isTransparent = background === "transparent";
  if (isTransparent && format === "jpeg") {
    throw rejected("background", "a jpeg cannot have a transparent background");
  }
  const images = await Promise.all(call.images.map(describeImage));
  const mask = call.mask === undefined ? [] : [`mask ${await describeImage(call.mask)}`];
  const task = { generate: "", edit: "edit of ", vary: "variation of " }[call.task];
  return {
    ...sizeOf(call),
    format,
    isTransparent,
    text: call.prompt,
    origin: task + [...images, ...mask].join(", "),
  };
}

/**
 * Returns the format and size in the first bytes of an image, such as `png 640x480`. Omits the size if they
 * do not contain it.
 */
async function describeImage(file: MediaFile): Promise<string> {
  const pieces: Uint8Array[] = [];
  let length = 0;
  for await (const piece of file.stream()) {
    pieces.push(piece);
    length += piece.length;
    if (length >= HEADER_BYTES) break;
  }
  const kind = kindOfImage(Buffer.concat(pieces));
  const format = file.contentType.replace(/^image\//, "");
  return kind?.width === undefined ? format : `${format} ${kind.width}x${kind.height}`;
}

function sizeOf({ size, aspectRatio }: ImageCall): { width: number; height: number } {
  if (size !== undefined && size !== "auto") {
    const [, width, height] = /^(\d{1,5})x(\d{1,5})$/.exec(size) ?? [];
    return checkedSize("size", Number(width), Number(height));
  }
  if (aspectRatio === undefined) return DEFAULT_SIZE;
  const [, across, down] = /^(\d{1,3}):(\d{1,3})$/.exec(aspectRatio) ?? [];
  const ratio = Number(across) / Number(down);
  const area = DEFAULT_SIZE.width * DEFAULT_SIZE.height;
  const width = Math.round(Math.sqrt(area * ratio));
  return checkedSize("aspect_ratio", width, Math.round(width / ratio));
}

function checkedSize(param: string, width: number, height: number) {
  const fits = [width, height].every((side) => side >= MIN_SIDE && side <= MAX_SIDE);
  if (!fits) throw rejected(param, `image sides must be ${MIN_SIDE} to ${MAX_SIDE} pixels`);
  return { width, height };
}

function pictureOf(call: ImageCall, order: Order, index: number): Picture {
  const { prompt, seed, count, style, negativePrompt = "" } = call;
  const source = seed === undefined ? `${prompt}\n${negativePrompt}\n${order.origin}` : seed;
  const hue = Bun.hash.xxHash32(`${source}\n${index}`) % 360;
  const saturation = style === "natural" ? 0.25 : 0.65;
  const ground = colourOf(hue, saturation, 0.3);
  const palette: Colour[] = order.isTransparent
    ? [[0, 0, 0, 0], ground, colourOf(hue, saturation, 0.6)]
    : [ground, [255, 255, 255, 255], colourOf(hue, saturation, 0.6)];
  const foot = [
    `sandbox ${order.width}x${order.height}`,
    order.origin,
    seed === undefined ? "" : `seed ${seed}`,
    count === 1 ? "" : `${index + 1} of ${count}`,
  ];
  return drawPicture(order, palette, {
    text: order.text === "" ? order.origin : order.text,
    foot: foot.filter((part) => part !== "").join(" | "),
  });
}

/** Returns a colour. @param hue in degrees @param saturation from 0 to 1 @param lightness from 0 to 1 */
function colourOf(hue: number, saturation: number, lightness: number): Colour {
  const spread = saturation * Math.min(lightness, 1 - lightness);
  const part = (offset: number) => {
    const position = (offset + hue / 30) % 12;
    const share = Math.max(-1, Math.min(position - 3, 9 - position, 1));
    return Math.round(255 * (lightness - spread * share));
  };
  return [part(0), part(8), part(4), 255];
}

function revisedPrompt({ prompt }: ImageCall): Pick<GeneratedImage, "revisedPrompt"> {
  return prompt === "" ? {} : { revisedPrompt: `A plain picture with the words: ${prompt}` };
}

function factsOf({ quality }: ImageCall, order: Order): ImageFacts {
  return {
    size: `${order.width}x${order.height}`,
    quality,
    background: order.isTransparent ? "transparent" : "opaque",
    outputFormat: order.format,
  };
}

function rejected(param: string, what: string): ProviderFailure {
  return new ProviderFailure("rejected", what, { status: 400, param });
}

function refusal(): ProviderFailure {
  const what = "the sandbox's safety filter rejects every prompt of this model";
  return new ProviderFailure("content_policy", what, { status: 400 });
}
