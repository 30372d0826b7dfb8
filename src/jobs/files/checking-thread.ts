import type { FilePurpose } from "../../lib/file-record.ts";
import { serveCalls } from "../../lib/work-thread.ts";
import { checkOf, type FileCheck, UndecidedCheck } from "./file-check.ts";
import type { CheckingCall } from "./threaded-check.ts";

/** The checks of uploads, by the ids that the caller has assigned. */
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
  if (check === undefined) throw new Error("the check was begun in an earlier thread");
  if (step.kind === "write") check.write(step.piece);
  else if (step.kind === "end") check.end();
  else checks.set(id, decided(check, step.purpose));
  const current = checks.get(id)!;
  return current instanceof UndecidedCheck ? undefined : current.contentType;
});

function beginning(purpose: FilePurpose | undefined): FileCheck | UndecidedCheck {
  return purpose === undefined ? new UndecidedCheck() : (checkOf(purpose) ?? ACCEPT_ALL);
}

function decided(check: FileCheck | UndecidedCheck, purpose: FilePurpose): FileCheck {
  if (!(check instanceof UndecidedCheck)) throw new Error("the purpose is already decided");
  return check.decide(purpose) ?? ACCEPT_ALL;
}

/** The check of a purpose that accepts any bytes. */
const ACCEPT_ALL: FileCheck = { write() {}, end() {} };
