import encodeJpeg, { init as initJpeg } from "@jsquash/jpeg/encode.js";
import encodeWebp, { init as initWebp } from "@jsquash/webp/encode.js";
import { simd } from "wasm-feature-detect";
import { serveCalls } from "../../lib/work-thread.ts";
import type { LossyCall } from "./encode-picture.ts";
import type { Picture } from "./picture.ts";

/** WebP's fastest of seven compression methods. */
const FASTEST = 0;

let isReady: Promise<unknown> | undefined;

serveCalls(
  async ({ format, picture, quality }: LossyCall): Promise<ArrayBuffer> => {
    isReady ??= prepare();
    await isReady;
    const image = withColours(picture);
    if (format === "webp") return encodeWebp(image, { quality, method: FASTEST });
    return encodeJpeg(image, { quality });
  },
  (result) => [result as ArrayBuffer],
);

/**
 * Loads the codecs. The libraries themselves would fetch their modules by URL, which works in browsers only.
 */
async function prepare(): Promise<void> {
  const webp = (await simd())
    ? import.meta.resolve("@jsquash/webp/codec/enc/webp_enc_simd.wasm")
    : import.meta.resolve("@jsquash/webp/codec/enc/webp_enc.wasm");
  await initWebp(await wasmOf(webp));
  await initJpeg(await wasmOf(import.meta.resolve("@jsquash/jpeg/codec/enc/mozjpeg_enc.wasm")));
}

async function wasmOf(url: string): Promise<never> {
  const file = Bun.file(new URL(url));
  // The libraries' types omit the argument that their documentation states.
  return (await WebAssembly.compile(await file.arrayBuffer())) as never;
}

function withColours({ width, height, pixels, palette }: Picture): ImageData {
  const data = new Uint8ClampedArray(width * height * 4);
  const words = new Uint32Array(data.buffer);
  const colours = new Uint32Array(Uint8Array.from(palette.flat()).buffer);
  for (let index = 0; index < pixels.length; index++) words[index] = colours[pixels[index]!]!;
  return { data, width, height, colorSpace: "srgb" } as ImageData;
}
