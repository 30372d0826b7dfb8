import type { JsonLine } from "../../../lib/json-line-reader.ts";
import { readMessages } from "../request.ts";
import { countTokens } from "../tokens.ts";
import {
  type LearnedAnswer,
  MAX_LEARNED_ANSWERS,
  MAX_LEARNED_CHARACTERS,
} from "./learned-answers.ts";

export interface Lesson {
  readonly learned: readonly LearnedAnswer[];
  /** Tokens of all examples, those beyond what is kept included. */
  readonly tokens: number;
}

/** Reads a training file: each answer of an assistant is learned as that to what was said last before it. */
export async function learn(lines: AsyncIterable<JsonLine>): Promise<Lesson> {
  const learned: LearnedAnswer[] = [];
  let keptCharacters = 0;
  let tokens = 0;
  for await (const { value } of lines) {
    let prompt = "";
    for (const message of readMessages((value as { messages?: unknown } | null)?.messages)) {
      tokens += countTokens(message.text);
      if (message.role !== "assistant") {
        if (message.role === "user") prompt = message.text;
        continue;
      }
      const characters = prompt.length + message.text.length;
      const hasRoom =
        learned.length < MAX_LEARNED_ANSWERS &&
        keptCharacters + characters <= MAX_LEARNED_CHARACTERS;
      if (message.text === "" || prompt === "" || !hasRoom) continue;
      keptCharacters += characters;
      learned.push({ prompt, answer: message.text });
    }
  }
  return { learned, tokens };
}
