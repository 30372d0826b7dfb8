import { isFields } from "../lib/json.ts";
import { decodeShared, type SharedBytes } from "../lib/shared-bytes.ts";
import { ProviderFailure, type TypedCompletion, type WholeChat } from "./interface.ts";
import type { AbortNotice } from "./transport/call-abort.ts";
import { failureOfThrown } from "./transport/call-failures.ts";

/**
 * Work that a work thread does for a provider: it imports a module that the provider names and calls the pure function
 * that the module exports. GatewayError is the only error that passes between threads unchanged, so ProviderFailure is
 * sent in its own form.
 */
export type ThreadOutcome =
  | { readonly result: unknown }
  | { readonly failure: Pick<ProviderFailure, (typeof PASSED_ON)[number]> };

const PASSED_ON = [
  "kind",
  "message",
  "status",
  "retryAfterMs",
  "param",
  "isTooLong",
  "details",
] as const;

/** Runs a function in the thread and returns its result or its ProviderFailure. */
export function threadOutcome(run: () => unknown): ThreadOutcome {
  try {
    return { result: withBytes(run()) };
  } catch (error) {
    if (!(error instanceof ProviderFailure)) throw error;
    return { failure: Object.fromEntries(PASSED_ON.map((name) => [name, error[name]])) as never };
  }
}

/** Returns the result on the event loop, or throws the ProviderFailure. */
export function resultOf<Result>(outcome: ThreadOutcome): Result {
  if ("result" in outcome) return outcome.result as Result;
  const { kind, message, status, retryAfterMs, ...details } = outcome.failure;
  throw new ProviderFailure(kind, message, {
    ...details,
    ...(status !== undefined && { status }),
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  });
}

/** Writes an object in the member `body` as JSON. */
function withJson(result: unknown): unknown {
  const { body } = result as { body?: unknown };
  return isFields(body) ? { ...(result as object), body: JSON.stringify(body) } : result;
}

/** Encodes a text in the thread, so that its bytes can be transferred without a copy. */
function withBytes(result: unknown): unknown {
  const { body } = result as { body?: unknown };
  if (typeof body !== "string") return result;
  return { ...(result as object), body: new TextEncoder().encode(body) };
}

/** Returns the buffers that the thread transfers instead of copying them. */
export function transferOfOutcome(outcome: unknown): Transferable[] {
  const { result } = outcome as { result?: { body?: unknown } };
  return result?.body instanceof Uint8Array ? [result.body.buffer as ArrayBuffer] : [];
}

type Kind<Instance> = abstract new (...from: never[]) => Instance;

/** Returns a module's only export of a class. Runs in the thread. */
export async function exportOf<Instance>(module: string, kind: Kind<Instance>): Promise<Instance> {
  const exported: unknown[] = Object.values(await import(module));
  const matches = exported.filter((value): value is Instance => value instanceof kind);
  if (matches.length !== 1) throw new Error(`${module} exports ${matches.length} of ${kind.name}`);
  return matches[0]!;
}

/** The text of a response, or its bytes if it is too long for the event loop. */
export type AnswerText = string | SharedBytes;

/**
 * Reads the text of a whole response: a pure function, and the module that exports it. As with BodyRender, options and
 * result are structured clones, except for bytes in the member `body`, which are transferred.
 */
export class AnswerRead<Options, Result> {
  readonly module: string;
  readonly read: (text: string, options: Options) => Result;

  constructor(module: string, read: (text: string, options: Options) => Result) {
    this.module = module;
    this.read = read;
  }
}

/**
 * Builds an endpoint's response from a typed answer; made like AnswerRead. The thread that reads a long answer also
 * calls this function, so that long texts only pass between threads in the member `body`.
 */
export class CompletionRender<Options, Result> {
  readonly module: string;
  readonly render: (completion: TypedCompletion, options: Options) => Result;

  constructor(module: string, render: (completion: TypedCompletion, options: Options) => Result) {
    this.module = module;
    this.render = render;
  }
}

export interface ReadAnswerCall {
  readonly kind: "provider.read-answer";
  readonly module: string;
  readonly bytes: SharedBytes;
  readonly options: unknown;
  /** Applied to the answer in the same call: the module of a CompletionRender, and its options. */
  readonly next?: { readonly module: string; readonly options: unknown };
}

/** The thread that reads long answers: a FairWorkThread. */
export interface AnswerThread {
  call<Result>(owner: string, call: ReadAnswerCall, signal: AbortNotice): Promise<Result>;
}

/** The thread that reads a provider's long answers. */
export interface AnswerReading {
  /** Undefined: the event loop reads them. */
  readonly thread: AnswerThread | undefined;
  /** The provider. Owners are served in turn. */
  readonly owner: string;
}

/**
 * Reads an answer: short ones directly, long ones in the thread. Rejects with GatewayError 503 if the thread is
 * overloaded.
 */
export function readAnswerText<Options, Result>(
  { thread, owner }: AnswerReading,
  { module, read }: AnswerRead<Options, Result>,
  text: AnswerText,
  options: Options,
  signal: AbortNotice,
): Result | Promise<Result> {
  if (typeof text === "string") return read(text, options);
  if (thread === undefined) return read(decodeShared(text, "lossy"), options);
  const call: ReadAnswerCall = { kind: "provider.read-answer", module, bytes: text, options };
  return thread.call<ThreadOutcome>(owner, call, signal).then(resultOf<Result>);
}

/** Returns an answer that has been read. */
export function readyAnswer(completion: TypedCompletion): WholeChat {
  return {
    kind: "whole",
    isLong: false,
    render: ({ render }, options) => render(completion, options),
  };
}

/**
 * Returns a whole chat answer. A short one is read directly, which throws ProviderFailure if it is invalid. A long one
 * is read when it is rendered.
 */
export function typedAnswer<Options>(
  { thread, owner }: AnswerReading,
  { module, read }: AnswerRead<Options, TypedCompletion>,
  text: AnswerText,
  options: Options,
  signal: AbortNotice,
): WholeChat {
  if (typeof text === "string") return readyAnswer(read(text, options));
  return {
    kind: "whole",
    isLong: true,
    async render<NextOptions, Result>(
      next: CompletionRender<NextOptions, Result>,
      nextOptions: NextOptions,
    ): Promise<Result> {
      if (thread === undefined) {
        return next.render(read(decodeShared(text, "lossy"), options), nextOptions);
      }
      const call: ReadAnswerCall = {
        kind: "provider.read-answer",
        module,
        bytes: text,
        options,
        next: { module: next.module, options: nextOptions },
      };
      try {
        return resultOf(await thread.call<ThreadOutcome>(owner, call, signal));
      } catch (error) {
        throw failureOfThrown(error, signal);
      }
    },
  };
}

/** Reads an answer in the thread. */
export async function doReadAnswer(call: ReadAnswerCall): Promise<ThreadOutcome> {
  const { module, bytes, options, next } = call;
  const { read } = await exportOf<AnswerRead<unknown, unknown>>(module, AnswerRead);
  const text = () => decodeShared(bytes, "lossy");
  if (next === undefined) return threadOutcome(() => read(text(), options));
  type Render = CompletionRender<unknown, unknown>;
  const { render } = await exportOf<Render>(next.module, CompletionRender);
  return threadOutcome(() =>
    withJson(render(read(text(), options) as TypedCompletion, next.options)),
  );
}
