import type { AnswerGatherer, HitFacts, KeptForm } from "../../call/endpoint.ts";
import { EventSplitter, textOfLatin1 } from "../../../lib/event-splitter.ts";
import { isFields, jsonValue } from "../../../lib/json.ts";
import type { ReasoningDetail } from "../../../providers/interface.ts";
import { addDetail } from "../../../providers/reasoning-details.ts";
import type { AcceptedChat } from "./endpoint.ts";
import { completionId, usageBody } from "./render-answer.ts";
import { type ChatRequest, LONG_BODY } from "./request.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Longer answers are not kept: reading one when it is given again would hold the event loop. */
export const MAX_KEPT_JSON_BYTES = 262_144;
/** How answers end that would come again: what was filtered might be answered another time. */
const KEPT_ENDS: ReadonlySet<unknown> = new Set(["stop", "length", "tool_calls"]);

/** Fields that decide nothing about an answer, but for its form; the models are named apart. */
const UNDECIDING: ReadonlySet<string> = new Set([
  ...["model", "models", "stream", "stream_options", "usage"],
  ...["user", "metadata", "trace", "session_id", "route_explain", "debug"],
  ...["prompt_cache_key", "prompt_cache_retention", "safety_identifier"],
]);

/** Members that each answer has of its own. */
const OWN_MEMBERS = ["id", "created", "model", "usage"] as const;

/** Chat completions in the response cache: as JSON of a whole one, without what each answer has of its own. */
export const keptChat: KeptForm<AcceptedChat> = {
  identity({ fields, echoes }) {
    // The provider stores the one under its own id; the other shows what was sent for it.
    if (fields.store === true || echoes) return undefined;
    return longIdentity(fields) ?? decidingFields(fields, UNDECIDING);
  },

  ofWhole(body) {
    const completion = keptJson(body);
    return completion && keptOf(completion);
  },

  gather: () => new ChunkGatherer(),

  whole(kept, _request, facts) {
    const answer = { system_fingerprint: null, ...(JSON.parse(kept) as Fields) };
    return JSON.stringify({ ...ownOf(facts), ...answer, ...usageOf(facts) });
  },

  stream(kept, { fields }, facts) {
    const { choices, object: _, system_fingerprint, ...rest } = JSON.parse(kept) as Fields;
    const fingerprint = typeof system_fingerprint === "string" && { system_fingerprint };
    const head = { ...ownOf(facts), object: "chat.completion.chunk", ...rest, ...fingerprint };
    const said = (choices as readonly Fields[]).map((choice) => saidIn(choice));
    const ends = (choices as readonly Fields[]).map(({ message: _m, logprobs: _l, ...choice }) => ({
      ...choice,
      delta: {},
    }));
    const frames = [...said, ...ends].map((choice) => frameOf({ ...head, choices: [choice] }));
    if (fields.stream_options?.include_usage === true || fields.usage?.include === true) {
      frames.push(frameOf({ ...head, choices: [], ...usageOf(facts) }));
    }
    return `${frames.join("")}data: [DONE]\n\n`;
  },
};

/** Of a body that lies in a thread: it is the same where each of its bytes is, and the preset that it names. */
export function longIdentity({ [LONG_BODY]: long }: ChatRequest): Fields | undefined {
  return long && { long: long.hash, preset: long.preset };
}

/** The fields of a request that decide about its answer. */
export function decidingFields(fields: Fields, undeciding: ReadonlySet<string>): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([name]) => !undeciding.has(name)));
}

/** The object that an answer is; undefined for one that is too long. */
export function keptJson(body: string | Uint8Array): Fields | undefined {
  if (body.length > MAX_KEPT_JSON_BYTES) return undefined;
  const value = jsonValue(typeof body === "string" ? body : new TextDecoder().decode(body));
  return isFields(value) ? value : undefined;
}

function keptOf(completion: Fields): string | undefined {
  const { choices } = completion;
  const isWhole =
    Array.isArray(choices) &&
    choices.length > 0 &&
    choices.every((choice) => isFields(choice) && KEPT_ENDS.has(choice.finish_reason));
  if (!isWhole) return undefined;
  const kept: Record<string, unknown> = { ...completion };
  for (const member of OWN_MEMBERS) delete kept[member];
  return JSON.stringify(kept);
}

function ownOf({ requestId, nowSeconds, model }: HitFacts): Fields {
  return { id: completionId(requestId), created: nowSeconds, model };
}

function usageOf({ usage }: HitFacts): Fields {
  return { usage: usageBody(usage, 0) };
}

/** The whole message of a choice in one chunk. */
function saidIn({ index, message, logprobs }: Fields): Fields {
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
  /** Of the choice, besides its message. */
  readonly rest: Record<string, unknown>;
}

/** Joins the chunks of a stream to the completion that they are. */
class ChunkGatherer implements AnswerGatherer {
  readonly #splitter = new EventSplitter(MAX_KEPT_JSON_BYTES);
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
      // It is too long, or in a form that this endpoint does not send: it cannot be kept.
      this.#isBroken = true;
    }
  }

  end(): string | undefined {
    if (!this.#isDone || this.#isBroken) return undefined;
    const choices = [...this.#choices.values()].sort((a, b) => a.index - b.index);
    for (const { message } of choices) {
      if (message.content === "" && message.tool_calls !== undefined) message.content = null;
    }
    return keptOf({
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
    if (this.#bytes > MAX_KEPT_JSON_BYTES) throw new RangeError("an answer is too long");
    const before = target[name];
    if (name === "role") target.role = value;
    else if (name === "tool_calls") target.tool_calls = joinedCalls(before, value);
    else if (name === "reasoning_details") target.reasoning_details = joinedDetails(before, value);
    else if (typeof before === "string" && typeof value === "string") target[name] = before + value;
    else if (Array.isArray(before) && Array.isArray(value)) before.push(...value);
    else if (name === "audio" && isFields(before) && isFields(value)) {
      target.audio = joinedSound(before, value);
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
    const known = (call.function ?? { name, arguments: "" }) as Record<string, unknown>;
    call.function = { ...known, arguments: `${known.arguments}${json}` };
  }
  return calls;
}

function joinedDetails(before: unknown, pieces: unknown): unknown {
  const details = (before ?? []) as ReasoningDetail[];
  for (const piece of pieces as readonly ReasoningDetail[]) addDetail(details, piece);
  return details;
}

/** Its data are cut at any character of the base64 of the whole. */
function joinedSound(before: Record<string, unknown>, piece: Fields): Fields {
  const sound = { ...before };
  for (const [name, value] of Object.entries(piece)) {
    const more = sound[name];
    const grows = name === "data" || name === "transcript";
    sound[name] = grows && typeof more === "string" ? `${more}${value}` : value;
  }
  return sound;
}
