import { expect, test } from "bun:test";
import { EVERY_GUARD, type Guards, runSchedule } from "./schedule.ts";
import { Violation } from "./violation.ts";

/** Without it, this promise is seen broken. */
const GUARDED: Readonly<Record<keyof Guards, string>> = {
  fence: "O1",
  limitInHold: "M1",
  orderedLocks: "order",
  settleOnce: "M3",
  commitMarks: "M3",
  outputGate: "output gate",
  answerAfterCharge: "M4",
};

const MAX_SCHEDULES = 2_000;
const TIMEOUT_MS = 600_000;

for (const [guard, promise] of Object.entries(GUARDED)) {
  test(
    `without the guard ${guard} a schedule soon breaks the promise ${promise}`,
    () => {
      const guards = { ...EVERY_GUARD, [guard]: false };
      let seed = 0;
      let broken: string | undefined;
      while (broken !== promise && seed < MAX_SCHEDULES) {
        const { failure } = runSchedule({ seed: ++seed, guards });
        broken = failure instanceof Violation ? failure.promise : undefined;
      }
      expect(broken).toBe(promise);
      console.log(`without ${guard}: seed ${seed}`);
    },
    TIMEOUT_MS,
  );
}
