import { EventSplitter, textOfLatin1 } from "../../../lib/event-splitter.ts";
import { isFields, jsonValue } from "../../../lib/json.ts";
import type { ReasoningDetail } from "../../../providers/interface.ts";
import { addDetail } from "../../../providers/reasoning-details.ts";
import type { AnswerGatherer, CacheFormat, HitFacts } from "../../call/endpoint.ts";
import type { AcceptedChat } from "./endpoint.ts";
import { completionId, usageBody } from "./render-answer.ts";
import { type ChatRequest, OFFLOADED_BODY } from "./request.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Maximum length of a cached answer. Parsing a longer one for a later hit would block the event loop. */
export const MAX_CACHED_JSON_BYTES = 262_144;
/** Finish reasons of answers that can be cached. A filtered answer could be different the next time. */
const CACHEABLE_FINISH_REASONS: ReadonlySet<unknown> = new Set(["stop", "length", "tool_calls"]);

/**
 * Fields that change only the form of an answer, and not its content. The models are part of the identity
 * separately.
 */
const FORM_FIELDS: ReadonlySet<string> = new Set([
  ...["model", "models", "stream", "stream_options", "usage"],
  ...["user", "metadata", "trace", "session_id", "route_explain", "debug"],
  ...["prompt_cache_key", "prompt_cache_retention", "safety_identifier"],
]);

/** Members that are different in each answer. */
const MEMBERS_PER_ANSWER = ["id", "created", "model", "usage"] as const;

/**
 * Chat completions in the response cache. Each is stored as the JSON of a complete answer, without the
 * members that differ in each answer.
 */
export const chatCacheFormat: CacheFormat<AcceptedChat> = {
  identity({ fields, echoes }) {
    // A stored completion has its own id at the provider, and an echo shows the request of its own call.
    if (fields.store === true || echoes) return undefined;
    return longIdentity(fields) ?? decidingFields(fields, FORM_FIELDS);
  },

  ofWhole(body) {
    const completion = parseCacheableJson(body);
    return completion && cacheableJson(completion);
  },

  gather: () => new ChunkGatherer(),

  whole(cached, _request, facts) {
    const answer = { system_fingerprint: null, ...(JSON.parse(cached) as Fields) };
    return JSON.stringify({ ...membersPerAnswer(facts), ...answer, ...usageOf(facts) });
  },

  stream(cached, { fields }, facts) {
    const { choices, object: _, system_fingerprint, ...rest } = JSON.parse(cached) as Fields;
    const fingerprint = typeof system_fingerprint === "string" && { system_fingerprint };
    const head = {
      ...membersPerAnswer(facts),
      object: "chat.completion.chunk",
      ...rest,
      ...fingerprint,
    };
    const messages = (choices as readonly Fields[]).map((choice) => messageChunk(choice));
    const ends = (choices as readonly Fields[]).map(({ message: _m, logprobs: _l, ...choice }) => ({
      ...choice,
      delta: {},
    }));
    const frames = [...messages, ...ends].map((choice) => frameOf({ ...head, choices: [choice] }));
    if (fields.stream_options?.include_usage === true || fields.usage?.include === true) {
      frames.push(frameOf({ ...head, choices: [], ...usageOf(facts) }));
    }
    return `${frames.join("")}data: [DONE]\n\n`;
  },
};

/**
 * Returns the identity of a body in a work thread: the hash of its bytes and its preset. Returns undefined
 * for a short body.
 */
export function longIdentity({ [OFFLOADED_BODY]: long }: ChatRequest): Fields | undefined {
  return long && { long: long.hash, preset: long.preset };
}

/** Returns the fields of a request that can change its answer. */
export function decidingFields(fields: Fields, formFields: ReadonlySet<string>): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([name]) => !formFields.has(name)));
}

/** Returns the parsed answer, or undefined if the answer is too long or is not an object. */
export function parseCacheableJson(body: string | Uint8Array): Fields | undefined {
  if (body.length > MAX_CACHED_JSON_BYTES) return undefined;
  const value = jsonValue(typeof body === "string" ? body : new TextDecoder().decode(body));
  return isFields(value) ? value : undefined;
}

function cacheableJson(completion: Fields): string | undefined {
  const { choices } = completion;
  const isWhole =
    Array.isArray(choices) &&
    choices.length > 0 &&
    choices.every(
      (choice) => isFields(choice) && CACHEABLE_FINISH_REASONS.has(choice.finish_reason),
    );
  if (!isWhole) return undefined;
  const shared: Record<string, unknown> = { ...completion };
  for (const member of MEMBERS_PER_ANSWER) delete shared[member];
  return JSON.stringify(shared);
}

function membersPerAnswer({ requestId, nowSeconds, model }: HitFacts): Fields {
  return { id: completionId(requestId), created: nowSeconds, model };
}

function usageOf({ usage }: HitFacts): Fields {
  return { usage: usageBody(usage, 0) };
}

/** Returns the complete message of a choice as one chunk. */
function messageChunk({ index, message, logprobs }: Fields): Fields {
  const delta: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(message as Fields)) {
    if (value === null && name !== "content") continue;
    const isCalls = name === "tool_calls" && Array.isArray(value);
    delta[name] = isCalls ? value.map((call: Fields, at) => ({ index: at, ...call })) : value;
  }
  return { index, delta, ...(isFields(logprobs) && { logprobs }), finish_reason: null };
}

function frameOf(value: unknown): string {
  return `data: ${JSON.stringify(value)}\n\n`;
}

interface GatheredChoice {
  readonly index: number;
  readonly message: Record<string, unknown>;
  /** Members of the choice besides its message. */
  readonly rest: Record<string, unknown>;
}

/** Joins the chunks of a stream to a completion. */
class ChunkGatherer implements AnswerGatherer {
  readonly #splitter = new EventSplitter(MAX_CACHED_JSON_BYTES);
  readonly #choices = new Map<number, GatheredChoice>();
  readonly #rest: Record<string, unknown> = {};
  #bytes = 0;
  #isDone = false;
  #isBroken = false;

  push(bytes: Uint8Array): void {
    if (this.#isBroken) return;
    try {
      this.#splitter.push(bytes, this.#take);
    } catch {
      // The stream is too long, or has a form that this endpoint does not send. It is not cached.
      this.#isBroken = true;
    }
  }

  end(): string | undefined {
    if (!this.#isDone || this.#isBroken) return undefined;
    const choices = [...this.#choices.values()].sort((a, b) => a.index - b.index);
    for (const { message } of choices) {
      if (message.content === "" && message.tool_calls !== undefined) message.content = null;
    }
    return cacheableJson({
      system_fingerprint: null,
      ...this.#rest,
      object: "chat.completion",
      choices: choices.map(({ index, message, rest }) => ({ index, message, ...rest })),
    });
  }

  readonly #take = (data: string): void => {
    if (data === "[DONE]") {
      this.#isDone = true;
      return;
    }
    const { choices, ...rest } = JSON.parse(textOfLatin1(data)) as Record<string, unknown>;
    Object.assign(this.#rest, rest);
    for (const choice of choices as readonly Fields[]) this.#takeChoice(choice);
  };

  #takeChoice({ index, delta, logprobs, ...rest }: Fields): void {
    const choice = this.#choiceOf(index as number);
    for (const [name, value] of Object.entries(isFields(delta) ? delta : {})) {
      if (value !== null) this.#add(choice.message, name, value);
    }
    for (const [name, list] of Object.entries(isFields(logprobs) ? logprobs : {})) {
      choice.rest.logprobs ??= {};
      if (Array.isArray(list))
        this.#add(choice.rest.logprobs as Record<string, unknown>, name, list);
    }
    for (const [name, value] of Object.entries(rest)) {
      if (value !== null) choice.rest[name] = value;
    }
  }

  #choiceOf(index: number): GatheredChoice {
    let choice = this.#choices.get(index);
    if (choice === undefined) {
      const message = { role: "assistant", content: null, refusal: null };
      choice = { index, message, rest: { logprobs: null } };
      this.#choices.set(index, choice);
    }
    return choice;
  }

  #add(target: Record<string, unknown>, name: string, value: unknown): void {
    this.#bytes += JSON.stringify(value).length;
    if (this.#bytes > MAX_CACHED_JSON_BYTES) throw new RangeError("an answer is too long");
    const before = target[name];
    if (name === "role") target.role = value;
    else if (name === "tool_calls") target.tool_calls = joinedCalls(before, value);
    else if (name === "reasoning_details") target.reasoning_details = joinedDetails(before, value);
    else if (typeof before === "string" && typeof value === "string") target[name] = before + value;
    else if (Array.isArray(before) && Array.isArray(value)) before.push(...value);
    else if (name === "audio" && isFields(before) && isFields(value)) {
      target.audio = joinedAudio(before, value);
    } else target[name] = value;
  }
}

function joinedCalls(before: unknown, pieces: unknown): unknown {
  const calls = (before ?? []) as Record<string, unknown>[];
  for (const { index, function: called, custom, ...rest } of pieces as readonly Fields[]) {
    calls[index as number] ??= {};
    const call = calls[index as number]!;
    Object.assign(call, rest);
    if (isFields(custom)) {
      const { input: before = "" } = (call.custom ?? {}) as Fields;
      call.custom = {
        ...(call.custom as object),
        ...custom,
        input: `${before}${custom.input ?? ""}`,
      };
    }
    if (!isFields(called)) continue;
    const { name, arguments: json = "" } = called;
    const previous = (call.function ?? { name, arguments: "" }) as Record<string, unknown>;
    call.function = { ...previous, arguments: `${previous.arguments}${json}` };
  }
  return calls;
}

function joinedDetails(before: unknown, pieces: unknown): unknown {
  const details = (before ?? []) as ReasoningDetail[];
  for (const piece of pieces as readonly ReasoningDetail[]) addDetail(details, piece);
  return details;
}

/** Joins two pieces of audio. The base64 text can be cut at any character. */
function joinedAudio(before: Record<string, unknown>, piece: Fields): Fields {
  const audio = { ...before };
  for (const [name, value] of Object.entries(piece)) {
    const previous = audio[name];
    const grows = name === "data" || name === "transcript";
    audio[name] = grows && typeof previous === "string" ? `${previous}${value}` : value;
  }
  return audio;
}
