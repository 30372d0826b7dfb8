import { type Clock, systemClock } from "../../src/lib/clock.ts";
import {
  type Provider,
  ProviderFailure,
  type ProviderSettings,
} from "../../src/providers/interface.ts";
import type {
  GeneratedImages,
  ImageCall,
  ImageEvent,
  ImageStream,
  MediaFile,
} from "../../src/providers/media.ts";
import { createProviders } from "../../src/providers/registry.ts";
import { createHttpClient } from "../../src/providers/transport/http-client.ts";
import { type AskedOf, type AskedUpstream, startAskedUpstream } from "./asked-upstream.ts";

interface ImageRequest {
  /** JSON, or the entries of a form, in which files are `name type bytes` in base64. */
  readonly body: unknown;
}

export type AskedForImages = AskedOf & ImageRequest;
export type ImageUpstream = AskedUpstream<AskedForImages>;

export function startImageUpstream(): ImageUpstream {
  return startAskedUpstream<ImageRequest>(async (request) => ({ body: await bodyOf(request) }));
}

async function bodyOf(request: Request): Promise<unknown> {
  if (request.method === "GET") return undefined;
  if (!request.headers.get("content-type")?.startsWith("multipart/form-data")) {
    const text = await request.text();
    return text === "" ? undefined : JSON.parse(text);
  }
  const entries: [string, string][] = [];
  for (const [name, value] of await request.formData()) {
    const text = typeof value === "string" ? value : await shownFile(value);
    entries.push([name, text]);
  }
  return entries.sort(([one], [other]) => (one < other ? -1 : 1));
}

async function shownFile(file: File): Promise<string> {
  const bytes = Buffer.from(await file.arrayBuffer());
  return `${file.name} ${file.type} ${bytes.toString("base64")}`;
}

export const API_KEY = "sk-secret-of-images-0123456789";

/** Passes fifty times as fast, so that waits between looks at a job are short. */
const fastClock: Clock = {
  nowMs: systemClock.nowMs,
  after: (delayMs, run) => systemClock.after(delayMs / 50, run),
};

/** A provider of that type at the server. */
export function imageProvider(
  type: string,
  baseUrl: string,
  more: Partial<ProviderSettings> = {},
): Provider {
  const settings = { id: "p", type, baseUrl, apiKey: API_KEY, connectTimeoutMs: 2_000, ...more };
  const httpClient = createHttpClient({ clock: systemClock });
  return createProviders([settings], {
    clock: fastClock,
    httpClient,
    providerFactories: {},
  } as never).get("p")!;
}

export function imageCall(model: string, more: Partial<ImageCall> = {}): ImageCall {
  return {
    model,
    requestId: "req_1",
    signal: new AbortController().signal,
    task: "generate",
    prompt: "a boat",
    count: 1,
    images: [],
    stream: false,
    fields: {},
    ...more,
  };
}

/** A file of a request, read in pieces of seven bytes. */
export function mediaFile(
  bytes: Uint8Array,
  name = "boat.png",
  contentType = "image/png",
): MediaFile {
  return {
    name,
    contentType,
    sizeBytes: bytes.length,
    stream: () =>
      new ReadableStream({
        start(controller) {
          for (let at = 0; at < bytes.length; at += 7)
            controller.enqueue(bytes.subarray(at, at + 7));
          controller.close();
        },
      }),
    bytes: async () => bytes,
  };
}

/** The images of an answer that must be whole. */
export async function imagesOf(
  answer: Promise<GeneratedImages | ImageStream>,
): Promise<GeneratedImages> {
  const images = await answer;
  if (images.kind !== "images") throw new Error("the answer is a stream");
  return images;
}

export async function imageEventsOf(
  answer: Promise<GeneratedImages | ImageStream>,
): Promise<ImageEvent[]> {
  const stream = await answer;
  if (stream.kind !== "image-events") throw new Error("the answer is no stream");
  const reader = stream.reader();
  const events: ImageEvent[] = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return events;
    events.push(...(value ?? []));
  }
}

/** The failure of a call that must fail. */
export async function imageFailureOf(answer: Promise<unknown>): Promise<ProviderFailure> {
  try {
    await answer;
  } catch (error) {
    if (error instanceof ProviderFailure) return error;
    throw error;
  }
  throw new Error("the call did not fail");
}
