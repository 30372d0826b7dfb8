import { countTokensUpTo } from "../../../lib/token-count.ts";
import { tokensOfBytes } from "../../../lib/token-estimate.ts";
import type { ChatMessage, ChatRequest, ContentPart } from "./request.ts";

/** What an image or a document comes to about: its bytes say little of its tokens. */
const TOKENS_OF_MEDIUM = 1_000;
/** What chat templates put around a message. */
const TOKENS_AROUND_MESSAGE = 4;
/** Of a longer prompt the rest is estimated from its bytes: counting it would take seconds. */
const MAX_COUNTED_CHARACTERS = 2_000_000;

/** In a work thread: about how many tokens the prompt has for a model whose provider cannot be asked. */
export async function countChatTokens(request: ChatRequest): Promise<number> {
  const { messages, tools, response_format: format } = request;
  const texts: string[] = [];
  let media = 0;
  for (const message of messages) media += addTexts(message, texts);
  for (const other of [tools, format]) if (other !== undefined) texts.push(JSON.stringify(other));
  const prompt = texts.join("\n");
  const counted = prompt.slice(0, MAX_COUNTED_CHARACTERS);
  const rest = tokensOfBytes(Buffer.byteLength(prompt.slice(MAX_COUNTED_CHARACTERS)));
  const tokens = await countTokensUpTo(counted, Number.POSITIVE_INFINITY);
  return tokens + rest + media * TOKENS_OF_MEDIUM + messages.length * TOKENS_AROUND_MESSAGE;
}

/** Adds what a message says, and returns how many media it brings. */
function addTexts(message: ChatMessage, texts: string[]): number {
  const { content, tool_calls: calls, reasoning } = message;
  let media = 0;
  if (typeof content === "string") texts.push(content);
  for (const part of Array.isArray(content) ? (content as ContentPart[]) : []) {
    if (part.text === undefined) media++;
    else texts.push(part.text);
  }
  if (calls !== undefined) texts.push(JSON.stringify(calls));
  if (typeof reasoning === "string") texts.push(reasoning);
  return media;
}
