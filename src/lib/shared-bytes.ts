/** Bytes that the event loop and a thread share. They no longer change. */
export interface SharedBytes {
  readonly segments: readonly Uint8Array<SharedArrayBuffer>[];
  readonly byteLength: number;
}

const MIN_SEGMENT_BYTES = 131_072;
/** Copying into a segment of this length takes a few milliseconds if its memory is new. */
const MAX_SEGMENT_BYTES = 1_048_576;

/** Collects bytes of unknown length in memory that is shared with threads, without ever joining them. */
export class SharedBytesWriter {
  readonly #segments: Uint8Array<SharedArrayBuffer>[] = [];
  #last: Uint8Array<SharedArrayBuffer> | undefined;
  #usedOfLast = 0;
  #byteLength = 0;

  push(bytes: Uint8Array): void {
    let rest = bytes;
    while (rest.byteLength > 0) {
      if (this.#last === undefined || this.#usedOfLast === this.#last.byteLength) {
        this.#beginSegment(rest.byteLength);
      }
      const last = this.#last!;
      const copied = rest.subarray(0, last.byteLength - this.#usedOfLast);
      last.set(copied, this.#usedOfLast);
      this.#usedOfLast += copied.byteLength;
      this.#byteLength += copied.byteLength;
      rest = rest.subarray(copied.byteLength);
    }
  }

  /** Returns the collected bytes. Nothing can be pushed afterwards. */
  end(): SharedBytes {
    this.#endSegment();
    return { segments: this.#segments, byteLength: this.#byteLength };
  }

  #beginSegment(neededBytes: number): void {
    this.#endSegment();
    const doubled = Math.max(this.#byteLength, MIN_SEGMENT_BYTES, neededBytes);
    this.#last = new Uint8Array(new SharedArrayBuffer(Math.min(doubled, MAX_SEGMENT_BYTES)));
    this.#usedOfLast = 0;
  }

  #endSegment(): void {
    if (this.#last !== undefined) this.#segments.push(this.#last.subarray(0, this.#usedOfLast));
    this.#last = undefined;
  }
}

export function sharedCopy(bytes: Uint8Array): SharedBytes {
  const writer = new SharedBytesWriter();
  writer.push(bytes);
  return writer.end();
}

/**
 * Decodes the bytes as UTF-8, without a byte order mark at the beginning. If a byte sequence is invalid, strict
 * mode throws a TypeError and lossy mode inserts replacement characters.
 */
export function decodeShared(
  { segments }: SharedBytes,
  mode: "strict" | "lossy" = "strict",
): string {
  const decoder = new TextDecoder("utf-8", { fatal: mode === "strict", ignoreBOM: false });
  const texts = segments.map((segment) =>
    decoder.decode(segment as unknown as Uint8Array<ArrayBuffer>, { stream: true }),
  );
  return texts.join("") + decoder.decode();
}
