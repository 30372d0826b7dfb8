import fs from "node:fs";
import type { Clock } from "../lib/clock.ts";

/** Where log lines go; each text ends with a line feed. */
export interface LogDestination {
  write(line: string): void;
  /** Writes what is buffered before it returns; for the end of the process. Never throws. */
  flushSync(): void;
  /** Resolves when everything is written, or after a second at most. Later lines are dropped. */
  close(): Promise<void>;
  /** Lines that could not be written since the start. */
  readonly droppedLines: number;
}

/** The part of node:fs that is needed, so that a failing disk can stand in for it. */
export type WritableFile = Pick<typeof fs, "write" | "writeSync">;

/** A block of about 80 lines costs one system call; smaller than a pipe's 64 KB. */
const BLOCK_CHARACTERS = 32_768;
/** How long a line may wait for its block to fill. */
const FLUSH_AFTER_MS = 250;
/** What may wait for a slow reader; lines beyond are dropped and counted. */
const MAX_PENDING_CHARACTERS = 4_194_304;
const RETRY_AFTER_MS = 20;
const CLOSE_WITHIN_MS = 1000;
const MAX_SYNC_RETRIES = CLOSE_WITHIN_MS / RETRY_AFTER_MS;

/**
 * Gathers lines into blocks and writes them without holding up the event loop: a reader that stalls,
 * a full disk or a closed pipe costs log lines, never requests. Written here because sonic-boom
 * measures its buffer anew for each line, and retries for ever when a closed pipe is flushed.
 */
export class LogWriter implements LogDestination {
  readonly #fd: number;
  readonly #clock: Clock;
  readonly #file: WritableFile;
  #pending = "";
  /** The block under way and how much of it is written. */
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
    // The rest of a block under way is the system's: writing it again could double its lines.
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
      } else this.#giveUp(block, error);
      if (this.#offset < block.length) this.#continueBlock(block);
      else this.#endBlock();
    });
  }

  #giveUp(block: Buffer, error: NodeJS.ErrnoException): void {
    this.#droppedLines += countLines(block, this.#offset);
    this.#offset = block.length;
    // Nobody reads any more; a full disk, in contrast, may have room for the next block.
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
