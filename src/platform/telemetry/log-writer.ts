import fs from "node:fs";
import type { Clock } from "../../lib/clock.ts";

/** Receives log lines; each ends with a line feed. */
export interface LogDestination {
  write(line: string): void;
  /** Writes the buffered lines before it returns. For the end of the process. Never throws. */
  flushSync(): void;
  /** Resolves when everything is written, or after a second. Drops later lines. */
  close(): Promise<void>;
  /** Lines that could not be written since the start. */
  readonly droppedLines: number;
}

/** The functions of node:fs in use, which a test replaces with a failing disk. */
export type WritableFile = Pick<typeof fs, "write" | "writeSync">;

/** Characters of one write: about 80 lines, and less than the 64 KB of a pipe. */
const BLOCK_CHARACTERS = 32_768;
/** Milliseconds that a line waits at most for its block to fill. */
const FLUSH_AFTER_MS = 250;
/** Characters that are buffered for a slow reader. Further lines are dropped and counted. */
const MAX_PENDING_CHARACTERS = 4_194_304;
const RETRY_AFTER_MS = 20;
const CLOSE_WITHIN_MS = 1000;
const MAX_SYNC_RETRIES = CLOSE_WITHIN_MS / RETRY_AFTER_MS;

/**
 * Collects lines into blocks and writes them without blocking the event loop: a stalled reader, a full disk
 * or a closed pipe costs log lines, never requests. docs/explanation/built-by-hand.md says why it is not sonic-boom.
 */
export class LogWriter implements LogDestination {
  readonly #fd: number;
  readonly #clock: Clock;
  readonly #file: WritableFile;
  #pending = "";
  /** The block that is being written. `#offset` is the number of its bytes that are written. */
  #block: Buffer | undefined;
  #offset = 0;
  #isTimerSet = false;
  #isClosed = false;
  #onDrained: (() => void) | undefined;
  #droppedLines = 0;

  constructor(fd: number, clock: Clock, file: WritableFile = fs) {
    this.#fd = fd;
    this.#clock = clock;
    this.#file = file;
  }

  get droppedLines(): number {
    return this.#droppedLines;
  }

  write(line: string): void {
    if (this.#isClosed || this.#pending.length + line.length > MAX_PENDING_CHARACTERS) {
      this.#droppedLines++;
      return;
    }
    this.#pending += line;
    if (this.#pending.length >= BLOCK_CHARACTERS) this.#startBlock();
    else if (!this.#isTimerSet) this.#setTimer();
  }

  flushSync(): void {
    // The current block belongs to an asynchronous write. Writing its rest here could repeat lines.
    const bytes = Buffer.from(this.#pending);
    this.#pending = "";
    let offset = 0;
    for (let retries = 0; offset < bytes.length && retries < MAX_SYNC_RETRIES; ) {
      try {
        offset += this.#file.writeSync(this.#fd, bytes, offset);
      } catch (error) {
        if (!isBusy(error)) break;
        retries++;
        Bun.sleepSync(RETRY_AFTER_MS);
      }
    }
    this.#droppedLines += countLines(bytes, offset);
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#onDrained = resolve;
    this.#startBlock();
    const cancel = this.#clock.after(CLOSE_WITHIN_MS, resolve);
    if (this.#block !== undefined) await promise;
    cancel();
    this.#isClosed = true;
  }

  #setTimer(): void {
    this.#isTimerSet = true;
    this.#clock.after(FLUSH_AFTER_MS, () => {
      this.#isTimerSet = false;
      this.#startBlock();
    });
  }

  #startBlock(): void {
    if (this.#block !== undefined || this.#pending === "") return;
    this.#block = Buffer.from(this.#pending);
    this.#offset = 0;
    this.#pending = "";
    this.#continueBlock(this.#block);
  }

  #continueBlock(block: Buffer): void {
    const rest = block.length - this.#offset;
    this.#file.write(this.#fd, block, this.#offset, rest, null, (error, written) => {
      if (error === null) this.#offset += written;
      else if (isBusy(error)) {
        this.#clock.after(RETRY_AFTER_MS, () => this.#continueBlock(block));
        return;
      } else this.#dropBlock(block, error);
      if (this.#offset < block.length) this.#continueBlock(block);
      else this.#endBlock();
    });
  }

  #dropBlock(block: Buffer, error: NodeJS.ErrnoException): void {
    this.#droppedLines += countLines(block, this.#offset);
    this.#offset = block.length;
    // The reader has closed its end. After any other error, such as a full disk, the next block may
    // succeed.
    if (error.code === "EPIPE" || error.code === "EBADF") this.#isClosed = true;
  }

  #endBlock(): void {
    this.#block = undefined;
    if (this.#isClosed) {
      this.#droppedLines += countLines(Buffer.from(this.#pending), 0);
      this.#pending = "";
    }
    if (this.#pending.length >= BLOCK_CHARACTERS || this.#onDrained) this.#startBlock();
    else if (this.#pending !== "" && !this.#isTimerSet) this.#setTimer();
    if (this.#block === undefined) this.#onDrained?.();
  }
}

function isBusy(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException).code;
  return code === "EAGAIN" || code === "EBUSY" || code === "EINTR";
}

function countLines(bytes: Buffer, from: number): number {
  let lines = 0;
  for (let at = bytes.indexOf(10, from); at >= 0; at = bytes.indexOf(10, at + 1)) lines++;
  return lines;
}
