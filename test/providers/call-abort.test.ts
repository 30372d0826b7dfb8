import { expect, test } from "bun:test";
import { CallAbort } from "../../src/providers/transport/call-abort.ts";

function listenerOf(told: string[], name: string): EventListenerObject {
  return { handleEvent: () => void told.push(name) };
}

test("everyone who listens is told of an abort once, and nobody who has left", () => {
  const abort = new CallAbort();
  const told: string[] = [];
  const gone = [listenerOf(told, "first"), listenerOf(told, "third")];
  abort.addEventListener("abort", gone[0]!);
  abort.addEventListener("abort", listenerOf(told, "second"));
  abort.addEventListener("abort", gone[1]!);
  for (const listener of gone) abort.removeEventListener("abort", listener);
  abort.addEventListener("abort", listenerOf(told, "fourth"));
  expect(abort.aborted).toBeFalse();
  abort.abort();
  abort.abort();
  expect(told.toSorted()).toEqual(["fourth", "second"]);
  expect(abort.aborted).toBeTrue();
});

test.each(["before", "after"])(
  "a signal that is asked for %s the abort has aborted, with its reason",
  (when) => {
    const abort = new CallAbort();
    const early = when === "before" ? abort.signal : undefined;
    abort.abort();
    const signal = early ?? abort.signal;
    expect(signal.aborted).toBeTrue();
    expect(signal.reason).toBe(abort.reason);
    expect((signal.reason as Error).name).toBe("AbortError");
  },
);
