import { effect, signal } from "@preact/signals";
import { ApiError, errorOf, session } from "../api.ts";
import { Answer, type ChatRequest, fetchWithKey } from "./answer.ts";

/*
 * The playground's state lives as long as the page is open, so that it is still there after a look at another
 * one. Nothing of it is stored, and it goes with the session.
 */

export interface Settings {
  readonly system: string;
  readonly temperature: string;
  readonly maxTokens: string;
  /** Empty leaves it to the model. */
  readonly effort: string;
  /** Further fields of the request, as a JSON object. */
  readonly fields: string;
}

export interface Turn {
  readonly text: string;
  /** One for each side; a side that is newer than the turn has none. */
  readonly answers: readonly (Answer | undefined)[];
}

const NO_SETTINGS: Settings = {
  system: "",
  temperature: "",
  maxTokens: "",
  effort: "",
  fields: "",
};

/** The models of the sides, by their ids as typed. */
export const sides = signal<readonly string[]>([""]);
export const settings = signal<Settings>(NO_SETTINGS);
export const turns = signal<readonly Turn[]>([]);
/** The message that is being typed. */
export const draft = signal("");
/** Which key is used; the secret itself is in no signal and no element of the page. */
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

/** Stops what is under way and begins with nothing said. */
export function clear(): void {
  stopAll();
  turns.value = [];
  draft.value = "";
}

export function stopAll(): void {
  for (const answer of turns.peek().at(-1)?.answers ?? []) answer?.stop();
}

/** What a key consists of, so that a header can hold it. */
const KEY = /^[\x21-\x7e]{1,256}$/;
const MANAGEMENT_PREFIX = "gateway_mgmt_";

/** Keeps a key if the gateway takes it for calls of models. Throws ApiError where it does not. */
export async function useKey(text: string): Promise<void> {
  if (!KEY.test(text)) throw new ApiError(0, "invalid_api_key", "This is no key.", null);
  const loggedFieldsOf = session.value;
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
  // Who has signed in meanwhile gets no key that another has typed.
  if (session.value !== loggedFieldsOf) return;
  secret = text;
  keyName.value = name;
}

/** Sends the message to every side. */
export function send(hasEffort: (model: string) => boolean): void {
  const answers = sides.value.map((_, side) => new Answer(requestOf(side, hasEffort), secret));
  turns.value = [...turns.value, { text: draft.value, answers }];
  draft.value = "";
}

/** Takes a side away, with what was said on it. */
export function removeSide(side: number): void {
  const others = <Item>(items: readonly Item[]) => items.filter((_, at) => at !== side);
  sides.value = others(sides.value);
  for (const { answers } of turns.value) answers[side]?.stop();
  turns.value = turns.value
    .map(({ text, answers }) => ({ text, answers: others(answers) }))
    .filter(({ answers }) => answers.some((answer) => answer !== undefined));
}

/** The fields that the viewer typed, or undefined where they are no JSON object. */
export function fieldsOf(text: string): object | undefined {
  if (text.trim() === "") return {};
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The request that a side sends next; while no message is typed, the one that it sent last. */
export function requestOf(side: number, hasEffort: (model: string) => boolean): ChatRequest {
  const model = sides.value[side]!.trim();
  const { system, temperature, maxTokens, effort, fields } = settings.value;
  const isTyped = draft.value.trim() !== "";
  const said = isTyped ? turns.value : turns.value.slice(0, -1);
  const next = isTyped ? draft.value : (turns.value.at(-1)?.text ?? "Hello");
  return {
    ...fieldsOf(fields),
    model,
    messages: [
      ...(system.trim() === "" ? [] : [{ role: "system", content: system }]),
      ...messagesOf(said, side, next),
    ],
    ...(temperature !== "" && { temperature: Number(temperature) }),
    ...(maxTokens !== "" && { max_tokens: Number(maxTokens) }),
    ...(effort !== "" && hasEffort(model) && { reasoning_effort: effort }),
    stream: true,
    stream_options: { include_usage: true },
  };
}

/** What was said on a side. After calls of tools the next message is their result. */
function messagesOf(said: readonly Turn[], side: number, next: string): object[] {
  const messages: object[] = [];
  let open: readonly string[] = [];
  const say = (text: string) =>
    open.length === 0
      ? [{ role: "user", content: text }]
      : open.map((id) => ({ role: "tool", tool_call_id: id, content: text }));
  for (const { text, answers } of said) {
    const { phase, text: answered, toolCalls } = answers[side]?.state.value ?? {};
    const isCalling = phase === "done" && toolCalls !== undefined && toolCalls.length > 0;
    // What has no answer is left out, since models expect one after each message.
    if (!answered && !isCalling) continue;
    messages.push(...say(text));
    messages.push({
      role: "assistant",
      content: answered || null,
      ...(isCalling && { tool_calls: toolCalls }),
    });
    open = isCalling ? toolCalls.map(({ id }) => id) : [];
  }
  return [...messages, ...say(next)];
}

/** The request as a command or a program: the key is left to the environment. */
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
