import {
  loopPauses,
  MAX_QUICK_LINE_BYTES,
  parseJsonLine,
  type RawLine,
} from "../../lib/json-lines.ts";
import { decodeShared, type SharedBytes, sharedCopy } from "../../lib/shared-bytes.ts";
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

export interface Lesson {
  readonly learned: readonly LearnedAnswer[];
  /** Tokens of all examples, including those beyond the bounds. */
  readonly tokens: number;
}

/** What a work thread is asked about a line that would hold the event loop. */
export interface LearnLineCall {
  readonly kind: "sandbox.learn-line";
  readonly line: number;
  readonly bytes: SharedBytes;
}

/**
 * Learns each assistant message of a training file as the answer to the user message before it. Throws
 * JsonLineError for what is no JSON.
 *
 * @param learnLong has a work thread learn from a long line
 */
export async function learn(
  lines: AsyncIterable<RawLine>,
  learnLong: (call: LearnLineCall) => Promise<Lesson>,
): Promise<Lesson> {
  const lesson = new GrowingLesson();
  const pause = loopPauses();
  for await (const { line, bytes } of lines) {
    await pause();
    if (bytes.length <= MAX_QUICK_LINE_BYTES) {
      const decoder = new TextDecoder("utf-8", { fatal: true });
      lesson.add(learnLine(line, () => decoder.decode(bytes)));
    } else {
      const call = { kind: "sandbox.learn-line", line, bytes: sharedCopy(bytes) } as const;
      lesson.add(await learnLong(call));
    }
  }
  return lesson;
}

export function learnLongLine({ line, bytes }: LearnLineCall): Lesson {
  const { learned, tokens } = learnLine(line, () => decodeShared(bytes));
  return { learned, tokens };
}

function learnLine(line: number, decode: () => string): Lesson {
  const lesson = new GrowingLesson();
  const value = parseJsonLine(line, decode) as { messages?: unknown } | null | undefined;
  let prompt = "";
  for (const message of readMessages(value?.messages)) {
    lesson.tokens += countTokens(message.text);
    if (message.role === "user") prompt = message.text;
    else if (message.role === "assistant") lesson.keep({ prompt, answer: message.text });
  }
  return lesson;
}

class GrowingLesson implements Lesson {
  readonly learned: LearnedAnswer[] = [];
  tokens = 0;
  #characters = 0;

  add({ learned, tokens }: Lesson): void {
    this.tokens += tokens;
    for (const one of learned) this.keep(one);
  }

  /** Keeps an answer that fits the bounds and is one. */
  keep(one: LearnedAnswer): void {
    const { prompt, answer } = one;
    const characters = this.#characters + prompt.length + answer.length;
    const fits = this.learned.length < MAX_LEARNED_ANSWERS && characters <= MAX_LEARNED_CHARACTERS;
    if (answer === "" || prompt === "" || !fits) return;
    this.#characters = characters;
    this.learned.push(one);
  }
}
