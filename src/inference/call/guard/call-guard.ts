import { GatewayError } from "../../../lib/errors.ts";
import type { RequestLog } from "../../../lib/request-log.ts";
import type { FairWorkThread } from "../../../lib/work-thread.ts";
import {
  type ChatEvent,
  type ClientCompletion,
  type PieceReader,
  ProviderFailure,
  type TypedCompletion,
  type WholeChat,
} from "../../../providers/interface.ts";
import { CompletionRender } from "../../../providers/thread-work.ts";
import { type Direction, type Guardrail, rulesFor } from "../../guardrails/screening/guardrail.ts";
import { plainText } from "../../guardrails/screening/plain-text.ts";
import {
  type MatchedRule,
  type ScreeningResult,
  screenJson,
  textsOf,
} from "../../guardrails/screening/screen-json.ts";
import type { ScreeningRule } from "../../guardrails/screening/text-window.ts";
import { GuardedEvents } from "./guarded-events.ts";
import { type ScreenedCompletion, screenCompletion, screenLong } from "./screen-completion.ts";

/** A request to a work thread: screen a JSON value that is too long for the event loop. */
export interface ScreenCall {
  readonly kind: "screen.json";
  readonly value: unknown;
  readonly guardrails: readonly Guardrail[];
  readonly on: Direction;
}

/** Decides with a model whether a text is allowed. */
export interface Moderation {
  /** Resolves with false if the text must be blocked. Rejects with 503 if the model gives no decision. */
  passes(organizationId: string, text: string, signal: AbortSignal): Promise<boolean>;
}

export interface GuardDependencies {
  readonly thread: Pick<FairWorkThread, "call">;
  readonly moderation: Moderation | undefined;
}

interface GuardParts extends GuardDependencies {
  readonly guardrails: readonly Guardrail[];
  readonly organizationId: string;
  readonly signal: AbortSignal;
  readonly log: RequestLog;
}

/**
 * The limit for screening on the event loop: characters times the cost of all rules. It takes a few
 * milliseconds.
 */
const MAX_WORK_ON_LOOP = 16_384;

/** Renders a short answer as it is. Not exported: no thread runs it. */
const UNCHANGED = new CompletionRender(import.meta.url, (completion) => completion);

/** The guardrails of one call, and the rules that have matched. */
export class CallGuard {
  readonly guardrails: readonly Guardrail[];
  /** The error of blocked output, or of a stream whose moderation gave no decision. */
  block: GatewayError | undefined;
  readonly #parts: GuardParts;
  readonly #output: readonly ScreeningRule[];

  constructor(parts: GuardParts) {
    this.#parts = parts;
    this.guardrails = parts.guardrails;
    this.#output = rulesFor(parts.guardrails, "output");
  }

  /** Returns true if answers must be screened. */
  get screensOutput(): boolean {
    return this.#output.length > 0 || this.#moderated("output") !== undefined;
  }

  /** Returns true if requests must be screened. */
  get screensInput(): boolean {
    return rulesFor(this.guardrails, "input").length > 0 || this.#moderated("input") !== undefined;
  }

  /** Returns the body with its redactions. Rejects with 400 if the body is blocked. */
  async input(body: unknown): Promise<unknown> {
    const screened = await this.#json(body, "input");
    this.recordInput(screened);
    if (this.#moderated("input") !== undefined) await this.moderateInput(textsOf(screened.value));
    return screened.value;
  }

  /** Rejects with 400 if the moderation model blocks the texts of a request. */
  async moderateInput(texts: string): Promise<void> {
    const rule = this.#moderated("input");
    if (rule === undefined || (await this.#passes(texts))) return;
    this.recordInput({ isBlocked: true, hits: [rule] });
  }

  /** Records the rules that a thread has matched in a body. Throws 400 if the body is blocked. */
  recordInput({ isBlocked, hits }: Pick<ScreeningResult<unknown>, "isBlocked" | "hits">): void {
    this.#record(hits, "input");
    if (isBlocked) throw blockedBy(hits, "request");
  }

  /** Returns a reader of the screened answer, or the reader itself if answers are not screened. */
  events(reader: PieceReader<readonly ChatEvent[]>): PieceReader<readonly ChatEvent[]> {
    if (!this.screensOutput) return reader;
    const rule = this.#moderated("output");
    return new GuardedEvents(reader, {
      rules: this.#output,
      withholdsAll: rule !== undefined,
      moderate: async (text) => {
        const passes = await this.#passes(text).catch((error) => this.#undecided(error));
        if (!passes && rule !== undefined) this.#record([rule], "output");
        return passes;
      },
      onMatches: (hits) => this.#record(hits, "output"),
      onBlocked: () => {
        this.block = blockedBy(this.#outputHits, "answer");
        return new ProviderFailure("content_policy", this.block.message);
      },
    });
  }

  /**
   * Rethrows the error. If the moderation gave no decision, sets `block`, so that the answer ends like a
   * blocked one.
   */
  #undecided(error: unknown): never {
    if (error instanceof GatewayError && error.code === "moderation_unavailable") {
      this.block = error;
    }
    throw error;
  }

  /**
   * Returns a whole answer that is screened when it is read. A blocked answer is unchanged, so that its usage
   * is known, and `block` is set: nothing of it may be sent.
   */
  answer(answer: WholeChat): WholeChat {
    if (!this.screensOutput) return answer;
    return {
      kind: "whole",
      isLong: false,
      render: async ({ render }, options) => render(await this.#typed(answer), options),
      ...(answer.passThrough !== undefined && {
        passThrough: async (options) => this.#completion(await answer.passThrough!(options)),
      }),
    };
  }

  /** Returns screened additions to a whole answer. Sets `block` if they must not be sent. */
  async screenAdded(value: unknown): Promise<unknown> {
    const { value: screened, ...found } = await this.#json(value, "output");
    this.#recordOutput(found);
    return screened;
  }

  /**
   * Screens and moderates texts that answer a request in another form. Sets `block` if they must not be sent.
   */
  async output<Value>(value: Value): Promise<Value> {
    const screened = await this.screenAdded(value);
    await this.#moderateOutput(screened);
    return screened as Value;
  }

  async #typed(answer: WholeChat): Promise<TypedCompletion> {
    const { completion, ...found } = answer.isLong
      ? await answer.render(screenLong, { guardrails: this.guardrails })
      : await this.#screened(await answer.render(UNCHANGED, undefined));
    this.#recordOutput(found);
    await this.#moderateOutput(completion.choices);
    return completion;
  }

  async #screened(completion: TypedCompletion): Promise<ScreenedCompletion> {
    if (this.#isShort(completion, this.#output)) return screenCompletion(completion, this.#output);
    const { value, ...found } = await this.#json(completion, "output");
    return { ...found, completion: value as TypedCompletion };
  }

  async #completion(completion: ClientCompletion): Promise<ClientCompletion> {
    const { body } = completion;
    const isLong = body instanceof Uint8Array;
    const parsed = isLong
      ? (JSON.parse(new TextDecoder().decode(body)) as Record<string, unknown>)
      : body;
    const screened = { ...parsed, choices: await this.output(parsed.choices) };
    return {
      ...completion,
      body: isLong ? new TextEncoder().encode(JSON.stringify(screened)) : screened,
    };
  }

  async #moderateOutput(value: unknown): Promise<void> {
    const rule = this.#moderated("output");
    if (rule === undefined || this.block !== undefined) return;
    if (!(await this.#passes(textsOf(value))))
      this.#recordOutput({ isBlocked: true, hits: [rule] });
  }

  #recordOutput({ isBlocked, hits }: Pick<ScreeningResult<unknown>, "isBlocked" | "hits">): void {
    this.#record(hits, "output");
    if (isBlocked) this.block = blockedBy(hits, "answer");
  }

  async #json(value: unknown, on: Direction): Promise<ScreeningResult<unknown>> {
    const rules = rulesFor(this.guardrails, on);
    if (rules.length === 0) return { value, isBlocked: false, hits: [] };
    if (this.#isShort(value, rules)) return screenJson(value, rules);
    const { thread, organizationId, signal } = this.#parts;
    const call: ScreenCall = { kind: "screen.json", value, guardrails: this.guardrails, on };
    return thread.call<ScreeningResult<unknown>>(organizationId, call, signal);
  }

  #isShort(value: unknown, rules: readonly ScreeningRule[]): boolean {
    const cost = rules.reduce((sum, { detector }) => sum + detector.cost, 0);
    return remainingCharacters(value, MAX_WORK_ON_LOOP / Math.max(1, cost)) >= 0;
  }

  #moderated(on: Direction): MatchedRule | undefined {
    for (const { id, rules } of this.guardrails) {
      const rule = rules.find(({ type, on: directions }) => {
        return type === "moderation" && directions.includes(on);
      });
      if (rule !== undefined) return { guardrail: id, type: "moderation", action: "block" };
    }
    return undefined;
  }

  async #passes(text: string): Promise<boolean> {
    const { moderation, organizationId, signal } = this.#parts;
    if (text.trim() === "") return true;
    if (moderation !== undefined) {
      // Plain text, because a moderation model could read styled letters differently from the answering
      // model.
      return moderation.passes(organizationId, plainText(text)?.text ?? text, signal);
    }
    const message = "A guardrail requires moderation, but no moderation model is configured.";
    throw new GatewayError("moderation_unavailable", message);
  }

  #record(hits: readonly MatchedRule[], direction: Direction): void {
    if (hits.length === 0) return;
    const { log } = this.#parts;
    log.guardrailHits ??= [];
    for (const { guardrail, type, action } of hits) {
      const hit = { guardrail, type, action, direction };
      if (!log.guardrailHits.some((noted) => Bun.deepEquals(noted, hit))) {
        log.guardrailHits.push(hit);
      }
    }
  }

  get #outputHits(): readonly MatchedRule[] {
    const { guardrailHits = [] } = this.#parts.log;
    return guardrailHits.filter(
      ({ direction }) => direction === "output",
    ) as readonly MatchedRule[];
  }
}

function blockedBy(hits: readonly MatchedRule[], what: string): GatewayError {
  const hit = hits.find(({ action }) => action === "block") ?? hits[0]!;
  const message = `The ${what} was blocked by the guardrail ${hit.guardrail}: a rule of type ${hit.type} matched.`;
  return new GatewayError("content_policy_violation", message, { param: null });
}

/**
 * Returns the characters that remain of `most` after all texts of a value. Negative if the texts are longer.
 */
function remainingCharacters(value: unknown, most: number): number {
  let left = most;
  if (typeof value === "string") return left - value.length;
  if (typeof value !== "object" || value === null) return left - 8;
  for (const member of Object.values(value)) {
    left = remainingCharacters(member, left);
    if (left < 0) return left;
  }
  return left - 8;
}
