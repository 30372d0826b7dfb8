import { countTokensUpTo } from "../../../lib/token-count.ts";
import { tokensOfBytes } from "../../../lib/token-estimate.ts";
import type { ChatMessage, ChatRequest, ContentPart } from "./request.ts";

/** Estimated tokens of an image or a document. Their bytes say little about their tokens. */
const TOKENS_OF_MEDIUM = 1_000;
/** Tokens that chat templates add to each message. */
const TOKENS_AROUND_MESSAGE = 4;
/**
 * Maximum characters of a prompt that are counted. The rest is estimated from its bytes, because counting it would
 * take seconds.
 */
const MAX_COUNTED_CHARACTERS = 2_000_000;

/**
 * Returns the approximate number of prompt tokens, for models whose provider cannot count them. Runs in a
 * work thread.
 */
export async function countChatTokens(request: ChatRequest): Promise<number> {
  const { messages, tools, response_format: format } = request;
  const texts: string[] = [];
  let media = 0;
  for (const message of messages) media += addTexts(message, texts);
  for (const value of [tools, format]) if (value !== undefined) texts.push(JSON.stringify(value));
  const prompt = texts.join("\n");
  const counted = prompt.slice(0, MAX_COUNTED_CHARACTERS);
  const rest = tokensOfBytes(Buffer.byteLength(prompt.slice(MAX_COUNTED_CHARACTERS)));
  const tokens = await countTokensUpTo(counted, Number.POSITIVE_INFINITY);
  return tokens + rest + media * TOKENS_OF_MEDIUM + messages.length * TOKENS_AROUND_MESSAGE;
}

/** Adds the texts of a message to `texts` and returns the number of its media parts. */
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
