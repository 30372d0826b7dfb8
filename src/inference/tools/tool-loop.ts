/**
 * The bounded loop of the tools that the gateway runs for a model, as a stream of the answer's events. Each
 * step has three parts:
 *
 * - Step: the provider answers. Its text goes to the client as it arrives.
 * - Run: the gateway runs the calls of its tools concurrently, and shows each run as an item.
 * - Cover: the gateway extends the hold by the maximum cost of the next step, including the tool outputs in
 *   its prompt.
 *
 * The loop ends when the model calls none of these tools. It also ends in these cases:
 *
 * - The model calls one of the caller's functions. The runs of this step are shown, and the caller runs its
 *   call.
 * - No credit covers a step.
 * - The maximum number of runs is reached.
 *
 * Checkpoints cover a step before its tools run, and the runs before the next step. Between two steps the
 * loop can be stored, and continued in another process: see LoopState.
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
  /** Messages after those of the request: the model's calls and the tool outputs. */
  readonly added: readonly AddedMessage[];
  /** The output token limit. Undefined if the model's own limit applies. */
  readonly outputTokens: number | undefined;
  /** False if no more tools are run. */
  readonly mayCall: boolean;
  readonly onNewConnection: boolean;
  readonly span: TraceSpan | undefined;
}

/** The model that a tool loop calls, implemented by the endpoint. */
export interface LoopModel {
  ask(step: LoopStep): Promise<PieceReader<readonly ChatEvent[]>>;
  /** Returns the maximum cost of a call with these messages. Its `units` are the model's output limit. */
  bound(added: readonly AddedMessage[]): CostBound;
  /** Returns an estimate, for a provider that reports no usage. */
  promptTokens(added: readonly AddedMessage[]): number;
  readonly candidate: Candidate;
  /** Output token limit of the complete response. Undefined if the caller set none. */
  readonly statedLimit: number | undefined;
}

/** The state of a loop between two steps, as JSON. */
export interface LoopState extends AddedState {
  /** Events shown so far, without usage. */
  readonly events: readonly ChatEvent[];
  readonly used: readonly Usage[];
  readonly quantities: ToolQuantities;
  readonly runs: number;
  readonly shownRuns: number;
  readonly shownCalls: number;
  readonly mayCall: boolean;
  /** Output tokens of steps that are already charged. They are not part of `used`. */
  readonly paidTokens: number;
}

export interface LoopParts extends Omit<RunContext, "signal"> {
  readonly model: LoopModel;
  /** Trace span of the call that answers the request itself, if the request is traced. */
  readonly firstSpan?: TraceSpan | undefined;
  readonly tools: ReadonlyMap<string, GatewayTool>;
  /** Items shown before the answer. */
  readonly items: readonly ToolOutcome["item"][];
  /** Messages that already follow those of the request. */
  readonly messages?: readonly AddedMessage[];
  /** Called when the loop has ended. */
  close?(): void;
  readonly steps: StepMoney;
  /** State of an earlier loop of the same request. This loop continues from it. */
  readonly earlier?: LoopState | undefined;
  /** Stores the state of the loop before its next step. */
  saveState?(state: LoopState): Promise<void>;
  /** Aborts when the client disconnects or the time of the response ends. */
  readonly signal: AbortSignal;
  readonly maxRuns: number;
  /** True if the first step is held back until its end, so that another provider can take over. */
  readonly holdsFirstStep: boolean;
  /** Maximum UTF-8 bytes of one step's text. With more, the provider has exceeded its limit. */
  readonly maxStepBytes: number;
}

/** Maximum distance in tokens between a lowered limit and the highest affordable one. */
const NEAR_TOKENS = 128;
/** Default of `maxRuns`. */
export const DEFAULT_MAX_RUNS = 10;
/** Upper limit of `maxRuns`, because each run causes at least one call of the provider. */
export const MAX_RUNS_LIMIT = 100;

type Batch = readonly ChatEvent[];
type Read = Awaited<ReturnType<PieceReader<Batch>["read"]>>;

export class ToolLoop implements PieceReader<Batch> {
  readonly #parts: LoopParts;
  readonly #abort = new AbortController();
  /** Ends the current read, which can wait for a provider or a tool. */
  #endRead: (read: Read) => void = () => undefined;
  readonly #batches: AsyncGenerator<Batch, void>;
  /** Reader and span of the current step. */
  #reader: PieceReader<Batch> | undefined;
  #span: TraceSpan | undefined;
  readonly #added: AddedMessages;
  /** Usage of the completed steps. */
  readonly #used: Usage[] = [];
  #quantities: ToolQuantities = {};
  /** Estimated prompt tokens of the current step. Stored, because an answer can have thousands of pieces. */
  #promptTokens: number | undefined;
  #runs = 0;
  #shownRuns = 0;
  #shownCalls = 0;
  #mayCall = true;
  /** False after the first run of a tool whose state cannot be stored. */
  #isStorable: boolean;
  #shown: ChatEvent[] = [];
  readonly #paidTokens: number;
  /** True after the provider has completed a step here. No other provider can take over then. */
  hasCompletedStep = false;

  /** @param first answers the request itself; undefined if the loop continues from an earlier one */
  constructor(first: PieceReader<Batch> | undefined, parts: LoopParts) {
    const { earlier, model } = parts;
    this.#reader = first;
    this.#span = parts.firstSpan;
    this.#parts = parts;
    this.#isStorable = parts.saveState !== undefined;
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
        this.hasCompletedStep = true;
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
      if (this.#isStorable) await this.#parts.saveState!(this.#state);
      const end = await this.#askAgain();
      if (end !== undefined) return yield this.#end(step, end);
    }
  }

  /** Reads one answer of the provider. Returns the step, and the events that are still to be shown. */
  async *#step(isFirst: boolean): AsyncGenerator<Batch, { step: StepAnswer; rest: Batch }> {
    const { tools, maxStepBytes } = this.#parts;
    const isGatewayTool = (name: string) => tools.has(name);
    const step = new StepAnswer({
      isGatewayTool,
      shownBefore: this.#shownCalls,
      maxBytes: maxStepBytes,
    });
    const isHeld = isFirst && this.#parts.holdsFirstStep;
    let hasBegun = false;
    let pending = isFirst ? this.#shownBefore() : [];
    for (;;) {
      const batch = await nextPiece(this.#reader!);
      if (batch === undefined) break;
      // The stream of the request records the first token of the first step.
      if (!isFirst && !hasBegun) this.#span?.event("first_token");
      hasBegun = true;
      const pieces = step.take(batch);
      const { failure } = step;
      if (failure !== undefined && isHeld) throw failure;
      const usage = this.#usageOf(step, isFirst);
      pending.push(...pieces, ...usage);
      if (failure !== undefined) pending.push({ type: "error", failure });
      // Items of the tools themselves wait for the answer, because another provider can still take over.
      if (isHeld || pieces.length + usage.length === 0) continue;
      yield pending;
      pending = [];
    }
    this.#shownCalls += step.shownCalls;
    if (step.finish === undefined && isHeld) throw endedEarly();
    this.hasCompletedStep = true;
    const usage = step.reportedUsage ?? this.#countedUsage(step);
    this.#used.push(usage);
    this.#span?.end(step.failure?.kind, { "gen_ai.usage.output_tokens": usage.completionTokens });
    return { step, rest: [...pending, { type: "usage", usage: this.#usage }] };
  }

  /** Returns the events shown before the provider's first answer. */
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

  /** Returns the known usage, unless the client's events already imply it. */
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

  /** Usage of all steps so far. Valid between steps. */
  get #usage(): Usage {
    return usageOfCalls(this.#used.slice(0, -1), this.#used.at(-1) ?? NO_TOKENS, this.#quantities);
  }

  /**
   * Runs the model's calls and shows them after the remaining events. Returns undefined if no credit covers
   * the runs.
   */
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
    yield [...rest, ...planned.map((plan) => shown(plan, "in_progress"))];
    await steps.checkpoint();
    const mostRuns = planned.map(({ tool }) => tool.quantitiesBound).reduce(sumOf, {});
    const { candidate } = model;
    const { toolPrices: prices } = candidate;
    const mostFemto = toolCostFemto(mostRuns, prices);
    const most = { costFemto: mostFemto, toolsFemto: mostFemto };
    const isCovered = mostFemto === 0 || (await steps.reserveStep(candidate, this.#usage, most));
    if (!isCovered) {
      yield planned.map((plan) => ({ ...shown(plan, "failed"), isOver: true }));
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
    this.#added.add(step, next.value);
    return next.value;
  }

  /** Charges the usage of runs before their items are shown. */
  async *#charge(used: ToolQuantities): AsyncGenerator<Batch, void> {
    const { steps, model } = this.#parts;
    this.#quantities = sumOf(this.#quantities, used);
    yield [{ type: "usage", usage: this.#usage }];
    if (toolCostFemto(used, model.candidate.toolPrices) !== 0) await steps.checkpoint();
  }

  /** Begins the next step. Resolves with a finish event if the answer ends instead. */
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
    this.#reader = await askWithRetry(model, { ...step, span: this.#span });
    return undefined;
  }

  /**
   * Returns a step's output limit that the hold covers. If the caller set none, the limit is lowered to the
   * affordable amount, as at admission. Returns undefined if even the minimum is not covered.
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
    let uncovered = Math.min(REDUCED_OUTPUT_TOKENS, units);
    if (uncovered < units && (await covers(uncovered))) return { outputTokens: uncovered };
    let outputTokens = Math.min(MIN_OUTPUT_TOKENS, units);
    if (!(await covers(outputTokens))) return undefined;
    // Searches for the highest covered limit, because the ledger does not report the remaining amount.
    while (uncovered - outputTokens > NEAR_TOKENS) {
      const between = Math.floor((outputTokens + uncovered) / 2);
      if (await covers(between)) outputTokens = between;
      else uncovered = between;
    }
    return { outputTokens };
  }

  /**
   * Returns the finish of an answer whose model calls tools although no more are run. The text so far is the
   * answer.
   */
  #endOfRuns(step: StepAnswer): Finish {
    if (step.shownCalls > 0) return { ...step.finish!, reason: "tool_calls" };
    if (step.text !== "") return { ...step.finish!, reason: "stop" };
    return { type: "finish", choice: 0, reason: "length", limit: "max_tool_calls" };
  }

  #end(step: StepAnswer, finish: Finish): ChatEvent[] {
    const { text, item } = step.lastMessage;
    const annotations = text === "" ? [] : citationsIn(text, this.#added.sources);
    if (annotations.length === 0) return [finish];
    const itemMember = item === undefined ? {} : { item };
    return [{ type: "text", choice: 0, ...itemMember, text: "", annotations }, finish];
  }
}

type Finish = Extract<ChatEvent, { readonly type: "finish" }>;

const MAX_COST: Finish = { type: "finish", choice: 0, reason: "length", limit: "max_cost" };

/**
 * Calls the model, and retries once on a new connection, because the server may have closed the connection of
 * the previous step before it read this request.
 */
async function askWithRetry(
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

/** Adds shown events. Pieces of one text are joined. */
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

function isSameText(left: TextEvent, right: TextEvent): boolean {
  return left.choice === right.choice && left.item === right.item && left.phase === right.phase;
}

function endedEarly(): ProviderFailure {
  const message = "the provider's stream ended without a finish reason";
  return new ProviderFailure("unavailable", message);
}

function sumOf(left: ToolQuantities, right: ToolQuantities): ToolQuantities {
  const sum: { -readonly [Kind in keyof ToolQuantities]: number } = { ...left };
  for (const kind of ["webSearches", "fileSearches"] as const) {
    const more = right[kind];
    if (more !== undefined) sum[kind] = (sum[kind] ?? 0) + more;
  }
  return sum;
}
