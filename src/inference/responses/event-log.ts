import { asUnavailable } from "../../../db/unavailable.ts";
import { type Clock, sleep } from "../../lib/clock.ts";
import { finishesWithin } from "../../lib/deadlines.ts";
import type { EventBatch } from "./background-store.ts";

/** The pause between two batches, so that a response writes only a few times per second. */
const BATCH_MS = 150;
/** Maximum size of unwritten events. Above it the stream pauses until they are written. */
const MAX_PENDING_BYTES = 1_048_576;
/** Maximum size of the events of one response. Events beyond it are dropped, except the last one. */
export const MAX_LOG_BYTES = 33_554_432;
const RETRY_MS = 500;
const FRAME_END = new TextEncoder().encode("\n\n");

interface EventLogDependencies {
  readonly clock: Clock;
  /** Returns false if the response has ended. */
  append(batch: EventBatch): Promise<boolean>;
  /** Called after a batch was written. */
  onWritten(): void;
  /** Called when nothing more can be written. */
  onLost(error?: unknown): void;
}

/**
 * Writes the events of one response in batches, as they arrive. While the database is unreachable, the events
 * wait.
 */
export class EventLog {
  readonly #dependencies: EventLogDependencies;
  readonly #closing = Promise.withResolvers<void>();
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;
  #writing: Promise<void> | undefined;
  #nextSequence: number;
  #bytes = 0;
  #isLost = false;

  constructor(dependencies: EventLogDependencies, firstSequence: number) {
    this.#dependencies = dependencies;
    this.#nextSequence = firstSequence;
  }

  get lastSequence(): number {
    return this.#nextSequence - 1;
  }

  /** Adds bytes of events. Resolves when more can be added. */
  async add(bytes: Uint8Array): Promise<void> {
    if (this.#isLost) return;
    this.#pending.push(bytes);
    this.#pendingBytes += bytes.length;
    this.#writing ??= Promise.resolve().then(() => this.#write());
    if (this.#pendingBytes > MAX_PENDING_BYTES) await this.#writing;
  }

  /** Writes the remaining events. Resolves when all events are written that can be written. */
  async close(): Promise<void> {
    this.#closing.resolve();
    while (this.#writing !== undefined) await this.#writing;
  }

  async #write(): Promise<void> {
    try {
      for (let batch = this.#take(); batch !== undefined; batch = this.#take()) {
        await this.#append(batch);
        if (this.#isLost) return;
        this.#dependencies.onWritten();
        await finishesWithin(this.#closing.promise, this.#dependencies.clock, BATCH_MS);
      }
    } catch (error) {
      this.#lose(error);
    } finally {
      this.#writing = undefined;
    }
  }

  /** Returns the pending whole frames, or undefined if there are none. */
  #take(): EventBatch | undefined {
    const all = Buffer.concat(this.#pending);
    const end = all.lastIndexOf(FRAME_END) + FRAME_END.length;
    if (end < FRAME_END.length) return undefined;
    const bytes = all.subarray(0, end);
    const rest = all.subarray(end);
    this.#pending = rest.length > 0 ? [rest] : [];
    this.#pendingBytes = rest.length;
    const firstSequence = this.#nextSequence;
    this.#nextSequence += framesIn(bytes);
    this.#bytes += bytes.length;
    if (this.#bytes > MAX_LOG_BYTES) return this.#take();
    return { firstSequence, lastSequence: this.lastSequence, bytes };
  }

  async #append(batch: EventBatch): Promise<void> {
    const { append, clock } = this.#dependencies;
    for (;;) {
      try {
        if (!(await append(batch))) this.#lose();
        return;
      } catch (error) {
        if (asUnavailable(error) === undefined) throw error;
      }
      await sleep(clock, RETRY_MS);
    }
  }

  #lose(error?: unknown): void {
    this.#isLost = true;
    this.#pending = [];
    this.#pendingBytes = 0;
    this.#dependencies.onLost(error);
  }
}

/** Returns the number of frames in bytes that contain only whole frames. */
export function framesIn(bytes: Uint8Array): number {
  let frames = 0;
  for (let end = frameEnd(bytes, 0); end > 0; end = frameEnd(bytes, end)) frames++;
  return frames;
}

/**
 * Returns the end of the frame that begins at `from`, or 0 if it is incomplete. JSON contains no line breaks
 * of its own.
 */
export function frameEnd(bytes: Uint8Array, from: number): number {
  const all = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const at = all.indexOf(FRAME_END, from);
  return at < 0 ? 0 : at + FRAME_END.length;
}
