import type { Readable } from "node:stream";
import { Busboy, type BusboyFileStream, type BusboyInstance } from "@fastify/busboy";
import type { Clock } from "../lib/clock.ts";
import { bodyTooSlow, clientClosed, GatewayError } from "../lib/errors.ts";
import { assertPlainBody, assertPlainPart } from "./read-body.ts";

/** Receives the parts of a form in order of arrival. */
export interface FormReceiver {
  /** Receives a field. Throws to reject it. */
  field(name: string, value: string): void;
  /** Returns the receiver of a file's bytes. Throws to reject the file. */
  file(name: string, heading: FormFileHeading): Promise<FormFileReceiver>;
}

export interface FormFileHeading {
  readonly filename: string;
  readonly contentType: string;
}

export interface FormFileReceiver {
  /**
   * Resolves when the receiver can accept more, so that a slow receiver slows down the client. The
   * memory of the piece is freed afterwards.
   */
  write(piece: Uint8Array): Promise<void>;
  /** Called at the end of the file. Rejects if the whole file is not acceptable. */
  end(): Promise<void>;
}

/** Limits of a form. */
export interface FormLimits {
  readonly files: number;
  /** Bytes of all files together. */
  readonly fileBytes: number;
  readonly fields: number;
  readonly fieldBytes: number;
  /** Bytes of boundaries, headings and fields: everything outside the files. */
  readonly otherBytes: number;
  /** Returns the error for a form with more bytes. */
  tooLarge(): GatewayError;
}

export interface FormReading extends FormLimits, Pace {}

/** Returns the limits of a form with one file and a few short fields. */
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

/**
 * Returns the minimum size of a form's files by its stated length, or 0 if it states none. Throws
 * 415, and the error of `tooLarge`.
 */
export function leastFileBytes(request: Request, limits: FormLimits): number {
  if (!isForm(request.headers)) {
    throw new GatewayError(
      "unsupported_media_type",
      "The request body must be a form, with Content-Type: multipart/form-data.",
    );
  }
  assertPlainBody(request.headers);
  // If a request has both framings, the chunks decide (RFC 9112, section 6.3).
  if (request.headers.has("transfer-encoding")) return 0;
  const leastBytes = Number(request.headers.get("content-length") ?? 0) - limits.otherBytes;
  if (leastBytes > limits.fileBytes) throw limits.tooLarge();
  return Math.max(0, leastBytes);
}

/**
 * Reads a form (RFC 7578) as it arrives, without storing it: a slow receiver slows down the client.
 * Throws the receiver's errors, 400 if the form is malformed, the error of `tooLarge` if it is too
 * large, and 499 if the client disconnects, stops sending or is too slow.
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
        memory.release(piece);
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
      memory.track(piece);
      for (let at = 0; at < piece.byteLength; at += MAX_SLICE_BYTES) {
        await failure.or(feed(parser, piece.subarray(at, at + MAX_SLICE_BYTES)));
      }
    }
    parser.end();
    await failure.or(finished);
    await Promise.all(receiving);
    if (readBytes - fileBytes > reading.otherBytes) {
      throw unreadable("it has too many bytes outside of its files");
    }
  } catch (error) {
    parser.destroy();
    for (const stream of fileStreams) stream.destroy(clientClosed());
    await body?.cancel();
    // The caller cleans up next, so no receiver may still be writing.
    await Promise.allSettled(receiving);
    throw error;
  }
}

/**
 * Bytes parsed at a time. After an error the rest is not parsed: one piece of a body can contain
 * thousands of parts.
 */
const MAX_SLICE_BYTES = 16_384;

/**
 * The first failure of several concurrent tasks. A promise that is raced repeatedly would retain
 * everything that it was raced with.
 */
class Failure {
  #first: { readonly error: unknown } | undefined;
  #reject: ((error: unknown) => void) | undefined;

  set(error: unknown): void {
    this.#first ??= { error };
    this.#reject?.(this.#first.error);
  }

  /** Settles as the work does, or rejects with the failure if the failure comes first. */
  or<Result>(work: Promise<Result>): Promise<Result> {
    return new Promise((resolve, reject) => {
      if (this.#first !== undefined) reject(this.#first.error);
      this.#reject = reject;
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
      // A part is a file if it has a filename (RFC 7578, section 4.2). Some clients give every part
      // a content type.
      isPartAFile: (_, __, filename) => filename !== undefined,
      limits: {
        fields: limits.fields,
        fieldSize: limits.fieldBytes,
        files: limits.files,
        // Includes parts without a name or a disposition, which are neither fields nor files.
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
  // Listens before the first await: an error event without a listener would end the process.
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

/**
 * Feeds a piece to the parser. Resolves when the parser can accept more, which depends on the
 * reader of the file.
 */
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
  /** A monotonic clock. */
  readonly clock: Clock;
  /**
   * The minimum rate of a client. The gateway stops reading from a slower client after a minute of
   * delay.
   */
  readonly minBytesPerSecond: number;
}

/** Milliseconds without a byte after which a client counts as disconnected. */
const IDLE_TIMEOUT_MS = 60_000;
/** Milliseconds by which a client can be slower than the minimum rate allows. */
const MAX_DELAY_MS = 60_000;

/**
 * Reads a body of any length in a time that is bounded by its length. Only the time spent waiting
 * for the client counts, so a client that the gateway slows down does not count as slow.
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

  /**
   * Returns the next piece, or undefined at the end. Rejects with 499 if the client disconnects,
   * stops sending or is too slow.
   */
  async read(): Promise<Uint8Array | undefined> {
    const { clock } = this.#pace;
    const sinceMs = clock.nowMs();
    const tooSlow = Promise.withResolvers<never>();
    const cancelTimer = clock.after(Math.min(IDLE_TIMEOUT_MS, this.#remainingMs()), () =>
      tooSlow.reject(bodyTooSlow()),
    );
    try {
      const { value, done } = await Promise.race([this.#body.read(), tooSlow.promise]);
      this.#waitedMs += clock.nowMs() - sinceMs;
      this.#readBytes += value?.byteLength ?? 0;
      if (this.#remainingMs() < 0) throw bodyTooSlow();
      return done ? undefined : value;
    } catch (error) {
      throw error instanceof GatewayError ? error : clientClosed(error);
    } finally {
      cancelTimer();
    }
  }

  /** Returns the milliseconds that the reader still waits for the client. */
  #remainingMs(): number {
    const neededMs = (this.#readBytes / this.#pace.minBytesPerSecond) * 1_000;
    return MAX_DELAY_MS + neededMs - this.#waitedMs;
  }

  /** Stops reading. Never rejects. */
  async cancel(): Promise<void> {
    await this.#body.cancel().catch(() => {});
  }
}

/**
 * Frees the memory of a body's pieces immediately. The garbage collector would be late: it sees
 * only small objects, while a fast upload has tens of megabytes of them waiting. Each byte of a
 * piece is used once, so the piece is free after its last byte was used.
 */
export class PieceMemory {
  readonly #unusedBytes = new WeakMap<ArrayBufferLike, number>();

  /**
   * Registers a piece that was read and that no other code keeps. Ignores a piece that shares its
   * buffer.
   */
  track({ buffer, byteLength }: Uint8Array): void {
    if (byteLength === buffer.byteLength) this.#unusedBytes.set(buffer, byteLength);
  }

  /** Marks bytes as used. They can be a part of a piece, and are not read again. */
  release({ buffer, byteLength }: Uint8Array): void {
    const unusedBytes = this.#unusedBytes.get(buffer);
    if (unusedBytes === undefined) return;
    if (unusedBytes > byteLength) this.#unusedBytes.set(buffer, unusedBytes - byteLength);
    else (buffer as ArrayBuffer).transfer(0);
  }
}

/** A name that is not ASCII as .NET sends it: one encoded word (RFC 2047, section 2). */
const ENCODED_WORD = /^=\?utf-8\?B\?([A-Za-z0-9+/]+={0,2})\?=$/i;

/** Returns the file name that the sender stated, without folders. */
function partFilename(stated: string | undefined): string {
  const encoded = ENCODED_WORD.exec(stated ?? "")?.[1];
  if (encoded === undefined) return stated ?? "";
  const name = Buffer.from(encoded, "base64").toString();
  const last = name.slice(Math.max(name.lastIndexOf("/"), name.lastIndexOf("\\")) + 1);
  return last === "." || last === ".." ? "" : last;
}
