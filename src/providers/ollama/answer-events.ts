import { isFields } from "../../lib/json.ts";
import type { Usage } from "../../lib/usage.ts";
import { type ChatEvent, type FinishReason, ProviderFailure } from "../interface.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { failureInside } from "./failure-mapping.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Ollama sends one choice per request. */
const choice = 0;

/** Converts the objects of an answer to events. A stream has many objects, a whole answer one. */
export class AnswerEvents {
  readonly #requestId: string;
  readonly #failureContext: () => FailureContext;
  #calls = 0;
  #isDone = false;

  constructor(requestId: string, failureContext: () => FailureContext) {
    this.#requestId = requestId;
    this.#failureContext = failureContext;
  }

  /** True after the object that ends an answer. */
  get isDone(): boolean {
    return this.#isDone;
  }

  /** Adds the events of an object. Throws ProviderFailure if a call has no name. */
  add(answer: unknown, events: ChatEvent[]): void {
    const failure = failureInside(answer, this.#failureContext());
    if (failure !== undefined) events.push({ type: "error", failure });
    if (failure !== undefined || !isFields(answer)) return;
    const { message, logprobs } = answer;
    if (isFields(message)) this.#addMessage(message, logprobs, events);
    if (answer.done !== true) return;
    this.#isDone = true;
    const usage = usageOf(answer);
    if (usage !== undefined) events.push({ type: "usage", usage });
    const reason = finishReason(answer.done_reason, this.#calls > 0);
    events.push({ type: "finish", choice, reason });
  }

  #addMessage(
    { thinking, content, tool_calls: calls }: Fields,
    logprobs: unknown,
    events: ChatEvent[],
  ) {
    if (typeof thinking === "string" && thinking !== "") {
      events.push({ type: "reasoning", choice, text: thinking });
    }
    const text = typeof content === "string" ? content : "";
    const tokens = logprobsOf(logprobs);
    if (text !== "" || tokens !== undefined) {
      events.push({
        type: "text",
        choice,
        text,
        ...(tokens !== undefined && { logprobs: tokens }),
      });
    }
    for (const call of Array.isArray(calls) ? calls : []) this.#addCall(call, events);
  }

  /** Adds a call, which is always complete. Older servers send no ids. */
  #addCall(call: unknown, events: ChatEvent[]): void {
    const { id: givenId, function: calledFunction } = isFields(call) ? call : {};
    const { name, arguments: args } = isFields(calledFunction) ? calledFunction : {};
    if (typeof name !== "string" || name === "") {
      throw new ProviderFailure("unavailable", "the provider sent a call without a name");
    }
    const index = this.#calls++;
    const isGiven = typeof givenId === "string" && givenId !== "";
    const id = isGiven ? givenId : `call_${this.#requestId.slice(-16)}_${index}`;
    const text = typeof args === "string" ? args : JSON.stringify(args ?? {});
    events.push({ type: "tool_call", choice, index, id, name, arguments: text });
  }
}

function finishReason(reason: unknown, hasCalls: boolean): FinishReason {
  if (reason === "length") return "length";
  return hasCalls ? "tool_calls" : "stop";
}

/**
 * Returns the usage. Thinking is part of the completion and not counted separately. Returns undefined if a
 * count is missing or impossible.
 */
function usageOf({ prompt_eval_count: prompt, eval_count: completion }: Fields): Usage | undefined {
  if (!isCount(prompt) || prompt === 0 || !isCount(completion)) return undefined;
  return {
    promptTokens: prompt,
    cachedPromptTokens: 0,
    cacheWriteTokens: 0,
    completionTokens: completion,
    reasoningTokens: 0,
    estimated: false,
  };
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

/** Returns log probabilities in OpenAI's form. */
function logprobsOf(list: unknown): Fields | undefined {
  if (!Array.isArray(list) || list.length === 0) return undefined;
  const content = list.filter(isFields).map((entry) => {
    const top = Array.isArray(entry.top_logprobs) ? entry.top_logprobs.filter(isFields) : [];
    return { ...tokenOf(entry), top_logprobs: top.map(tokenOf) };
  });
  return { content, refusal: null };
}

function tokenOf({ token, logprob, bytes }: Fields): Fields {
  const text = typeof token === "string" ? token : "";
  return {
    token: text,
    logprob: typeof logprob === "number" ? logprob : 0,
    bytes: Array.isArray(bytes) ? bytes : [...Buffer.from(text)],
  };
}
