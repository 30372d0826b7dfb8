import { expect, test } from "bun:test";
import fc from "fast-check";
import { ByteBuffer } from "../../src/lib/byte-buffer.ts";

const bytes = fc.uint8Array({ maxLength: 3_000 });
const step = fc.oneof(
  fc.record({ kind: fc.constant("text" as const), bytes }),
  fc.record({ kind: fc.constant("in place" as const), bytes, spare: fc.nat({ max: 50 }) }),
  fc.record({ kind: fc.constant("take" as const) }),
);

test("what is put together is what was added, however it was, and what was taken stays as it was", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 20 }), (steps) => {
      const growing = new ByteBuffer();
      let pending: Uint8Array[] = [];
      const taken: { bytes: Uint8Array; expected: Buffer }[] = [];
      for (const one of steps) {
        if (one.kind === "take") {
          taken.push({ bytes: growing.take(), expected: Buffer.concat(pending) });
          pending = [];
        } else {
          pending.push(one.bytes);
          if (one.kind === "text") growing.add(Buffer.from(one.bytes).toString("latin1"));
          else {
            growing.writeDirectly(one.bytes.length + one.spare, (into, at) => {
              into.set(one.bytes, at);
              return at + one.bytes.length;
            });
          }
        }
        expect(growing.length).toBe(Buffer.concat(pending).length);
      }
      taken.push({ bytes: growing.take(), expected: Buffer.concat(pending) });
      for (const { bytes: got, expected } of taken) {
        expect(got.buffer.byteLength).toBeLessThanOrEqual(2 * got.length);
        expect(got).toEqual(new Uint8Array(expected));
      }
    }),
  );
});
