import { saidWithoutContent } from "../files/check-chat-line.ts";

type Fields = Readonly<Record<string, unknown>>;

const ROLES = new Set(["system", "developer", "user", "assistant", "tool", "function"]);
const SHOWN_CHARACTERS = 40;

/** A training example as it is counted. */
export interface Example {
  readonly messages: number;
  /** Everything in it that a model reads. */
  readonly texts: readonly string[];
}

/** Reads one line of a training file (spec 4.10); a text says what is wrong with it. */
export function readExample(value: unknown): Example | string {
  if (!isFields(value)) return "is no object";
  const { messages } = value;
  if (!Array.isArray(messages) || messages.length === 0) return 'has no list of "messages"';
  const texts: string[] = [];
  let hasAnswer = false;
  for (const [index, message] of messages.entries()) {
    const fault = readMessage(message, texts);
    if (fault !== undefined) return `has a message (${index + 1}) that ${fault}`;
    hasAnswer ||= (message as Fields).role === "assistant";
  }
  if (!hasAnswer) return "has no message of the assistant, which is what is trained";
  if (value.tools !== undefined && value.tools !== null) texts.push(JSON.stringify(value.tools));
  return { messages: messages.length, texts };
}

function readMessage(message: unknown, texts: string[]): string | undefined {
  if (!isFields(message)) return "is no object";
  const { role, content } = message;
  if (typeof role !== "string" || !ROLES.has(role)) {
    const shown = JSON.stringify(role)?.slice(0, SHOWN_CHARACTERS) ?? "no role";
    return `has the role ${shown}, which is none`;
  }
  const otherwise = saidWithoutContent(message);
  for (const said of otherwise) texts.push(JSON.stringify(said));
  if (typeof content === "string") texts.push(content);
  else if (Array.isArray(content)) texts.push(JSON.stringify(content));
  else if (content !== undefined && content !== null) return "has a content that is no text";
  else if (role !== "assistant" || otherwise.length === 0) return "has no content";
  return undefined;
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
