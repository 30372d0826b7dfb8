import { asGatewayError } from "../../../db/unavailable.ts";
import { overloaded } from "../../lib/errors.ts";
import { FairSemaphore } from "../../lib/fair-share.ts";
import { type RequestTrace, traced } from "../../lib/trace.ts";
import type { ChatEvent, ToolCall } from "../../providers/interface.ts";
import type { GatewayTool, ToolOutcome, ToolQuantities } from "./tool.ts";

type ToolRunEvent = Extract<ChatEvent, { readonly type: "tool_run" }>;

/** Maximum concurrent runs of one answer. */
const RUNS_AT_A_TIME = 4;
/** Maximum waiting runs of one answer. */
const MAX_WAITING_RUNS = 10_000;

/** The context that all runs of a request share. */
export interface RunContext {
  readonly organizationId: string;
  readonly keyId: string;
  readonly requestId: string;
  readonly signal: AbortSignal;
  /** The trace of the request, if it is traced. */
  readonly trace?: RequestTrace | undefined;
}

/** A call of the model with its tool, and its number in the answer. */
export interface PlannedRun {
  readonly call: ToolCall;
  readonly tool: GatewayTool;
  readonly run: number;
}

/** Events in order, and the usage of the runs that ended with them. */
interface RunBatch {
  readonly events: readonly ChatEvent[];
  readonly used: readonly ToolQuantities[];
}

/** Runs calls concurrently, and returns the events that show them. */
export class ToolRuns {
  readonly #context: RunContext;
  readonly #semaphore = new FairSemaphore({
    most: RUNS_AT_A_TIME,
    maxWaiting: MAX_WAITING_RUNS,
    refusal: () => overloaded("The model called too many tools in one step."),
  });
  #events: ChatEvent[] = [];
  #used: ToolQuantities[] = [];
  #wake: () => void = () => undefined;

  constructor(context: RunContext) {
    this.#context = context;
  }

  /**
   * Yields events in batches as they arrive, and returns the outcomes in the order of the runs. Rejects if a
   * run rejects.
   */
  async *run(planned: readonly PlannedRun[]): AsyncGenerator<RunBatch, readonly ToolOutcome[]> {
    let isOver = false;
    const outcomes = Promise.all(
      planned.map((run) =>
        this.#semaphore.run(this.#context.organizationId, () => this.#runOne(run)),
      ),
    ).finally(() => {
      isOver = true;
      this.#wake();
    });
    // The promise is awaited below, after all events have been read.
    outcomes.catch(() => undefined);
    for (;;) {
      const batch = { events: this.#events, used: this.#used };
      this.#events = [];
      this.#used = [];
      if (batch.events.length > 0) yield batch;
      else if (isOver) return outcomes;
      else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    }
  }

  async #runOne(planned: PlannedRun): Promise<ToolOutcome> {
    const { call, tool } = planned;
    const progress = (state: string) => this.#show(shown(planned, state));
    const { trace } = this.#context;
    const running = tool.run({ ...this.#context, arguments: call.arguments, progress });
    const outcome = await traced(trace, `execute_tool ${tool.name}`, running, {
      "gen_ai.operation.name": "execute_tool",
      "gen_ai.tool.name": tool.name,
      "gen_ai.tool.call.id": call.id,
    }).catch((error: unknown) => {
      // The failure is not one of the model's provider.
      throw asGatewayError(error);
    });
    const { item, isFailed = false, quantities } = outcome;
    if (quantities !== undefined) this.#used.push(quantities);
    const state = isFailed ? "failed" : "completed";
    this.#show({ ...shown(planned, state), item, isOver: true });
    return outcome;
  }

  #show(event: ChatEvent): void {
    this.#events.push(event);
    this.#wake();
  }
}

/** Returns the event that shows a run in a state. */
export function shown({ call, tool, run }: PlannedRun, state: string): ToolRunEvent {
  const type = tool.itemType ?? `${tool.name}_call`;
  const item = { type, ...tool.opening?.(call.arguments) };
  return { type: "tool_run", choice: 0, run, state, item };
}
