/**
 * The frames that the gateway and a Python process exchange: a length, a kind, and bytes. The gateway treats
 * frames of the process as untrusted input.
 */

/** Kinds of frames to the process. */
export const ORDER = { file: 1, run: 2 } as const;
/** Kinds of frames from the process. `text` is output of Python, and `done` ends a run. */
export const REPORT = { ready: 1, text: 2, file: 3, done: 4 } as const;
/** The first byte of a `done` frame. */
export const RUN_END = { finished: 0, raised: 1 } as const;

export interface Frame {
  readonly kind: number;
  readonly payload: Uint8Array;
}

export interface NamedFile {
  readonly name: string;
  readonly bytes: Uint8Array;
}

const HEAD_BYTES = 5;

export function encodeFrame(kind: number, ...parts: readonly Uint8Array[]): Uint8Array {
  const length = parts.reduce((sum, part) => sum + part.byteLength, 0);
  const frame = new Uint8Array(HEAD_BYTES + length);
  const view = new DataView(frame.buffer);
  view.setUint32(0, length, true);
  view.setUint8(4, kind);
  let at = HEAD_BYTES;
  for (const part of parts) {
    frame.set(part, at);
    at += part.byteLength;
  }
  return frame;
}

/** Returns the frame of a file. Its payload is the length of the name, the name, and the bytes. */
export function encodeFile(kind: number, file: NamedFile): Uint8Array {
  const name = new TextEncoder().encode(file.name);
  return encodeFrame(
    kind,
    Uint8Array.of(name.byteLength & 0xff, name.byteLength >> 8),
    name,
    file.bytes,
  );
}

/** Returns undefined if the payload is not a file. */
export function decodeFile(payload: Uint8Array): NamedFile | undefined {
  const start = 2 + (payload[0] ?? 0) + ((payload[1] ?? 0) << 8);
  if (start > payload.byteLength) return undefined;
  const name = new TextDecoder().decode(payload.subarray(2, start));
  return { name, bytes: payload.subarray(start) };
}

/** Splits a stream of bytes into frames. */
export class FrameReader {
  readonly #maxFrameBytes: number;
  #pieces: Uint8Array[] = [];
  #length = 0;

  constructor(maxFrameBytes: number) {
    this.#maxFrameBytes = maxFrameBytes;
  }

  /** Returns the frames that the piece completes. Throws if a frame announces more bytes than allowed. */
  push(piece: Uint8Array): Frame[] {
    this.#pieces.push(piece);
    this.#length += piece.byteLength;
    const frames: Frame[] = [];
    for (let length = this.#frameBytes(); length <= this.#length; length = this.#frameBytes()) {
      const bytes = this.#take(length);
      frames.push({ kind: bytes[4]!, payload: bytes.subarray(HEAD_BYTES) });
    }
    return frames;
  }

  /** Returns the bytes of the first frame, including its header. Returns infinity if the header is incomplete. */
  #frameBytes(): number {
    if (this.#length < HEAD_BYTES) return Number.POSITIVE_INFINITY;
    if (this.#pieces[0]!.byteLength < HEAD_BYTES) this.#join();
    const head = this.#pieces[0]!;
    const length = new DataView(head.buffer, head.byteOffset).getUint32(0, true);
    if (length > this.#maxFrameBytes) throw new Error(`a frame of ${length} bytes is too long`);
    return HEAD_BYTES + length;
  }

  #take(length: number): Uint8Array {
    if (this.#pieces[0]!.byteLength < length) this.#join();
    const first = this.#pieces[0]!;
    const frame = first.subarray(0, length);
    this.#length -= length;
    if (first.byteLength === length) this.#pieces.shift();
    else this.#pieces[0] = first.subarray(length);
    return frame;
  }

  #join(): void {
    this.#pieces = [Buffer.concat(this.#pieces)];
  }
}
