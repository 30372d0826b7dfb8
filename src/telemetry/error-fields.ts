import { redactText } from "./redact.ts";

/** The logged members of an error. No others are read, because they could hold prompts or secrets. */
export interface ErrorFields {
  readonly type: string;
  readonly message: string;
  readonly code?: string | number;
  readonly param?: string;
  readonly stack?: string;
  readonly cause?: ErrorFields;
  readonly errors?: readonly ErrorFields[];
}

const MAX_CAUSES = 5;
const MAX_AGGREGATED = 5;
const MAX_FRAMES = 12;
const FRAME = /^\s+at /;

/** Describes any thrown value and its chain of causes, without secrets. Never throws. */
export function errorFields(thrown: unknown): ErrorFields {
  return describe(thrown, 0);
}

function describe(thrown: unknown, depth: number): ErrorFields {
  try {
    return thrown instanceof Error ? describeError(thrown, depth) : describeValue(thrown);
  } catch {
    return { type: "unreadable", message: "the error could not be read" };
  }
}

function describeValue(value: unknown): ErrorFields {
  const isPrimitive = typeof value !== "object" && typeof value !== "function";
  return {
    type: value === null ? "null" : typeof value,
    message: isPrimitive ? redactText(String(value)) : "not an error object",
  };
}

/** An error whose message may quote a prompt has a `logMessage` to log instead. */
function describeError(error: Error, depth: number): ErrorFields {
  const { code, param, logMessage } = error as Error & Readonly<Record<string, unknown>>;
  const errors = error instanceof AggregateError ? error.errors.slice(0, MAX_AGGREGATED) : [];
  return {
    type: redactText(String(error.name)),
    message: redactText(String(logMessage ?? error.message)),
    ...(typeof code === "number" && { code }),
    ...(typeof code === "string" && { code: redactText(code) }),
    ...(typeof param === "string" && logMessage === undefined && { param: redactText(param) }),
    stack: stackFrames(error.stack),
    ...(error.cause !== undefined &&
      depth < MAX_CAUSES && { cause: describe(error.cause, depth + 1) }),
    ...(errors.length > 0 &&
      depth < MAX_CAUSES && { errors: errors.map((one: unknown) => describe(one, depth + 1)) }),
  };
}

/** Without the message at the start of the stack, which is logged as `message`. */
function stackFrames(stack: unknown): string | undefined {
  if (typeof stack !== "string") return undefined;
  const frames = stack.split("\n").filter((line) => FRAME.test(line));
  if (frames.length === 0) return undefined;
  return redactText(
    frames
      .slice(0, MAX_FRAMES)
      .map((line) => line.trim())
      .join("\n"),
  );
}
