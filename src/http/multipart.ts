import type { Readable } from "node:stream";
import { Busboy, type BusboyFileStream, type BusboyInstance } from "@fastify/busboy";
import type { Clock } from "../lib/clock.ts";
import { bodyTooSlow, clientClosed, GatewayError } from "../lib/errors.ts";
import { assertPlainBody, assertPlainPart } from "./read-body.ts";

/** What takes the parts of a form, in the order in which they come. */
export interface FormReceiver {
  /** Throws to refuse it. */
  field(name: string, value: string): void;
  /** Throws to refuse it. What is returned takes the file's bytes. */
  file(name: string, heading: FormFileHeading): Promise<FormFileReceiver>;
}

export interface FormFileHeading {
  readonly filename: string;
  readonly contentType: string;
}

export interface FormFileReceiver {
  /** Resolves when it can take more: a slow one holds the client back. The piece is gone then. */
  write(piece: Uint8Array): Promise<void>;
  /** Rejects to refuse the file as a whole. */
  end(): Promise<void>;
}

/** What a form may have at most. */
export interface FormLimits {
  readonly files: number;
  /** Of all files together. */
  readonly fileBytes: number;
  readonly fields: number;
  readonly fieldBytes: number;
  /** Boundaries, headings and fields: everything that is not in a file. */
  readonly otherBytes: number;
  /** What a form with more bytes is refused with. */
  tooLarge(): GatewayError;
}

export interface FormReading extends FormLimits, Pace {}

/** Of a form with one file and a few words. */
export function oneFileLimits(fileBytes: number): FormLimits {
  return {
    files: 1,
    fileBytes,
    fields: 16,
    fieldBytes: 4 * 1024,
    otherBytes: 64 * 1024,
    tooLarge: () =>
      new GatewayError(
        "payload_too_large",
        `A file may have at most ${fileBytes / 1024 / 1024} MB.`,
        { param: "file" },
      ),
  };
}

const MAX_HEADING_BYTES = 8 * 1024;
const MAX_HEADING_LINES = 32;
const MULTIPART = /^multipart\/form-data\s*(?:;|$)/i;

export function isForm(headers: Headers): boolean {
  return MULTIPART.test(headers.get("content-type") ?? "");
}

/** How large a form says that its files are at least; 0 where it does not say. Throws 415, and what is too large. */
export function leastFileBytes(request: Request, limits: FormLimits): number {
  if (!isForm(request.headers)) {
    throw new GatewayError(
      "unsupported_media_type",
      "The request body must be a form, with Content-Type: multipart/form-data.",
    );
  }
  assertPlainBody(request.headers);
  // Of the two framings a message in chunks follows the chunks (RFC 9112, section 6.3).
  if (request.headers.has("transfer-encoding")) return 0;
  const leastBytes = Number(request.headers.get("content-length") ?? 0) - limits.otherBytes;
  if (leastBytes > limits.fileBytes) throw limits.tooLarge();
  return Math.max(0, leastBytes);
}

/**
 * Reads a form (RFC 7578) as it comes, keeping none of it: a receiver that waits holds the client back.
 * Throws what the receiver throws, 400, what is too large, and 499 where the client goes away, falls silent
 * or is too slow.
 */
export async function readForm(
  request: Request,
  receiver: FormReceiver,
  reading: FormReading,
): Promise<void> {
  const parser = createParser(request.headers.get("content-type") ?? "", reading);
  const failure = new Failure();
  const fail = (error: unknown): void => failure.set(error);
  const finished = new Promise<void>((resolve) => parser.once("finish", resolve));
  const memory = new PieceMemory();
  let fileBytes = 0;
  const receiving: Promise<void>[] = [];
  const fileStreams: BusboyFileStream[] = [];
  listen(parser, receiver, fail, reading, (name, stream, heading) => {
    const received = receiveFile(
      stream,
      async () => {
        assertPlainPart(name, heading.transferEncoding);
        return receiver.file(name, heading);
      },
      (piece) => {
        fileBytes += piece.byteLength;
        memory.giveBack(piece);
      },
    );
    received.catch(fail);
    receiving.push(received);
    fileStreams.push(stream);
  });
  const body = request.body ? new PacedReader(request.body, reading) : undefined;
  let readBytes = 0;
  try {
    for (;;) {
      const piece = body && (await failure.or(body.read()));
      if (piece === undefined) break;
      readBytes += piece.byteLength;
      if (readBytes > reading.fileBytes + reading.otherBytes) throw reading.tooLarge();
      memory.lend(piece);
      for (let at = 0; at < piece.byteLength; at += MAX_SLICE_BYTES) {
        await failure.or(feed(parser, piece.subarray(at, at + MAX_SLICE_BYTES)));
      }
    }
    parser.end();
    await failure.or(finished);
    await Promise.all(receiving);
    if (readBytes - fileBytes > reading.otherBytes) {
      throw unreadable("there is too much around its files");
    }
  } catch (error) {
    parser.destroy();
    for (const stream of fileStreams) stream.destroy(clientClosed());
    await body?.cancel();
    // Nothing may be written any more when the caller clears up.
    await Promise.allSettled(receiving);
    throw error;
  }
}

/** Parsed in one go. What comes after a fault is not parsed: thousands of parts fit into one piece of a body. */
const MAX_SLICE_BYTES = 16_384;

/**
 * The first failure of several that go on at a time. Not a promise that is raced again and again: such a
 * one would keep all that was ever raced with it.
 */
class Failure {
  #first: { readonly error: unknown } | undefined;
  #tell: ((error: unknown) => void) | undefined;

  set(error: unknown): void {
    this.#first ??= { error };
    this.#tell?.(this.#first.error);
  }

  /** Settles as the work does, or rejects with the failure where that comes first. */
  or<Result>(work: Promise<Result>): Promise<Result> {
    return new Promise((resolve, reject) => {
      if (this.#first !== undefined) reject(this.#first.error);
      this.#tell = reject;
      work.then(resolve, reject);
    });
  }
}

const FILE_BUFFER_BYTES = 64 * 1024;

function createParser(contentType: string, limits: FormLimits): BusboyInstance {
  try {
    return new Busboy({
      headers: { "content-type": contentType },
      fileHwm: FILE_BUFFER_BYTES,
      // Its name tells a file (RFC 7578, section 4.2), not the type that some clients give every part.
      isPartAFile: (_, __, filename) => filename !== undefined,
      limits: {
        fields: limits.fields,
        fieldSize: limits.fieldBytes,
        files: limits.files,
        // Those without a name or a disposition too, which count as neither.
        parts: limits.fields + limits.files,
        headerPairs: MAX_HEADING_LINES,
        headerSize: MAX_HEADING_BYTES,
      },
    });
  } catch (error) {
    throw unreadable("its boundary is missing", error);
  }
}

interface PartHeading extends FormFileHeading {
  readonly transferEncoding: string;
}

function listen(
  parser: BusboyInstance,
  receiver: FormReceiver,
  fail: (error: unknown) => void,
  limits: FormLimits,
  onFile: (name: string, stream: BusboyFileStream, heading: PartHeading) => void,
): void {
  parser.on("field", (name: string | undefined, value: string, _, isCut, transferEncoding) => {
    try {
      if (name === undefined) throw unreadable("a part has no name");
      assertPlainPart(name, transferEncoding);
      if (isCut) throw invalidField(name, "is too long for a part without a filename");
      receiver.field(name, value);
    } catch (error) {
      fail(error);
    }
  });
  parser.on(
    "file",
    (
      name: string | undefined,
      stream: BusboyFileStream,
      filename: string,
      transferEncoding,
      type,
    ) =>
      onFile(name ?? "", stream, {
        filename: partFilename(filename),
        contentType: type,
        transferEncoding,
      }),
  );
  parser.on("filesLimit", () =>
    fail(
      limits.files === 1
        ? invalidField("file", "is given more than once")
        : unreadable(`it has more than ${limits.files} files`),
    ),
  );
  parser.on("fieldsLimit", () => fail(unreadable("it has too many parts")));
  parser.on("partsLimit", () => fail(unreadable("it has too many parts")));
  parser.on("error", (error: unknown) => fail(unreadable("its parts are malformed", error)));
}

async function receiveFile(
  stream: BusboyFileStream,
  open: () => Promise<FormFileReceiver>,
  onWritten: (piece: Uint8Array) => void,
): Promise<void> {
  // Before anything is awaited: an error without a listener would end the process.
  let streamError: unknown;
  stream.on("error", (error: unknown) => {
    streamError = error;
  });
  const receiver = await open();
  try {
    for await (const piece of stream as Readable as AsyncIterable<Uint8Array>) {
      await receiver.write(piece);
      onWritten(piece);
    }
  } catch (error) {
    throw error === streamError ? unreadable("it ends in the middle of a part", error) : error;
  }
  if (streamError !== undefined) throw unreadable("it ends in the middle of a part", streamError);
  await receiver.end();
}

/** Resolves when the parser can take more, which waits for the file's reader. */
function feed(parser: BusboyInstance, piece: Uint8Array): Promise<void> {
  return new Promise((resolve) => {
    parser.write(Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength), () => resolve());
  });
}

function unreadable(why: string, cause?: unknown): GatewayError {
  return new GatewayError("invalid_body", `The form cannot be read: ${why}.`, { cause });
}

function invalidField(name: string, what: string): GatewayError {
  const param = name.slice(0, 100);
  return new GatewayError("invalid_body", `${param} ${what}.`, { param });
}

export interface Pace {
  /** A monotonic one. */
  readonly clock: Clock;
  /** A client that sends less is given up when it has been waited for a minute longer than it may need. */
  readonly minBytesPerSecond: number;
}

/** A client that sends nothing for so long is gone, though its connection stands. */
const IDLE_TIMEOUT_MS = 60_000;
/** What a client may be behind the least rate. */
const PATIENCE_MS = 60_000;

/**
 * Reads a body of any length in a time that is bounded by its length. Only the time in which the client is
 * waited for counts, so that a client that is held back here does not count as slow.
 */
export class PacedReader {
  readonly #body: ReadableStreamDefaultReader<Uint8Array>;
  readonly #pace: Pace;
  #readBytes = 0;
  #waitedMs = 0;

  constructor(body: ReadableStream<Uint8Array>, pace: Pace) {
    this.#body = body.getReader();
    this.#pace = pace;
  }

  /** Undefined at the end. Rejects with 499 where the client goes away, falls silent or is too slow. */
  async read(): Promise<Uint8Array | undefined> {
    const { clock } = this.#pace;
    const sinceMs = clock.nowMs();
    const tooSlow = Promise.withResolvers<never>();
    const cancelTimer = clock.after(Math.min(IDLE_TIMEOUT_MS, this.#patienceMs()), () =>
      tooSlow.reject(bodyTooSlow()),
    );
    try {
      const { value, done } = await Promise.race([this.#body.read(), tooSlow.promise]);
      this.#waitedMs += clock.nowMs() - sinceMs;
      this.#readBytes += value?.byteLength ?? 0;
      if (this.#patienceMs() < 0) throw bodyTooSlow();
      return done ? undefined : value;
    } catch (error) {
      throw error instanceof GatewayError ? error : clientClosed(error);
    } finally {
      cancelTimer();
    }
  }

  /** How long the client may still be waited for. */
  #patienceMs(): number {
    const neededMs = (this.#readBytes / this.#pace.minBytesPerSecond) * 1_000;
    return PATIENCE_MS + neededMs - this.#waitedMs;
  }

  /** Takes nothing more. Never rejects. */
  async cancel(): Promise<void> {
    await this.#body.cancel().catch(() => {});
  }
}

/**
 * Frees the memory of a body's pieces at once instead of leaving it to the garbage collector, which is late:
 * it sees small objects, and a fast upload has tens of megabytes of them waiting. A piece is free when each
 * of its bytes has been used for the last time; as each is used once, no reader can still need one then,
 * wherever it went in between.
 */
export class PieceMemory {
  readonly #unusedBytes = new WeakMap<ArrayBufferLike, number>();

  /** A piece that was read, and that no other code keeps. One that shares its memory is left alone. */
  lend({ buffer, byteLength }: Uint8Array): void {
    if (byteLength === buffer.byteLength) this.#unusedBytes.set(buffer, byteLength);
  }

  /** These bytes, which may be part of a piece, will not be looked at again. */
  giveBack({ buffer, byteLength }: Uint8Array): void {
    const unusedBytes = this.#unusedBytes.get(buffer);
    if (unusedBytes === undefined) return;
    if (unusedBytes > byteLength) this.#unusedBytes.set(buffer, unusedBytes - byteLength);
    else (buffer as ArrayBuffer).transfer(0);
  }
}

/** .NET's form of a name that is not ASCII, in one piece (RFC 2047, section 2). */
const ENCODED_WORD = /^=\?utf-8\?B\?([A-Za-z0-9+/]+={0,2})\?=$/i;

/** The name of a part's file as its sender knows it, without folders. */
function partFilename(stated: string | undefined): string {
  const encoded = ENCODED_WORD.exec(stated ?? "")?.[1];
  if (encoded === undefined) return stated ?? "";
  const name = Buffer.from(encoded, "base64").toString();
  const last = name.slice(Math.max(name.lastIndexOf("/"), name.lastIndexOf("\\")) + 1);
  return last === "." || last === ".." ? "" : last;
}
