import { expect, test } from "bun:test";
import { inflateSync } from "node:zlib";
import { VirtualClock } from "../../src/lib/clock.ts";
import type {
  GeneratedImages,
  ImageCall,
  ImageEvent,
  ImageStream,
  MediaFile,
} from "../../src/providers/media.ts";
import { createSandboxProvider } from "../../src/sandbox/chat-provider.ts";
import { FRAME, GROUND, INK } from "../../src/sandbox/image/picture.ts";
import { measureLoopHold, shortestHoldMs } from "../support/loop-hold.ts";

const provider = createSandboxProvider({ clock: new VirtualClock() });

function imageCall(fields: Partial<ImageCall> = {}): ImageCall {
  return {
    model: "image",
    requestId: "request",
    signal: new AbortController().signal,
    task: "generate",
    prompt: "Two boats",
    count: 1,
    images: [],
    stream: false,
    fields: {},
    ...fields,
  };
}

async function imagesOf(fields: Partial<ImageCall> = {}): Promise<GeneratedImages> {
  const answer = await provider.image!(imageCall(fields));
  if (answer.kind !== "images") throw new Error("a stream");
  return answer;
}

async function bytesOf(fields: Partial<ImageCall> = {}): Promise<Buffer[]> {
  const { images } = await imagesOf(fields);
  return images.map(({ data }) => Buffer.from("base64" in data ? data.base64 : "", "base64"));
}

async function eventsOf(fields: Partial<ImageCall>): Promise<ImageEvent[]> {
  const answer = (await provider.image!(imageCall({ ...fields, stream: true }))) as ImageStream;
  const reader = answer.reader();
  const events: ImageEvent[] = [];
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    events.push(...read.value!);
  }
  return events;
}

function file(contentType: string, bytes: Uint8Array): MediaFile {
  return {
    name: "input",
    contentType,
    sizeBytes: bytes.length,
    stream: () => new Blob([bytes as Uint8Array<ArrayBuffer>]).stream(),
    bytes: async () => bytes,
  };
}

interface Decoded {
  width: number;
  height: number;
  palette: Buffer;
  opacities: Buffer;
  rows: Uint8Array[];
}

/** Reads what the encoder writes, by the standard, and checks each chunk's sum. */
function decodePng(png: Buffer): Decoded {
  expect(png.toString("latin1", 0, 8)).toBe("\x89PNG\r\n\x1a\n");
  const chunks = new Map<string, Buffer>();
  for (let at = 8; at < png.length; ) {
    const length = png.readUInt32BE(at);
    const typed = png.subarray(at + 4, at + 8 + length);
    expect(png.readUInt32BE(at + 8 + length)).toBe(Bun.hash.crc32(typed));
    chunks.set(typed.toString("latin1", 0, 4), typed.subarray(4));
    at += 12 + length;
  }
  expect([...chunks.keys()]).toEqual(["IHDR", "PLTE", "tRNS", "IDAT", "IEND"]);
  const header = chunks.get("IHDR")!;
  const width = header.readUInt32BE(0);
  const height = header.readUInt32BE(4);
  expect([...header.subarray(8)]).toEqual([8, 3, 0, 0, 0]);
  const raw = inflateSync(chunks.get("IDAT")!);
  expect(raw.length).toBe(height * (width + 1));
  const rows = Array.from({ length: height }, (_, y) => {
    expect(raw[y * (width + 1)]).toBe(0);
    return raw.subarray(y * (width + 1) + 1, (y + 1) * (width + 1));
  });
  return { width, height, palette: chunks.get("PLTE")!, opacities: chunks.get("tRNS")!, rows };
}

test("an image is a PNG of the size asked for that shows its prompt in letters", async () => {
  const [png] = await bytesOf({ prompt: "I", size: "512x256" });
  const { width, height, rows } = decodePng(png!);
  expect([width, height]).toEqual([512, 256]);
  // The letter I at scale 16: a bar three columns wide at its top, its stem below, its foot.
  const top = rows.findIndex((row) => row.includes(INK));
  const inked = rows[top]!.reduce((count, pixel) => count + (pixel === INK ? 1 : 0), 0);
  expect(inked).toBe(3 * 16);
  const stem = rows[top + 3 * 16]!.reduce((count, pixel) => count + (pixel === INK ? 1 : 0), 0);
  expect(stem).toBe(16);
  expect(rows[top + 7 * 16]!.includes(INK)).toBe(false);
  expect(rows[height / 2]![width - 1]).toBe(GROUND);
});

test("the same call gets the same image; another prompt, seed, style or place among n another", async () => {
  const [image] = await bytesOf();
  expect((await bytesOf())[0]).toEqual(image!);
  const others = [
    ...(await bytesOf({ prompt: "Three boats" })),
    ...(await bytesOf({ seed: 7 })),
    ...(await bytesOf({ style: "natural" })),
    ...(await bytesOf({ count: 4 })),
  ].map((bytes) => bytes.toString("base64"));
  expect(new Set([image!.toString("base64"), ...others]).size).toBe(8);
});

test("a seed decides the colours, whatever the prompt", async () => {
  const [one] = await bytesOf({ prompt: "one", seed: 3 });
  const [other] = await bytesOf({ prompt: "other", seed: 3 });
  expect(decodePng(one!).palette).toEqual(decodePng(other!).palette);
});

test("a transparent background has no opacity, and no JPEG", async () => {
  const [png] = await bytesOf({ background: "transparent" });
  expect([...decodePng(png!).opacities]).toEqual([0, 255, 255]);
  const failure = imagesOf({ background: "transparent", outputFormat: "jpeg" });
  await expect(failure).rejects.toMatchObject({ kind: "rejected", param: "background" });
});

test("JPEG and WebP state their size, and are smaller where more compression is asked for", async () => {
  for (const outputFormat of ["jpeg", "webp"]) {
    const fields = { outputFormat, size: "640x480" };
    const answer = await imagesOf(fields);
    expect(answer).toMatchObject({ size: "640x480", outputFormat, background: "opaque" });
    const [fine] = await bytesOf(fields);
    const [coarse] = await bytesOf({ ...fields, outputCompression: 5 });
    expect(coarse!.length).toBeLessThan(fine!.length);
    const edit = await bytesOf({ task: "edit", images: [file(`image/${outputFormat}`, fine!)] });
    const unread = await bytesOf({
      task: "edit",
      images: [file(`image/${outputFormat}`, fine!.subarray(0, 12))],
    });
    // The foot of an edit names the size that it read.
    expect(edit[0]).not.toEqual(unread[0]);
  }
});

test("edits and variations mark what they were made of, and read hostile files no further than their header", async () => {
  const [source] = await bytesOf({ size: "320x200" });
  const images = [file("image/png", source!)];
  const plain = await bytesOf();
  const edited = await bytesOf({ task: "edit", images });
  const masked = await bytesOf({ task: "edit", images, mask: file("image/png", source!) });
  const varied = await bytesOf({ task: "vary", prompt: "", images });
  expect(new Set([plain, edited, masked, varied].map((made) => made[0]!.toString())).size).toBe(4);
  let served = 0;
  const endless = file("image/jpeg", new Uint8Array([0xff, 0xd8]));
  const stream = () =>
    new ReadableStream<Uint8Array>({
      pull(controller) {
        served++;
        controller.enqueue(new Uint8Array(16_384).fill(0xff));
      },
    });
  await bytesOf({ task: "edit", images: [{ ...endless, stream }] });
  expect(served).toBeLessThan(8);
});

test("a stream sends partial images, more of each than of the one before, and then the image", async () => {
  const events = await eventsOf({ partialImages: 2, seed: 5 });
  expect(events.map(({ type }) => type)).toEqual(["partial", "partial", "image"]);
  const hidden = events.map((event) => {
    const { rows } = decodePng(Buffer.from("base64" in event ? event.base64 : "", "base64"));
    return rows.filter((row) => row.every((pixel) => pixel === FRAME)).length;
  });
  expect(hidden[0]!).toBeGreaterThan(hidden[1]!);
  expect(hidden[1]!).toBeGreaterThan(hidden[2]!);
  const [whole] = await bytesOf({ seed: 5 });
  expect(events[2]).toMatchObject({ base64: whole!.toString("base64"), size: "1024x1024" });
});

test("the sizes are bounded, and what the sandbox cannot draw names its field", async () => {
  const refusals: [Partial<ImageCall>, string][] = [
    [{ size: "2049x1024" }, "size"],
    [{ size: "15x15" }, "size"],
    [{ size: "100000x100000" }, "size"],
    [{ size: "large" }, "size"],
    [{ aspectRatio: "1:0" }, "aspect_ratio"],
    [{ aspectRatio: "999:1" }, "aspect_ratio"],
    [{ outputFormat: "gif" }, "output_format"],
    [{ count: 11 }, "n"],
  ];
  for (const [fields, param] of refusals) {
    await expect(imagesOf(fields)).rejects.toMatchObject({ kind: "rejected", status: 400, param });
  }
  expect(await imagesOf({ aspectRatio: "16:9" })).toMatchObject({ size: "1365x768" });
  expect(await imagesOf({ size: "auto" })).toMatchObject({ size: "1024x1024" });
});

test("the drill of a safety filter refuses, and other names are no image models", async () => {
  await expect(imagesOf({ model: "image-refusal" })).rejects.toMatchObject({
    kind: "content_policy",
    status: 400,
  });
  await expect(imagesOf({ model: "chat" })).rejects.toMatchObject({ kind: "misconfigured" });
});

test("ten large images hold the event loop for less than 50 ms", async () => {
  const prompt = "long words and short ones ".repeat(150);
  await bytesOf({ prompt });
  for (const outputFormat of ["png", "webp"]) {
    const held = await shortestHoldMs(50, async () => {
      const hold = measureLoopHold();
      await bytesOf({ prompt, count: 10, size: "1792x1024", outputFormat });
      return hold.stop();
    });
    expect(held).toBeLessThan(50);
  }
});

test("an aborted call draws no further image", async () => {
  const controller = new AbortController();
  const images = imagesOf({ count: 10, size: "2048x2048", signal: controller.signal });
  controller.abort();
  await expect(images).rejects.toMatchObject({ kind: "aborted" });
});
