import { isFields } from "../../lib/json.ts";
import { type ChatEvent, ProviderFailure } from "../interface.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { failureInside } from "./failure-mapping.ts";
import { failureKindOf, finishReasonOf } from "./finish-reason.ts";
import { groundingAnnotations } from "./grounding-annotations.ts";
import { PartialCall } from "./partial-call.ts";
import { reportedUsage } from "./reported-usage.ts";
import { extraContent, signatureDetail, thoughtDetail } from "./signatures.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Highest number of choices per request: more than a request can ask for. */
const MAX_CHOICES = 128;

/** The state of a candidate. */
interface CandidateState {
  text: string;
  images: number;
  calls: number;
  /** The call whose arguments are incomplete. */
  partialCall: PartialCall | undefined;
  /** Index of its last reasoning detail. Clients join the pieces with the same index. */
  detail: number;
  isThinking: boolean;
  isFinished: boolean;
}

/**
 * Converts responses of generateContent to events. A stream has many responses, a whole answer one. Skips
 * parts of unsupported kinds, such as code that Google ran or the images of a thought. A candidate begins
 * with its first response and ends with its finish reason; later parts are ignored.
 */
export class AnswerReader {
  readonly #requestId: string;
  readonly #context: FailureContext;
  readonly #candidates = new Map<number, CandidateState>();
  #hasUsage = false;
  #hasContent = false;

  constructor(requestId: string, context: FailureContext) {
    this.#requestId = requestId;
    this.#context = context;
  }

  /** Returns the events of a response. If it reports an error, that is the last event. */
  read(response: unknown): ChatEvent[] {
    const failure = failureInside(response, this.#context);
    if (!isFields(response)) {
      return [{ type: "error", failure: failure ?? brokenAnswer("JSON that is not an object") }];
    }
    const { candidates, promptFeedback } = response;
    const contentEvents = (Array.isArray(candidates) ? candidates : []).flatMap(
      (candidate, position) => this.#readCandidate(candidate, position),
    );
    const events = this.#withUsage(contentEvents, response.usageMetadata);
    const error = failure ?? refusalOf(promptFeedback);
    // Readers stop at an error event, so the usage precedes it.
    if (error !== undefined) events.push({ type: "error", failure: error });
    return events;
  }

  /** True if every candidate that has begun is finished. */
  get isFinished(): boolean {
    if (this.#candidates.size === 0) return false;
    for (const { isFinished } of this.#candidates.values()) if (!isFinished) return false;
    return true;
  }

  /**
   * Adds reported usage to the events. A stream can begin with usage of the prompt only. That usage is
   * emitted once, before the text of its response, so that the gateway counts the completion itself until
   * complete usage arrives.
   */
  #withUsage(contentEvents: readonly ChatEvent[], raw: unknown): ChatEvent[] {
    this.#hasContent ||= contentEvents.some(({ type }) => type !== "finish");
    const reported = reportedUsage(raw);
    if (reported === undefined) return [...contentEvents];
    const { usage, countsAnswer } = reported;
    const event: ChatEvent = { type: "usage", usage };
    const isWhole = countsAnswer || !this.#hasContent;
    if (!isWhole && this.#hasUsage) return [...contentEvents];
    this.#hasUsage = true;
    return isWhole ? [...contentEvents, event] : [event, ...contentEvents];
  }

  #readCandidate(candidate: unknown, position: number): ChatEvent[] {
    if (!isFields(candidate)) return [];
    const { index = position, content, finishReason, logprobsResult } = candidate;
    if (!Number.isInteger(index) || (index as number) < 0 || (index as number) >= MAX_CHOICES) {
      return [];
    }
    const choice = index as number;
    const state = this.#stateOf(choice);
    if (state.isFinished) return [];
    const parts = isFields(content) && Array.isArray(content.parts) ? content.parts : [];
    const events = parts.flatMap((part) => this.#readPart(part, choice, state));
    this.#addLogprobs(events, choice, logprobsResult);
    const annotations = groundingAnnotations(candidate.groundingMetadata, state.text);
    if (annotations.length > 0) events.push({ type: "text", choice, text: "", annotations });
    if (typeof finishReason !== "string" || finishReason === "") return events;
    events.push(...this.#endCall(choice, state));
    return [...events, this.#finish(choice, state, finishReason, candidate.finishMessage)];
  }

  #readPart(part: unknown, choice: number, state: CandidateState): ChatEvent[] {
    if (!isFields(part)) return [];
    const { text, thought, functionCall, thoughtSignature, inlineData } = part;
    const signature =
      typeof thoughtSignature === "string" && thoughtSignature !== ""
        ? thoughtSignature
        : undefined;
    if (isFields(functionCall)) return this.#readCall(functionCall, signature, choice, state);
    const content = typeof text === "string" ? text : "";
    if (thought === true) {
      if (content === "" && signature === undefined) return [];
      if (!state.isThinking) state.detail++;
      // A signature ends a thought: the next part starts a new one.
      state.isThinking = signature === undefined;
      const detail = { ...thoughtDetail(content, signature), index: state.detail };
      return [{ type: "reasoning", choice, text: content, details: [detail] }];
    }
    const events: ChatEvent[] = [];
    if (content !== "") {
      state.text += content;
      events.push({ type: "text", choice, text: content });
    }
    const url = imageUrl(inlineData);
    if (url !== undefined) {
      state.images++;
      events.push({ type: "image", choice, url });
    }
    if (signature !== undefined) events.push(signed(choice, state, signature));
    return events;
  }

  #readCall(
    call: Fields,
    signature: string | undefined,
    choice: number,
    state: CandidateState,
  ): ChatEvent[] {
    const { id: givenId, name, args, partialArgs, willContinue } = call;
    const isPartial = willContinue === true || Array.isArray(partialArgs);
    const open = state.partialCall;
    if (open?.continuesWith(call) === true) {
      return this.#addToCall(open, call, signature, choice, state);
    }
    const previousEvents = this.#endCall(choice, state);
    if (typeof name !== "string" || name === "") return previousEvents;
    if (isPartial) {
      const started = new PartialCall(call);
      state.partialCall = started;
      return [...previousEvents, ...this.#addToCall(started, call, signature, choice, state)];
    }
    const text = JSON.stringify(isFields(args) ? args : {});
    return [
      ...previousEvents,
      ...this.#callEvents({ id: givenId, name, text, signature }, choice, state),
    ];
  }

  #addToCall(
    open: PartialCall,
    { partialArgs, willContinue }: Fields,
    signature: string | undefined,
    choice: number,
    state: CandidateState,
  ): ChatEvent[] {
    open.signature ??= signature;
    open.add(partialArgs);
    return willContinue === true ? [] : this.#endCall(choice, state);
  }

  /** Ends the open call and returns its events. */
  #endCall(choice: number, state: CandidateState): ChatEvent[] {
    const { partialCall: call } = state;
    state.partialCall = undefined;
    if (call === undefined) return [];
    const { id, name, signature } = call;
    return this.#callEvents({ id, name, text: call.arguments, signature }, choice, state);
  }

  #callEvents(
    {
      id: givenId,
      name,
      text,
      signature,
    }: {
      readonly id: unknown;
      readonly name: string;
      readonly text: string;
      readonly signature: string | undefined;
    },
    choice: number,
    state: CandidateState,
  ): ChatEvent[] {
    const index = state.calls++;
    const isGiven = typeof givenId === "string" && givenId !== "";
    const id = isGiven ? givenId : `call_${this.#requestId.slice(-16)}_${choice}_${index}`;
    const event: ChatEvent = {
      type: "tool_call",
      choice,
      index,
      id,
      name,
      arguments: text,
      ...(signature !== undefined && { extraContent: extraContent(signature) }),
    };
    return signature === undefined ? [event] : [signed(choice, state, signature, id), event];
  }

  #finish(choice: number, state: CandidateState, reason: string, message: unknown): ChatEvent {
    state.isFinished = true;
    const isEmpty = state.text === "" && state.calls + state.images === 0;
    const kind =
      failureKindOf(reason) ?? (reason === "OTHER" && isEmpty ? "unavailable" : undefined);
    if (kind !== undefined) {
      const detail = typeof message === "string" && message !== "" ? `: ${message}` : "";
      const text = `the model ended its answer with ${reason}${detail}`.slice(0, 2_000);
      return { type: "error", failure: new ProviderFailure(kind, text) };
    }
    return { type: "finish", choice, reason: finishReasonOf(reason, state.calls > 0) };
  }

  /** Adds log probabilities to the first text event of a response: Google reports them per response. */
  #addLogprobs(events: ChatEvent[], choice: number, result: unknown): void {
    const logprobs = logprobsOf(result);
    if (logprobs === undefined) return;
    const index = events.findIndex(({ type }) => type === "text");
    const text = events[index];
    if (text?.type === "text") events[index] = { ...text, logprobs };
    else events.push({ type: "text", choice, text: "", logprobs });
  }

  #stateOf(choice: number): CandidateState {
    let state = this.#candidates.get(choice);
    if (state === undefined) {
      state = {
        text: "",
        images: 0,
        calls: 0,
        partialCall: undefined,
        detail: -1,
        isThinking: false,
        isFinished: false,
      };
      this.#candidates.set(choice, state);
    }
    return state;
  }
}

/** Returns the data URL of a part that is an image. */
function imageUrl(inlineData: unknown): string | undefined {
  if (!isFields(inlineData)) return undefined;
  const { mimeType, data } = inlineData;
  const isImage = typeof mimeType === "string" && /^image\/[\w.+-]+$/.test(mimeType);
  return isImage && typeof data === "string" ? `data:${mimeType};base64,${data}` : undefined;
}

function signed(
  choice: number,
  state: CandidateState,
  signature: string,
  callId?: string,
): ChatEvent {
  state.isThinking = false;
  const detail = { ...signatureDetail(signature, callId), index: ++state.detail };
  return { type: "reasoning", choice, text: "", details: [detail] };
}

/** Returns the failure of a prompt that Google blocked. Such a response has no candidates. */
export function refusalOf(feedback: unknown): ProviderFailure | undefined {
  const { blockReason, blockReasonMessage } = isFields(feedback) ? feedback : {};
  if (typeof blockReason !== "string" || blockReason === "") return undefined;
  const detail = typeof blockReasonMessage === "string" ? `: ${blockReasonMessage}` : "";
  const message = `The provider blocked the prompt (${blockReason})${detail}`.slice(0, 2_000);
  return new ProviderFailure("content_policy", message);
}

/** Returns log probabilities in OpenAI's form. https://ai.google.dev/api/generate-content#LogprobsResult */
function logprobsOf(result: unknown): Fields | undefined {
  if (!isFields(result) || !Array.isArray(result.chosenCandidates)) return undefined;
  const tops = Array.isArray(result.topCandidates) ? result.topCandidates : [];
  const content = result.chosenCandidates.filter(isFields).map((chosen, index) => {
    const top: unknown = isFields(tops[index]) ? tops[index].candidates : undefined;
    const alternatives = Array.isArray(top) ? top.filter(isFields).map(tokenOf) : [];
    return { ...tokenOf(chosen), top_logprobs: alternatives };
  });
  return { content, refusal: null };
}

function tokenOf({ token, logProbability }: Fields): Fields {
  const text = typeof token === "string" ? token : "";
  const logprob = typeof logProbability === "number" ? logProbability : 0;
  return { token: text, logprob, bytes: [...Buffer.from(text)] };
}
