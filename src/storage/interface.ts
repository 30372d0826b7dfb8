/** Bytes from `start` up to, not including, `end`. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/** How a signed address hands an object out. */
export interface SignedAddress {
  readonly expiresInSeconds: number;
  readonly contentType: string;
  /** Value of Content-Disposition. */
  readonly contentDisposition: string;
}

/**
 * Where the bytes of files lie. What is stored under a key never changes, and a key is used once: the
 * names, sizes and owners of files are the database's affair. Rejects with StorageError where the store
 * cannot be reached, refuses, or is another one than the database's.
 */
export interface FileStorage {
  /** Rejects where the database's files lie elsewhere, and nothing done here would be done to them. */
  assertOurs(): Promise<void>;
  /** Begins to write under a key. Nothing can be read there before `finish` has resolved. */
  write(key: string): StorageWriter;
  /**
   * Opens the bytes, of which there have to be as many as the range asks for; undefined is all of them.
   * What is open is read to its end though it be removed meanwhile. Rejects with ObjectMissingError.
   */
  read(key: string, range?: ByteRange): Promise<ReadableStream<Uint8Array>>;
  /** Takes away what lies under the key, what is being written too. May be repeated. */
  remove(key: string): Promise<void>;
  /** An address that needs no credentials; undefined where the store has none of its own. */
  signedUrl(key: string, address: SignedAddress): Promise<string | undefined>;
}

export interface StorageWriter {
  /** Resolves when the store can take more: whoever waits for it is held back by a slow store. */
  write(piece: Uint8Array): Promise<void>;
  /** Resolves when all of it is durable and can be read. */
  finish(): Promise<void>;
  /** Gives up and takes away what was written, where it can; does nothing after `finish`. Never rejects. */
  abort(): Promise<void>;
}

/** The store could not do what it was asked, for reasons of its own. */
export class StorageError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "StorageError";
  }
}

export class ObjectMissingError extends StorageError {
  constructor(key: string) {
    super(`nothing is stored under ${key}`);
    this.name = "ObjectMissingError";
  }
}

const KEY = /^[a-z0-9_]{8,80}$/;

/** Keys become paths and addresses, so only these are taken. */
export function assertStorageKey(key: string): void {
  if (!KEY.test(key)) throw new TypeError(`not a storage key: ${key}`);
}
