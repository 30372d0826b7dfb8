import { expect, test } from "bun:test";
import fc from "fast-check";
import { EventClock } from "./event-clock.ts";
import { MODELS, streamEvents } from "./wire.ts";

test("the time of each event is read once, wherever the bytes are cut", () => {
  const times = Array.from({ length: 100 }, (_, index) => 1_700_000_000_000.125 + index);
  let next = 0;
  const text = streamEvents(MODELS.live, true)
    .join("")
    .replaceAll(/@0{17}/g, () => `@${times[next++]!.toFixed(3)}`);
  const bytes = Buffer.from(text);
  fc.assert(
    fc.property(fc.array(fc.nat(bytes.length), { maxLength: 60 }), (cuts) => {
      const places = [0, ...cuts.toSorted((a, b) => a - b), bytes.length];
      const seen: number[] = [];
      const clock = new EventClock((sentAtMs) => seen.push(sentAtMs));
      for (let at = 1; at < places.length; at++) {
        clock.push(bytes.subarray(places[at - 1], places[at]));
      }
      expect(seen).toEqual(times);
    }),
  );
});
