import type { FilePurpose } from "../lib/file-record.ts";
import { ImageCheck } from "./image-check.ts";
import { checkBatchLine, checkChatLine, JsonLinesCheck } from "./json-lines-check.ts";

/** Looks at a file's bytes as they pass. Throws a GatewayError, 400, at the first fault. */
export interface FileCheck {
  write(piece: Uint8Array): void;
  /** The last byte has passed. */
  end(): void;
  /** The content type that the bytes themselves tell; known at the end. */
  readonly contentType?: string | undefined;
}

/** The check of a purpose (spec 4.2); undefined where anything goes. */
export function checkOf(purpose: FilePurpose): FileCheck | undefined {
  switch (purpose) {
    case "fine-tune":
      return new JsonLinesCheck(checkChatLine);
    case "batch":
      return new JsonLinesCheck(checkBatchLine);
    case "vision":
      return new ImageCheck();
    default:
      return undefined;
  }
}

const CHECKED = ["fine-tune", "batch", "vision"] as const;

/**
 * All checks at once, for bytes whose purpose comes after them. A check that fails ends; its fault
 * counts when its purpose is the one.
 */
export class UndecidedCheck {
  readonly #outcomes = new Map<FilePurpose, { check: FileCheck; fault?: unknown }>(
    CHECKED.map((purpose) => [purpose, { check: checkOf(purpose)! }]),
  );

  write(piece: Uint8Array): void {
    for (const outcome of this.#outcomes.values()) attempt(outcome, (check) => check.write(piece));
  }

  end(): void {
    for (const outcome of this.#outcomes.values()) attempt(outcome, (check) => check.end());
  }

  /** The check of the purpose, as far as it has come. Throws its fault. */
  decide(purpose: FilePurpose): FileCheck | undefined {
    const outcome = this.#outcomes.get(purpose);
    if (outcome !== undefined && "fault" in outcome) throw outcome.fault;
    return outcome?.check;
  }
}

function attempt(
  outcome: { check: FileCheck; fault?: unknown },
  step: (check: FileCheck) => void,
): void {
  if ("fault" in outcome) return;
  try {
    step(outcome.check);
  } catch (fault) {
    outcome.fault = fault;
  }
}
