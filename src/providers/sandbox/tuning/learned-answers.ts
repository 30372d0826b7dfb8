import type { JsonLine } from "../../../lib/json-line-reader.ts";
import { readMessages } from "../request.ts";
import { countTokens } from "../tokens.ts";

/** One example of a training file. */
export interface LearnedAnswer {
  readonly prompt: string;
  readonly answer: string;
}

/** Bounds of what is learned from one file, which is held in the database and in memory. */
export const MAX_LEARNED_ANSWERS = 2_000;
export const MAX_LEARNED_CHARACTERS = 1_000_000;

const WORD = /[\p{L}\p{M}\p{N}]{1,64}/gu;

/**
 * Answers a prompt of the training file with its answer, and any other with the answer of the prompt that
 * shares the largest part of its words; undefined if none shares a word.
 */
export class LearnedAnswers {
  readonly #learned: readonly LearnedAnswer[];
  readonly #byPrompt: ReadonlyMap<string, string>;
  #wordSets: readonly ReadonlySet<string>[] | undefined;

  constructor(learned: readonly LearnedAnswer[]) {
    this.#learned = learned;
    // Of two answers to one prompt the later one counts, as it would after a training.
    this.#byPrompt = new Map(learned.map(({ prompt, answer }) => [normal(prompt), answer]));
  }

  /** What it was made of. */
  get learned(): readonly LearnedAnswer[] {
    return this.#learned;
  }

  answerTo(prompt: string): string | undefined {
    return this.#byPrompt.get(normal(prompt)) ?? this.#nearest(prompt);
  }

  #nearest(prompt: string): string | undefined {
    this.#wordSets ??= this.#learned.map((known) => wordsOf(known.prompt));
    const asked = wordsOf(prompt);
    let best: string | undefined;
    let bestShare = 0;
    for (const [index, known] of this.#wordSets.entries()) {
      const share = sharedPart(asked, known);
      if (share <= bestShare) continue;
      bestShare = share;
      best = this.#byPrompt.get(normal(this.#learned[index]!.prompt));
    }
    return best;
  }
}

/** The share of words in both among those in either (Jaccard index). */
function sharedPart(asked: ReadonlySet<string>, known: ReadonlySet<string>): number {
  let shared = 0;
  for (const word of known) if (asked.has(word)) shared++;
  return shared === 0 ? 0 : shared / (asked.size + known.size - shared);
}

function wordsOf(text: string): Set<string> {
  return new Set(normal(text).match(WORD) ?? []);
}

function normal(text: string): string {
  return text.normalize("NFKC").toLowerCase().trim();
}

interface Lesson {
  readonly learned: readonly LearnedAnswer[];
  /** Tokens of all examples, including those beyond the bounds. */
  readonly tokens: number;
}

/** Learns each assistant message of a training file as the answer to the user message before it. */
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
      const fits =
        learned.length < MAX_LEARNED_ANSWERS &&
        keptCharacters + characters <= MAX_LEARNED_CHARACTERS;
      if (message.text === "" || prompt === "" || !fits) continue;
      keptCharacters += characters;
      learned.push({ prompt, answer: message.text });
    }
  }
  return { learned, tokens };
}
