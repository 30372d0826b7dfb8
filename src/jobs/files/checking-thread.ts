import type { FilePurpose } from "../../lib/file-record.ts";
import { serveCalls } from "../../lib/work-thread.ts";
import { checkOf, type FileCheck, UndecidedCheck } from "./file-check.ts";
import type { CheckingCall } from "./threaded-check.ts";

/** The checks of uploads, by the numbers that the other side gave them. */
const checks = new Map<number, FileCheck | UndecidedCheck>();

serveCalls(({ check: id, step }: CheckingCall): string | undefined => {
  if (step.kind === "begin") {
    checks.set(id, beginning(step.purpose));
    return undefined;
  }
  if (step.kind === "drop") {
    checks.delete(id);
    return undefined;
  }
  const check = checks.get(id);
  if (check === undefined) throw new Error("a check that was begun in a thread before this one");
  if (step.kind === "write") check.write(step.piece);
  else if (step.kind === "end") check.end();
  else checks.set(id, decided(check, step.purpose));
  const current = checks.get(id)!;
  return current instanceof UndecidedCheck ? undefined : current.contentType;
});

function beginning(purpose: FilePurpose | undefined): FileCheck | UndecidedCheck {
  return purpose === undefined ? new UndecidedCheck() : (checkOf(purpose) ?? PASSING);
}

function decided(check: FileCheck | UndecidedCheck, purpose: FilePurpose): FileCheck {
  if (!(check instanceof UndecidedCheck)) throw new Error("the purpose was decided before");
  return check.decide(purpose) ?? PASSING;
}

/** Of a purpose that takes any bytes. */
const PASSING: FileCheck = { write() {}, end() {} };
