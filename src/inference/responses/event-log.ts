import { asUnavailable } from "../../../db/unavailable.ts";
import { type Clock, sleep } from "../../lib/clock.ts";
import { finishesWithin } from "../../lib/deadlines.ts";
import type { EventBatch } from "./background-store.ts";

/** Between two batches, so that a response writes a few times a second. */
const BATCH_MS = 150;
/** What comes beyond it waits until it is written. */
const MAX_PENDING_BYTES = 1_048_576;
/** Of one response; events beyond it are left out, but for the one that ends it. */
export const MAX_LOG_BYTES = 33_554_432;
const RETRY_MS = 500;
const FRAME_END = new TextEncoder().encode("\n\n");

interface EventLogDependencies {
  readonly clock: Clock;
  /** False where the response is over. */
  append(batch: EventBatch): Promise<boolean>;
  /** A batch was written. */
  onWritten(): void;
  /** Nothing more can be written. */
  onLost(error?: unknown): void;
}

/** Writes the events of one response as they come, in batches; while the database is out of reach they wait. */
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

  /** Takes bytes of events. Resolves when more can be taken. */
  async add(bytes: Uint8Array): Promise<void> {
    if (this.#isLost) return;
    this.#pending.push(bytes);
    this.#pendingBytes += bytes.length;
    this.#writing ??= Promise.resolve().then(() => this.#write());
    if (this.#pendingBytes > MAX_PENDING_BYTES) await this.#writing;
  }

  /** Resolves when all is written that can be. */
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

  /** The whole frames that are pending; undefined where there are none. */
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

/** How many frames there are in bytes of whole ones. */
export function framesIn(bytes: Uint8Array): number {
  let frames = 0;
  for (let end = frameEnd(bytes, 0); end > 0; end = frameEnd(bytes, end)) frames++;
  return frames;
}

/** Where the frame ends that begins there; 0 where it is not whole. JSON has no line ends of its own. */
export function frameEnd(bytes: Uint8Array, from: number): number {
  const all = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const at = all.indexOf(FRAME_END, from);
  return at < 0 ? 0 : at + FRAME_END.length;
}
