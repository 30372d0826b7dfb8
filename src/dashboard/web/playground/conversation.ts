import { effect, signal } from "@preact/signals";
import { session } from "../api.ts";
import { Answer, type AnswerState, type ChatRequest, type ToolCall } from "./answer.ts";
import { type Attachment, contentOf } from "./attachments.ts";
import {
  type ModelTraits,
  NO_SETTINGS,
  type Settings,
  settingFields,
  settings,
} from "./settings.ts";

/* The conversation of the playground. It lives while the dashboard is open, so it survives visits to other pages. */

/** A message of the viewer, or results of tools. */
export interface Message {
  readonly text: string;
  readonly attachments: readonly Attachment[];
  /** Results of the tool calls before it, by their ids. Empty: the text is the result. */
  readonly results: Readonly<Record<string, string>>;
}

export interface Turn extends Message {
  /** One answer per side. Undefined for a side that is newer than the turn, or had no tool call to answer. */
  readonly answers: readonly (Answer | undefined)[];
}

/** Returns what a model can do. */
export type TraitsOf = (model: string) => ModelTraits;

/** Id of the conversation in the history. */
export const conversationId = signal<string>(crypto.randomUUID());
/** Model ids of the sides, as typed. */
export const sides = signal<readonly string[]>([""]);
export const turns = signal<readonly Turn[]>([]);
/** The message that is being typed, and its files. */
export const draft = signal("");
export const attachments = signal<readonly Attachment[]>([]);
/** Index of the turn that the draft replaces, with all turns after it. */
export const editing = signal<number>();

// A session can follow another without a sign-in, after a switch of the organization.
effect(() => {
  void session.value;
  clear();
  sides.value = [""];
  settings.value = NO_SETTINGS;
});

/** Stops running answers and starts an empty conversation. */
export function clear(): void {
  stopAll();
  turns.value = [];
  conversationId.value = crypto.randomUUID();
  emptyDraft();
}

function emptyDraft(): void {
  draft.value = "";
  attachments.value = [];
  editing.value = undefined;
}

export function stopAll(): void {
  for (const { answers } of turns.peek()) for (const answer of answers) answer?.stop();
}

export function isRunning(): boolean {
  return turns.value.some(({ answers }) => answers.some((answer) => answer?.isRunning));
}

/** Returns the turns before the draft. */
function earlierTurns(): readonly Turn[] {
  return turns.value.slice(0, editing.value ?? turns.value.length);
}

/** Sends the draft to every side. Returns its answers. */
export function send(traitsOf: TraitsOf): readonly (Answer | undefined)[] {
  const message = { text: draft.value, attachments: attachments.value, results: {} };
  const earlier = earlierTurns();
  const answers = sides.value.map(
    (_, side) => new Answer(requestOf(side, earlier, message, traitsOf)),
  );
  turns.value = [...earlier, { ...message, answers }];
  emptyDraft();
  return answers;
}

/** Sends results of tool calls to the sides that have made them. Returns their answers. */
export function sendResults(
  results: Readonly<Record<string, string>>,
  traitsOf: TraitsOf,
): readonly (Answer | undefined)[] {
  const message: Message = { text: "", attachments: [], results };
  const earlier = turns.value;
  const answers = sides.value.map((_, side) =>
    openCalls(side).length === 0
      ? undefined
      : new Answer(requestOf(side, earlier, message, traitsOf)),
  );
  turns.value = [...earlier, { ...message, answers }];
  return answers;
}

/** Returns the tool calls of a side's last answer, which wait for results. */
export function openCalls(side: number): readonly ToolCall[] {
  const state = turns.value.at(-1)?.answers[side]?.state.value;
  return state?.phase === "done" ? state.toolCalls : [];
}

/** Asks for the last answer of a side again, with the settings of now. Returns the new answer. */
export function retry(side: number, traitsOf: TraitsOf): Answer | undefined {
  const last = turns.value.at(-1);
  if (last === undefined) return undefined;
  last.answers[side]?.stop();
  const earlier = turns.value.slice(0, -1);
  const answer = new Answer(requestOf(side, earlier, last, traitsOf));
  const answers = sides.value.map((_, index) => (index === side ? answer : last.answers[index]));
  turns.value = [...earlier, { ...last, answers }];
  return answer;
}

/** Puts a message back into the draft. Its turn and those after it go when the draft is sent. */
export function edit(index: number): void {
  const { text, attachments: files } = turns.value[index]!;
  draft.value = text;
  attachments.value = files;
  editing.value = index;
}

export const stopEditing = emptyDraft;

/** Removes a side and its answers. */
export function removeSide(side: number): void {
  const withoutSide = <Item>(items: readonly Item[]) => items.filter((_, index) => index !== side);
  sides.value = withoutSide(sides.value);
  for (const { answers } of turns.value) answers[side]?.stop();
  turns.value = turns.value
    .map((turn) => ({ ...turn, answers: withoutSide(turn.answers) }))
    .filter(({ answers }) => answers.some((answer) => answer !== undefined));
}

/** Returns the next request of a side. While no message is typed, returns its last request. */
export function nextRequest(side: number, traitsOf: TraitsOf): ChatRequest {
  const last = turns.value.at(-1);
  if (draft.value.trim() === "" && last !== undefined) {
    return requestOf(side, turns.value.slice(0, -1), last, traitsOf);
  }
  const text = draft.value.trim() === "" ? "Hello" : draft.value;
  const message = { text, attachments: attachments.value, results: {} };
  return requestOf(side, earlierTurns(), message, traitsOf);
}

function requestOf(
  side: number,
  earlier: readonly Turn[],
  message: Message,
  traitsOf: TraitsOf,
): ChatRequest {
  const model = sides.value[side]!.trim();
  const { system } = settings.value;
  return {
    ...settingFields(settings.value, traitsOf(model)),
    model,
    messages: [
      ...(system.trim() === "" ? [] : [{ role: "system", content: system }]),
      ...messagesOf(earlier, side, message),
    ],
    stream: true,
    stream_options: { include_usage: true },
  };
}

/** Returns the messages of a side. After tool calls the next message has the results of the tools. */
function messagesOf(earlier: readonly Turn[], side: number, next: Message): object[] {
  const messages: object[] = [];
  let openCallIds: readonly string[] = [];
  const messagesFor = ({ text, attachments: files, results }: Message) =>
    openCallIds.length === 0
      ? [{ role: "user", content: contentOf(text, files) }]
      : openCallIds.map((id) => ({ role: "tool", tool_call_id: id, content: results[id] ?? text }));
  for (const turn of earlier) {
    const { phase, text: answerText, toolCalls } = turn.answers[side]?.state.value ?? {};
    const isCalling = phase === "done" && toolCalls !== undefined && toolCalls.length > 0;
    // Skips messages without an answer, because models expect an answer after each message.
    if (!answerText && !isCalling) continue;
    messages.push(...messagesFor(turn));
    messages.push({
      role: "assistant",
      content: answerText || null,
      ...(isCalling && { tool_calls: toolCalls }),
    });
    openCallIds = isCalling ? toolCalls.map(({ id }) => id) : [];
  }
  return [...messages, ...messagesFor(next)];
}

/** A conversation as the history of the browser stores it. */
export interface StoredConversation {
  readonly id: string;
  readonly sides: readonly string[];
  readonly settings: Settings;
  readonly turns: readonly (Message & {
    readonly answers: readonly (StoredAnswer | null)[];
  })[];
}

interface StoredAnswer {
  readonly model: string;
  readonly state: AnswerState;
}

/** Returns the conversation for the history. An answer that still streams is stored as a stopped one. */
export function storedConversation(): StoredConversation {
  return {
    id: conversationId.peek(),
    sides: sides.peek(),
    settings: settings.peek(),
    turns: turns.peek().map(({ answers, ...message }) => ({
      ...message,
      answers: answers.map((answer) => {
        if (answer === undefined) return null;
        const { error: _, ...state } = answer.state.peek();
        const phase = ["waiting", "streaming", "failed"].includes(state.phase)
          ? "stopped"
          : state.phase;
        return { model: answer.model, state: { ...state, phase } };
      }),
    })),
  };
}

/** Shows a conversation of the history. */
export function restore(stored: StoredConversation): void {
  clear();
  conversationId.value = stored.id;
  sides.value = stored.sides;
  settings.value = { ...NO_SETTINGS, ...stored.settings };
  turns.value = stored.turns.map(({ answers, ...message }) => ({
    ...message,
    answers: answers.map((answer) =>
      answer === null ? undefined : new Answer({ model: answer.model }, answer.state),
    ),
  }));
}
