import { TIME_LENGTH, TIME_MARK } from "./wire.ts";

const MARK = Buffer.from(TIME_MARK);

/**
 * Reads off a connection's bytes when the upstream sent each event of a live stream. A mark may be cut in
 * two by the network, so the end of what came last is looked at again with what comes next.
 */
export class EventClock {
  readonly #onEvent: (sentAtMs: number) => void;
  #rest: Buffer = Buffer.alloc(0);

  constructor(onEvent: (sentAtMs: number) => void) {
    this.#onEvent = onEvent;
  }

  /** The bytes may be reused by the caller once this returns. */
  push(bytes: Buffer): void {
    const buffer = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    let at = 0;
    for (;;) {
      const mark = buffer.indexOf(MARK, at);
      const end = mark + MARK.length + TIME_LENGTH;
      if (mark < 0 || end > buffer.length) {
        const keepFrom = mark < 0 ? Math.max(at, buffer.length - MARK.length) : mark;
        this.#rest = Buffer.from(buffer.subarray(keepFrom));
        return;
      }
      this.#onEvent(Number(buffer.toString("latin1", mark + MARK.length, end)));
      at = end;
    }
  }
}
