import { effect, signal } from "@preact/signals";
import { ApiError, errorOf, session } from "../api.ts";
import { Answer, type ChatRequest, fetchWithKey } from "./answer.ts";

/*
 * State of the playground. It lives while the dashboard is open, so it survives visits to other pages. It is
 * never stored, and the end of the session clears it.
 */

export interface Settings {
  readonly system: string;
  readonly temperature: string;
  readonly maxTokens: string;
  /** The reasoning effort. Empty means the model's default. */
  readonly effort: string;
  /** Further fields of the request, as a JSON object. */
  readonly fields: string;
}

export interface Turn {
  readonly text: string;
  /** One answer per side. Undefined for a side that is newer than the turn. */
  readonly answers: readonly (Answer | undefined)[];
}

const NO_SETTINGS: Settings = {
  system: "",
  temperature: "",
  maxTokens: "",
  effort: "",
  fields: "",
};

/** Model ids of the sides, as typed. */
export const sides = signal<readonly string[]>([""]);
export const settings = signal<Settings>(NO_SETTINGS);
export const turns = signal<readonly Turn[]>([]);
/** The message that is being typed. */
export const draft = signal("");
/** Name of the key in use. The secret itself is in no signal and no element of the page. */
export const keyName = signal<string>();
let secret = "";

effect(() => {
  if (session.value) return;
  forgetKey();
  clear();
  sides.value = [""];
  settings.value = NO_SETTINGS;
});

export function forgetKey(): void {
  secret = "";
  keyName.value = undefined;
}

/** Stops running answers and starts an empty conversation. */
export function clear(): void {
  stopAll();
  turns.value = [];
  draft.value = "";
}

export function stopAll(): void {
  for (const answer of turns.peek().at(-1)?.answers ?? []) answer?.stop();
}

/** Characters of a key that a header can carry. */
const KEY = /^[\x21-\x7e]{1,256}$/;
const MANAGEMENT_PREFIX = "gateway_mgmt_";

/** Stores a key if it can call models. Throws ApiError if it cannot. */
export async function useKey(text: string): Promise<void> {
  if (!KEY.test(text)) throw new ApiError(0, "invalid_api_key", "This is not a valid key.", null);
  const sessionAtStart = session.value;
  const response = await fetchWithKey("v1/key", text).catch(() => {
    throw new ApiError(0, "unreachable", "The gateway cannot be reached.", null);
  });
  if (!response.ok) throw await errorOf(response);
  const { name, key_prefix: prefix } = (await response.json()) as Record<string, string>;
  if (prefix?.startsWith(MANAGEMENT_PREFIX)) {
    throw new ApiError(
      403,
      "wrong_key_kind",
      "A management key cannot call models. Enter a secret key (gateway_sk_…).",
      null,
    );
  }
  // A new session must not get a key that was typed in the previous one.
  if (session.value !== sessionAtStart) return;
  secret = text;
  keyName.value = name;
}

/** Sends the message to every side. */
export function send(hasEffort: (model: string) => boolean): void {
  const answers = sides.value.map((_, side) => new Answer(requestOf(side, hasEffort), secret));
  turns.value = [...turns.value, { text: draft.value, answers }];
  draft.value = "";
}

/** Removes a side and its answers. */
export function removeSide(side: number): void {
  const withoutSide = <Item>(items: readonly Item[]) => items.filter((_, index) => index !== side);
  sides.value = withoutSide(sides.value);
  for (const { answers } of turns.value) answers[side]?.stop();
  turns.value = turns.value
    .map(({ text, answers }) => ({ text, answers: withoutSide(answers) }))
    .filter(({ answers }) => answers.some((answer) => answer !== undefined));
}

/** Returns the typed fields, or undefined if the text is not a JSON object. */
export function fieldsOf(text: string): object | undefined {
  if (text.trim() === "") return {};
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the next request of a side. While no message is typed, returns its last request. */
export function requestOf(side: number, hasEffort: (model: string) => boolean): ChatRequest {
  const model = sides.value[side]!.trim();
  const { system, temperature, maxTokens, effort, fields } = settings.value;
  const isTyped = draft.value.trim() !== "";
  const earlierTurns = isTyped ? turns.value : turns.value.slice(0, -1);
  const next = isTyped ? draft.value : (turns.value.at(-1)?.text ?? "Hello");
  return {
    ...fieldsOf(fields),
    model,
    messages: [
      ...(system.trim() === "" ? [] : [{ role: "system", content: system }]),
      ...messagesOf(earlierTurns, side, next),
    ],
    ...(temperature !== "" && { temperature: Number(temperature) }),
    ...(maxTokens !== "" && { max_tokens: Number(maxTokens) }),
    ...(effort !== "" && hasEffort(model) && { reasoning_effort: effort }),
    stream: true,
    stream_options: { include_usage: true },
  };
}

/** Returns the messages of a side. After tool calls the next message is the tool's result. */
function messagesOf(earlierTurns: readonly Turn[], side: number, next: string): object[] {
  const messages: object[] = [];
  let openCallIds: readonly string[] = [];
  const messagesFor = (text: string) =>
    openCallIds.length === 0
      ? [{ role: "user", content: text }]
      : openCallIds.map((id) => ({ role: "tool", tool_call_id: id, content: text }));
  for (const { text, answers } of earlierTurns) {
    const { phase, text: answerText, toolCalls } = answers[side]?.state.value ?? {};
    const isCalling = phase === "done" && toolCalls !== undefined && toolCalls.length > 0;
    // Skips messages without an answer, because models expect an answer after each message.
    if (!answerText && !isCalling) continue;
    messages.push(...messagesFor(text));
    messages.push({
      role: "assistant",
      content: answerText || null,
      ...(isCalling && { tool_calls: toolCalls }),
    });
    openCallIds = isCalling ? toolCalls.map(({ id }) => id) : [];
  }
  return [...messages, ...messagesFor(next)];
}

/** Returns the request as a curl command. The key comes from the environment. */
export function curlOf(url: string, body: object): string {
  const json = JSON.stringify(body, null, 2).replaceAll("'", String.raw`'\''`);
  return `curl -N ${url} \\
  -H "Authorization: Bearer $SECRET_KEY" \\
  -H "Content-Type: application/json" \\
  -d '${json}'`;
}

export function sdkOf(baseUrl: string, body: object): string {
  return `import OpenAI from "openai";

const client = new OpenAI({
  baseURL: ${JSON.stringify(baseUrl)},
  apiKey: process.env.SECRET_KEY,
});

const stream = await client.chat.completions.create(${JSON.stringify(body, null, 2)});
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta.content ?? "");
}`;
}
