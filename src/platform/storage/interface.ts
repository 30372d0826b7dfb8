import { GatewayError } from "../../lib/errors.ts";

/** Bytes from `start` (inclusive) to `end` (exclusive). */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/** The lifetime of a signed URL, and the headers of its answer. */
export interface SignedAddress {
  readonly expiresInSeconds: number;
  readonly contentType: string;
  /** Value of Content-Disposition. */
  readonly contentDisposition: string;
}

/**
 * Stores the bytes of files. A key is written once and its bytes never change; the database has the
 * names, sizes and owners of files. Every method rejects with StorageError if the store cannot be
 * reached, rejects the request, or is not the one that this database uses.
 */
export interface FileStorage {
  /** Rejects if the database's files are in another store. */
  assertOurs(): Promise<void>;
  /** Starts to write a key. It cannot be read before `finish` has resolved. */
  write(key: string): StorageWriter;
  /**
   * Opens all bytes, or a range within the object. An open stream can be read to its end even if the
   * object is removed in the meantime. Rejects with ObjectMissingError if the object does not exist.
   */
  read(key: string, range?: ByteRange): Promise<ReadableStream<Uint8Array>>;
  /** Removes a key and unfinished writes to it. Can be called more than once. */
  remove(key: string): Promise<void>;
  /** Resolves with true if nothing was ever written, or everything was removed. */
  isEmpty(): Promise<boolean>;
  /**
   * Resolves with a URL that needs no credentials, or undefined if the store has no HTTP interface.
   */
  signedUrl(key: string, address: SignedAddress): Promise<string | undefined>;
}

export interface StorageWriter {
  /** Resolves when the store can accept more (backpressure). */
  write(piece: Uint8Array): Promise<void>;
  /** Resolves when all bytes are durable and can be read. */
  finish(): Promise<void>;
  /** Removes the written bytes, if possible. Does nothing after `finish`. Never rejects. */
  abort(): Promise<void>;
}

/** Thrown if the store failed, which is not the fault of the caller. */
export class StorageError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "StorageError";
  }
}

export class ObjectMissingError extends StorageError {
  constructor(key: string) {
    super(`no object has the key ${key}`);
    this.name = "ObjectMissingError";
  }
}

const RETRY_AFTER_SECONDS = 5;

/** Returns a failure of the store as an error for the caller, and any other error unchanged. */
export function asStorageFailure(error: unknown): unknown {
  if (!(error instanceof StorageError)) return error;
  return new GatewayError("overloaded", "The file storage cannot be reached at the moment.", {
    cause: error,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });
}

const KEY = /^[a-z0-9_]{8,80}$/;

/** Throws for a key with unsafe characters, because keys become paths and URLs. */
export function assertStorageKey(key: string): void {
  if (!KEY.test(key)) throw new TypeError(`not a storage key: ${key}`);
}
