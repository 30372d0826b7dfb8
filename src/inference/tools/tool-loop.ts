/**
 * The bounded loop of tools that the gateway runs for a model, as a stream of the answer's events. Each step is a
 * call of the provider; its text goes to the client as it comes, and calls of the gateway's tools are run when it has
 * ended:
 *
 *   step   the provider answers
 *   run    what it called is carried out, side by side, each run shown as an item
 *   cover  the hold is extended by what the next step can cost, the tools' answers in its prompt included
 *
 * and again, until the model calls none of these tools. The caller's own functions end it too: what was run here is
 * shown then, and the calls are the caller's. It also ends where no money covers a step, or as many runs are done as
 * may be. Checkpoints cover a step before its tools run, and the runs before the next step.
 *
 * Between two steps the loop can be stored, and go on in another process: see LoopState.
 */

import { MIN_OUTPUT_TOKENS, REDUCED_OUTPUT_TOKENS } from "../../billing/ledger/decide-hold.ts";
import { toolCostFemto } from "../../billing/ledger/usage.ts";
import type { TraceSpan } from "../../lib/trace.ts";
import { estimatedUsage, NO_TOKENS, type Usage, usageOfCalls } from "../../lib/usage.ts";
import {
  type ChatEvent,
  nextPiece,
  type PieceReader,
  ProviderFailure,
} from "../../providers/interface.ts";
import { type CostBound, type StepMoney, stepBound } from "../call/endpoint.ts";
import type { Candidate } from "../call/routing/plan-route.ts";
import { type AddedMessage, AddedMessages, type AddedState } from "./added-messages.ts";
import { citationsIn } from "./citations.ts";
import { StepAnswer } from "./step-answer.ts";
import type { GatewayTool, ToolOutcome, ToolQuantities } from "./tool.ts";
import { type PlannedRun, type RunContext, shown, ToolRuns } from "./tool-runs.ts";

/** A further call of the provider. */
export interface LoopStep {
  /** Behind the messages of the request: what the model called, and what the tools answered. */
  readonly added: readonly AddedMessage[];
  /** The limit of output tokens; undefined where the model's own holds. */
  readonly outputTokens: number | undefined;
  /** False where no more tools are run. */
  readonly mayCall: boolean;
  readonly onNewConnection: boolean;
  readonly span: TraceSpan | undefined;
}

/** The model of a loop, as its endpoint calls it. */
export interface LoopModel {
  ask(step: LoopStep): Promise<PieceReader<readonly ChatEvent[]>>;
  /** What a call with these messages may cost at most; its units are the model's own limit. */
  bound(added: readonly AddedMessage[]): CostBound;
  /** An estimate, for a provider that reports no usage. */
  promptTokens(added: readonly AddedMessage[]): number;
  readonly candidate: Candidate;
  /** Of the whole response, where the caller set one. */
  readonly statedLimit: number | undefined;
}

/** What a loop has come to between two steps: JSON. */
export interface LoopState extends AddedState {
  /** What was shown so far, but for usage. */
  readonly events: readonly ChatEvent[];
  readonly used: readonly Usage[];
  readonly quantities: ToolQuantities;
  readonly runs: number;
  readonly shownRuns: number;
  readonly shownCalls: number;
  readonly mayCall: boolean;
  /** Output tokens of steps that are charged already, which `used` does not have. */
  readonly paidTokens: number;
}

export interface LoopParts extends Omit<RunContext, "signal"> {
  readonly model: LoopModel;
  /** Of the call that answers the request itself, where it is traced. */
  readonly firstSpan?: TraceSpan | undefined;
  readonly tools: ReadonlyMap<string, GatewayTool>;
  /** Shown before the answer. */
  readonly items: readonly ToolOutcome["item"][];
  /** Behind the messages of the request already. */
  readonly messages?: readonly AddedMessage[];
  /** Called when the loop is over. */
  close?(): void;
  readonly steps: StepMoney;
  /** What an earlier loop of the same request has come to, from which this one goes on. */
  readonly earlier?: LoopState | undefined;
  /** Stores what the loop has come to before its next step. */
  keep?(state: LoopState): Promise<void>;
  /** Aborts when the client goes away or the response's time is over. */
  readonly signal: AbortSignal;
  readonly maxRuns: number;
  /** Whether nothing of the first step leaves before its end, so that another provider can take over. */
  readonly holdsFirstStep: boolean;
  /** Of one step's text, in UTF-8: beyond them a provider does not keep to its limit. */
  readonly maxStepBytes: number;
}

/** A lowered limit comes as near to what could be paid for. */
const NEAR_TOKENS = 128;
/** Unless the request says otherwise. */
export const DEFAULT_MAX_RUNS = 10;
/** Whatever the request says: each is a call of the provider at least. */
export const MOST_RUNS = 100;

type Batch = readonly ChatEvent[];
type Read = Awaited<ReturnType<PieceReader<Batch>["read"]>>;

export class ToolLoop implements PieceReader<Batch> {
  readonly #parts: LoopParts;
  readonly #abort = new AbortController();
  /** Ends the read under way, which a provider or a tool may keep waiting. */
  #endRead: (read: Read) => void = () => undefined;
  readonly #batches: AsyncGenerator<Batch, void>;
  /** Of the step that runs. */
  #reader: PieceReader<Batch> | undefined;
  #span: TraceSpan | undefined;
  readonly #added: AddedMessages;
  /** Of the steps that have ended. */
  readonly #used: Usage[] = [];
  #quantities: ToolQuantities = {};
  /** Of the step that runs, once they are asked for: an answer may come in thousands of pieces. */
  #promptTokens: number | undefined;
  #runs = 0;
  #shownRuns = 0;
  #shownCalls = 0;
  #mayCall = true;
  /** False from the first run on of a tool whose state cannot be stored. */
  #isStorable: boolean;
  #shown: ChatEvent[] = [];
  readonly #paidTokens: number;
  #hasTakenStep = false;

  /** @param first answers the request itself; undefined if the loop goes on from an earlier one */
  constructor(first: PieceReader<Batch> | undefined, parts: LoopParts) {
    const { earlier, model } = parts;
    this.#reader = first;
    this.#span = parts.firstSpan;
    this.#parts = parts;
    this.#isStorable = parts.keep !== undefined;
    this.#added = new AddedMessages(model.candidate, earlier ?? parts.messages);
    this.#paidTokens = earlier?.paidTokens ?? 0;
    if (earlier !== undefined) {
      this.#used.push(...earlier.used);
      this.#quantities = earlier.quantities;
      this.#runs = earlier.runs;
      this.#shownRuns = earlier.shownRuns;
      this.#shownCalls = earlier.shownCalls;
      this.#mayCall = earlier.mayCall;
    }
    this.#batches = this.#answer();
    parts.signal.addEventListener("abort", () => void this.cancel(), { once: true });
  }

  /** Whether the provider has ended a step of its answer here, so that no other provider can take over. */
  get hasTakenStep(): boolean {
    return this.#hasTakenStep;
  }

  read(): Promise<Read> {
    if (this.#abort.signal.aborted) return Promise.resolve({ done: true });
    const { promise, resolve, reject } = Promise.withResolvers<Read>();
    this.#endRead = resolve;
    this.#batches.next().then(
      ({ done, value }) => {
        if (done === true) this.#parts.close?.();
        else if (this.#isStorable) addShown(this.#shown, value as Batch);
        resolve(done === true ? { done } : { done: false, value: value as Batch });
      },
      (error: unknown) => {
        this.#parts.close?.();
        reject(error);
      },
    );
    return promise;
  }

  async cancel(): Promise<void> {
    if (this.#abort.signal.aborted) return;
    this.#abort.abort();
    this.#parts.close?.();
    this.#endRead({ done: true });
    await this.#reader?.cancel();
  }

  async *#answer(): AsyncGenerator<Batch, void> {
    const { earlier } = this.#parts;
    if (earlier !== undefined) {
      const end = await this.#askAgain();
      if (end !== undefined) {
        this.#hasTakenStep = true;
        return yield [...earlier.events, { type: "usage", usage: this.#usage }, end];
      }
    }
    for (let isFirst = true; ; isFirst = false) {
      const { step, rest } = yield* this.#step(isFirst);
      if (step.finish === undefined) return yield rest;
      const { reason } = step.finish;
      const isCut = reason === "length" || reason === "content_filter";
      if (isCut || step.calls.length === 0) return yield [...rest, ...this.#end(step, step.finish)];
      if (!this.#mayCall) return yield [...rest, ...this.#end(step, this.#endOfRuns(step))];
      const outcomes = yield* this.#run(step, rest);
      if (outcomes === undefined) return yield this.#end(step, MAX_COST);
      if (step.shownCalls > 0)
        return yield this.#end(step, { ...step.finish, reason: "tool_calls" });
      if (outcomes.some(({ endsResponse }) => endsResponse)) {
        return yield this.#end(step, { ...step.finish, reason: "stop" });
      }
      if (this.#isStorable) await this.#parts.keep!(this.#state);
      const end = await this.#askAgain();
      if (end !== undefined) return yield this.#end(step, end);
    }
  }

  /** One answer of the provider, and what of it is still to be shown. */
  async *#step(isFirst: boolean): AsyncGenerator<Batch, { step: StepAnswer; rest: Batch }> {
    const { tools, maxStepBytes } = this.#parts;
    const isOwn = (name: string) => tools.has(name);
    const step = new StepAnswer({ isOwn, shownBefore: this.#shownCalls, maxBytes: maxStepBytes });
    const isHeld = isFirst && this.#parts.holdsFirstStep;
    let hasBegun = false;
    let pending = isFirst ? this.#shownBefore() : [];
    for (;;) {
      const batch = await nextPiece(this.#reader!);
      if (batch === undefined) break;
      // The first step's is noted where every stream's is.
      if (!isFirst && !hasBegun) this.#span?.event("first_token");
      hasBegun = true;
      const pieces = step.take(batch);
      const { failure } = step;
      if (failure !== undefined && isHeld) throw failure;
      const usage = this.#usageOf(step, isFirst);
      pending.push(...pieces, ...usage);
      if (failure !== undefined) pending.push({ type: "error", failure });
      // What is shown of the tools themselves waits for the answer, which another provider may still give.
      if (isHeld || pieces.length + usage.length === 0) continue;
      yield pending;
      pending = [];
    }
    this.#shownCalls += step.shownCalls;
    if (step.finish === undefined && isHeld) throw endedEarly();
    this.#hasTakenStep = true;
    const usage = step.reportedUsage ?? this.#countedUsage(step);
    this.#used.push(usage);
    this.#span?.end(step.failure?.kind, { "gen_ai.usage.output_tokens": usage.completionTokens });
    return { step, rest: [...pending, { type: "usage", usage: this.#usage }] };
  }

  /** Before the first answer of the provider. */
  #shownBefore(): ChatEvent[] {
    const { earlier, items } = this.#parts;
    return earlier === undefined
      ? items.flatMap((item) => this.#shownItem(item))
      : [...earlier.events];
  }

  get #state(): LoopState {
    return {
      ...this.#added.state,
      events: this.#shown,
      used: this.#used,
      quantities: this.#quantities,
      runs: this.#runs,
      shownRuns: this.#shownRuns,
      shownCalls: this.#shownCalls,
      mayCall: this.#mayCall,
      paidTokens: this.#paidTokens,
    };
  }

  #shownItem(item: ToolOutcome["item"]): ChatEvent[] {
    const run = this.#shownRuns++;
    const event = { type: "tool_run", choice: 0, run, item } as const;
    return [
      { ...event, state: "in_progress" },
      { ...event, state: "completed", isOver: true },
    ];
  }

  /** What is known of the usage, where the events that the client gets do not tell it. */
  #usageOf(step: StepAnswer, isFirst: boolean): ChatEvent[] {
    const reported = step.reportedUsage;
    const isAlone = isFirst && this.#parts.earlier === undefined;
    if (reported === undefined && isAlone && !step.hidesTokens) return [];
    const last = reported ?? this.#countedUsage(step);
    return [{ type: "usage", usage: usageOfCalls(this.#used, last, this.#quantities) }];
  }

  #countedUsage(step: StepAnswer): Usage {
    this.#promptTokens ??= this.#parts.model.promptTokens(this.#added.messages);
    return estimatedUsage(this.#promptTokens, step.countedTokens);
  }

  /** Of everything so far; between steps. */
  get #usage(): Usage {
    return usageOfCalls(this.#used.slice(0, -1), this.#used.at(-1) ?? NO_TOKENS, this.#quantities);
  }

  /** Runs what the model called, behind what is still to be shown. Returns undefined where no money covers that. */
  async *#run(
    step: StepAnswer,
    rest: Batch,
  ): AsyncGenerator<Batch, readonly ToolOutcome[] | undefined> {
    const { steps, model, tools, maxRuns, organizationId, keyId, requestId, trace } = this.#parts;
    const { calls } = step;
    const planned = calls.slice(0, maxRuns - this.#runs).map((call): PlannedRun => {
      return { call, tool: tools.get(call.name)!, run: this.#shownRuns++ };
    });
    this.#runs += planned.length;
    this.#mayCall = this.#runs < maxRuns;
    this.#isStorable &&= planned.every(({ tool }) => tool.keepsState !== true);
    yield [...rest, ...planned.map((one) => shown(one, "in_progress"))];
    await steps.checkpoint();
    const mostRuns = planned.map(({ tool }) => tool.quantitiesBound).reduce(sumOf, {});
    const { candidate } = model;
    const { toolPrices: prices } = candidate;
    const mostFemto = toolCostFemto(mostRuns, prices);
    const most = { costFemto: mostFemto, toolsFemto: mostFemto };
    const isCovered = mostFemto === 0 || (await steps.reserveStep(candidate, this.#usage, most));
    if (!isCovered) {
      yield planned.map((one) => ({ ...shown(one, "failed"), isOver: true }));
      return undefined;
    }
    const context = { organizationId, keyId, requestId, trace, signal: this.#abort.signal };
    const runs = new ToolRuns(context).run(planned);
    let next = await runs.next();
    for (; next.done !== true; next = await runs.next()) {
      const { events, used } = next.value;
      if (used.length > 0) yield* this.#charge(used.reduce(sumOf));
      yield events;
    }
    this.#added.note(step, next.value);
    return next.value;
  }

  /** Covers what runs have used before their items are shown. */
  async *#charge(used: ToolQuantities): AsyncGenerator<Batch, void> {
    const { steps, model } = this.#parts;
    this.#quantities = sumOf(this.#quantities, used);
    yield [{ type: "usage", usage: this.#usage }];
    if (toolCostFemto(used, model.candidate.toolPrices) !== 0) await steps.checkpoint();
  }

  /** Begins the next step. Resolves with what ends the answer instead, where something does. */
  async #askAgain(): Promise<Finish | undefined> {
    const { model } = this.#parts;
    const { statedLimit } = model;
    const written = this.#paidTokens + this.#usage.completionTokens;
    const left = statedLimit === undefined ? undefined : statedLimit - written;
    if (left !== undefined && left <= 0) return { type: "finish", choice: 0, reason: "length" };
    const covered = await this.#cover(left);
    if (covered === undefined) return MAX_COST;
    const step = { added: this.#added.messages, mayCall: this.#mayCall, ...covered };
    if (this.#abort.signal.aborted) throw new ProviderFailure("aborted", "the call was aborted");
    this.#promptTokens = undefined;
    this.#span = this.#parts.trace?.beginCall(model.candidate);
    this.#reader = await askOnce(model, { ...step, span: this.#span });
    return undefined;
  }

  /**
   * The limit of a step that the hold covers. Where the caller set none it is lowered as at admission, to what can be
   * paid for. Undefined where that is not even the least.
   */
  async #cover(left: number | undefined): Promise<Pick<LoopStep, "outputTokens"> | undefined> {
    const { model, steps } = this.#parts;
    const bound = model.bound(this.#added.messages);
    const { units } = bound;
    const usage = this.#usage;
    const covers = (tokens: number) =>
      steps.reserveStep(model.candidate, usage, stepBound(bound, tokens));
    if (left !== undefined) return (await covers(left)) ? { outputTokens: left } : undefined;
    if (await covers(units)) return { outputTokens: undefined };
    let refused = Math.min(REDUCED_OUTPUT_TOKENS, units);
    if (refused < units && (await covers(refused))) return { outputTokens: refused };
    let outputTokens = Math.min(MIN_OUTPUT_TOKENS, units);
    if (!(await covers(outputTokens))) return undefined;
    // Each answer narrows it down, for how much is left the engines do not say.
    while (refused - outputTokens > NEAR_TOKENS) {
      const between = Math.floor((outputTokens + refused) / 2);
      if (await covers(between)) outputTokens = between;
      else refused = between;
    }
    return { outputTokens };
  }

  /** The model calls tools although none is run any more: what it has said is the answer. */
  #endOfRuns(step: StepAnswer): Finish {
    if (step.shownCalls > 0) return { ...step.finish!, reason: "tool_calls" };
    if (step.text !== "") return { ...step.finish!, reason: "stop" };
    return { type: "finish", choice: 0, reason: "length", limit: "max_tool_calls" };
  }

  #end(step: StepAnswer, finish: Finish): ChatEvent[] {
    const { text, item } = step.lastMessage;
    const annotations = text === "" ? [] : citationsIn(text, this.#added.sources);
    if (annotations.length === 0) return [finish];
    const place = item === undefined ? {} : { item };
    return [{ type: "text", choice: 0, ...place, text: "", annotations }, finish];
  }
}

type Finish = Extract<ChatEvent, { readonly type: "finish" }>;

const MAX_COST: Finish = { type: "finish", choice: 0, reason: "length", limit: "max_cost" };

/** A connection that was kept from the step before may have ended meanwhile, without a word of this one. */
async function askOnce(
  model: LoopModel,
  step: Omit<LoopStep, "onNewConnection">,
): Promise<PieceReader<Batch>> {
  try {
    return await model.ask({ ...step, onNewConnection: false });
  } catch (error) {
    if (!(error instanceof ProviderFailure) || !error.lostUsedConnection) throw error;
    return model.ask({ ...step, onNewConnection: true });
  }
}

/** Adds events that were shown; pieces of one text are put together. */
function addShown(shown: ChatEvent[], batch: Batch): void {
  for (const event of batch) {
    if (event.type === "usage") continue;
    const last = shown.at(-1);
    if (last !== undefined && isPlainText(last) && isPlainText(event) && isSameText(last, event)) {
      shown[shown.length - 1] = { ...event, text: last.text + event.text };
    } else shown.push(event);
  }
}

type TextEvent = Extract<ChatEvent, { readonly type: "text" }>;

function isPlainText(event: ChatEvent): event is TextEvent {
  return event.type === "text" && event.logprobs === undefined && event.annotations === undefined;
}

function isSameText(one: TextEvent, other: TextEvent): boolean {
  return one.choice === other.choice && one.item === other.item && one.phase === other.phase;
}

function endedEarly(): ProviderFailure {
  const message = "the provider's stream ended without a finish reason";
  return new ProviderFailure("unavailable", message);
}

function sumOf(one: ToolQuantities, other: ToolQuantities): ToolQuantities {
  const sum: { -readonly [Kind in keyof ToolQuantities]: number } = { ...one };
  for (const kind of ["webSearches", "fileSearches"] as const) {
    const more = other[kind];
    if (more !== undefined) sum[kind] = (sum[kind] ?? 0) + more;
  }
  return sum;
}
