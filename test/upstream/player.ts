import { randomPieceLength, seededRandom } from "./random.ts";
import type { EventContent, Pace, Step } from "./wire.ts";

/** Without it a client gets many pieces in one read, and the cuts would test nothing. */
const CUT_DELAY_MS = 1;
const BATCH_BYTES = 16_384;
/** Bun discards what is queued when a stream fails, so a cut waits until the last piece has left. */
const FLUSH_MS = 20;

/** Told about what goes out while a body is played. */
export interface Listener {
  sent(event: EventContent): void;
  /** Once, and not after the client has gone. */
  finished(): void;
  /** The connection was destroyed on purpose. */
  cut(): void;
  /** The reader has gone. */
  gone(): void;
}

/** A batch of bytes on its way out, with the events that end in it. */
interface Batch {
  bytes: Uint8Array;
  offset: number;
  events: { endOffset: number; content: EventContent }[];
}

type Control = Exclude<Step, { kind: "bytes" }> | { kind: "end" };

/** Plays steps as a body that waits for its reader. Pauses end at once when `gone` aborts. */
export function playSteps(
  steps: Iterable<Step>,
  pace: Pace & { seed: number },
  gone: AbortSignal,
  listener: Listener,
): ReadableStream<Uint8Array> {
  const source = steps[Symbol.iterator]();
  const defaultDelayMs = pace.cut === true ? CUT_DELAY_MS : 0;
  const random = seededRandom(pace.seed);
  let batch: Batch = { bytes: new Uint8Array(0), offset: 0, events: [] };
  let control: Control | null = null;

  const emit = (controller: ReadableStreamDefaultController<Uint8Array>) => {
    const length = pace.pieceBytes ?? (pace.cut === true ? randomPieceLength(random) : Infinity);
    const end = Math.min(batch.bytes.length, batch.offset + length);
    controller.enqueue(batch.bytes.subarray(batch.offset, end));
    batch.offset = end;
    while (batch.events[0] !== undefined && batch.events[0].endOffset <= end) {
      listener.sent(batch.events.shift()!.content);
    }
  };

  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        while (!gone.aborted) {
          if (batch.offset < batch.bytes.length) {
            emit(controller);
            const atEnd = batch.offset === batch.bytes.length && control?.kind === "end";
            if (!atEnd) return pause(pace.pieceDelayMs ?? defaultDelayMs, gone);
          }
          if (control === null) ({ batch, control } = collect(source));
          if (batch.offset < batch.bytes.length) continue;
          const step: Control | null = control;
          control = null;
          if (step?.kind === "wait") await pause(step.ms, gone);
          if (step?.kind === "hang") await pause(Infinity, gone);
          if (step?.kind === "cut") {
            await pause(FLUSH_MS, gone);
            listener.cut();
            return controller.error(undefined);
          }
          if (step?.kind === "end") {
            listener.finished();
            return controller.close();
          }
        }
      },
      cancel() {
        listener.gone();
      },
    },
    new CountQueuingStrategy({ highWaterMark: 0 }),
  );
}

/** Takes steps up to the next that is not bytes, or up to a bounded batch. */
function collect(source: Iterator<Step>): { batch: Batch; control: Control | null } {
  const parts: Uint8Array[] = [];
  const events: Batch["events"] = [];
  let length = 0;
  let control: Control | null = null;
  while (control === null && length < BATCH_BYTES) {
    const next = source.next();
    const step = next.done === true ? ({ kind: "end" } as const) : next.value;
    if (step.kind !== "bytes") {
      control = step;
      continue;
    }
    parts.push(step.bytes);
    length += step.bytes.length;
    if (step.event !== undefined) events.push({ endOffset: length, content: step.event });
  }
  const bytes = parts.length === 1 ? parts[0]! : Buffer.concat(parts);
  return { batch: { bytes, offset: 0, events }, control };
}

/** Waits that long, at least one turn of the event loop, and no longer than until the signal. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    if (ms === 0) return void setImmediate(resolve);
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = ms === Infinity ? undefined : setTimeout(done, ms);
    signal.addEventListener("abort", done);
  });
}
