import { decodeShared, type SharedBytes } from "../lib/shared-bytes.ts";
import { type ChatAnswer, ProviderFailure, type TypedCompletion } from "./interface.ts";
import type { AbortNotice } from "./transport/call-abort.ts";
import { failureOfThrown } from "./transport/call-failures.ts";

/**
 * What work threads do for wires: they import a module that a wire names and call the pure function that it
 * exports. Of the errors only GatewayError passes between threads as itself, so ProviderFailure is sent apart.
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

/** In the thread: what a function returns or fails with. */
export function threadOutcome(run: () => unknown): ThreadOutcome {
  try {
    return { result: withBytes(run()) };
  } catch (error) {
    if (!(error instanceof ProviderFailure)) throw error;
    return { failure: Object.fromEntries(PASSED_ON.map((name) => [name, error[name]])) as never };
  }
}

/** On the event loop: the result, or throws the ProviderFailure. */
export function resultOf<Result>(outcome: ThreadOutcome): Result {
  if ("result" in outcome) return outcome.result as Result;
  const { kind, message, status, retryAfterMs, ...details } = outcome.failure;
  throw new ProviderFailure(kind, message, {
    ...details,
    ...(status !== undefined && { status }),
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  });
}

/** A text is encoded in the thread, and its bytes are handed over uncopied. */
function withBytes(result: unknown): unknown {
  const { body } = result as { body?: unknown };
  if (typeof body !== "string") return result;
  return { ...(result as object), body: new TextEncoder().encode(body) };
}

/** What the thread hands over of an outcome instead of copying it. */
export function transferOfOutcome(outcome: unknown): Transferable[] {
  const { result } = outcome as { result?: { body?: unknown } };
  return result?.body instanceof Uint8Array ? [result.body.buffer as ArrayBuffer] : [];
}

type Kind<Instance> = abstract new (...from: never[]) => Instance;

/** In the thread: the one export of a module that is of a class. */
export async function exportOf<Instance>(module: string, kind: Kind<Instance>): Promise<Instance> {
  const exported: unknown[] = Object.values(await import(module));
  const found = exported.filter((one): one is Instance => one instanceof kind);
  if (found.length !== 1) throw new Error(`${module} exports ${found.length} of ${kind.name}`);
  return found[0]!;
}

/** The text of an answer, or its bytes where it is too long for the event loop. */
export type AnswerText = string | SharedBytes;

/**
 * What a wire reads from the text of a whole answer: a pure function, and the module that exports it. As with
 * BodyRender, options and result are structured clones, but for a member `body` of bytes, which is handed over.
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
 * What an endpoint makes of a typed answer, in the form of AnswerRead: where the thread reads a long one, it
 * goes on with this, so that no long text passes between the threads but in the member `body`.
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
  /** What is made of the answer in the same go: the module of a CompletionRender, and its options. */
  readonly next?: { readonly module: string; readonly options: unknown };
}

/** The thread that reads long answers: a FairWorkThread. */
export interface AnswerThread {
  call<Result>(owner: string, call: ReadAnswerCall, signal: AbortNotice): Promise<Result>;
}

/** How a provider's long answers are read. */
export interface AnswerReading {
  /** Without one the event loop reads them. */
  readonly thread: AnswerThread | undefined;
  /** The provider: each gets its turn. */
  readonly owner: string;
}

/**
 * Reads an answer: short ones at once, long ones in the thread. Rejects with GatewayError 503 where the thread
 * has too much to do.
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

/**
 * A chat's whole answer in typed form: a short one is read at once, and throws ProviderFailure where it is
 * none; a long one is read when it is rendered.
 */
export function typedAnswer<Options>(
  { thread, owner }: AnswerReading,
  { module, read }: AnswerRead<Options, TypedCompletion>,
  text: AnswerText,
  options: Options,
  signal: AbortNotice,
): ChatAnswer {
  if (typeof text === "string") return read(text, options);
  return {
    kind: "long-typed-completion",
    async render(next, nextOptions) {
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

/** In the thread. */
export async function doReadAnswer(call: ReadAnswerCall): Promise<ThreadOutcome> {
  const { module, bytes, options, next } = call;
  const { read } = await exportOf<AnswerRead<unknown, unknown>>(module, AnswerRead);
  const text = () => decodeShared(bytes, "lossy");
  if (next === undefined) return threadOutcome(() => read(text(), options));
  type Render = CompletionRender<unknown, unknown>;
  const { render } = await exportOf<Render>(next.module, CompletionRender);
  return threadOutcome(() => render(read(text(), options) as TypedCompletion, next.options));
}
