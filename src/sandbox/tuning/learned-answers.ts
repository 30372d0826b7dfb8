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

/** Limits for the answers of one file, which are stored in the database and in memory. */
export const MAX_LEARNED_ANSWERS = 2_000;
export const MAX_LEARNED_CHARACTERS = 1_000_000;

const WORD = /[\p{L}\p{M}\p{N}]{1,64}/gu;

/**
 * Answers to prompts. A prompt of the training file gets its answer. Any other prompt gets the answer of the
 * prompt that shares the largest part of its words. Undefined if no prompt shares a word.
 */
export class LearnedAnswers {
  readonly #learned: readonly LearnedAnswer[];
  readonly #byPrompt: ReadonlyMap<string, string>;
  #wordSets: readonly ReadonlySet<string>[] | undefined;

  constructor(learned: readonly LearnedAnswer[]) {
    this.#learned = learned;
    // If a prompt has two answers, the later one wins, as in a real training.
    this.#byPrompt = new Map(learned.map(({ prompt, answer }) => [normal(prompt), answer]));
  }

  answerTo(prompt: string): string | undefined {
    return this.#byPrompt.get(normal(prompt)) ?? this.#nearest(prompt);
  }

  #nearest(prompt: string): string | undefined {
    this.#wordSets ??= this.#learned.map(({ prompt }) => wordsOf(prompt));
    const promptWords = wordsOf(prompt);
    let best: string | undefined;
    let bestShare = 0;
    for (const [index, learnedWords] of this.#wordSets.entries()) {
      const share = sharedPart(promptWords, learnedWords);
      if (share <= bestShare) continue;
      bestShare = share;
      best = this.#byPrompt.get(normal(this.#learned[index]!.prompt));
    }
    return best;
  }
}

/** Returns the share of common words among all words of both sets (Jaccard index). */
function sharedPart(left: ReadonlySet<string>, right: ReadonlySet<string>): number {
  let shared = 0;
  for (const word of right) if (left.has(word)) shared++;
  return shared === 0 ? 0 : shared / (left.size + right.size - shared);
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

/** A message to a worker thread: a line that would block the event loop. */
export interface LearnLineCall {
  readonly kind: "sandbox.learn-line";
  readonly line: number;
  readonly bytes: SharedBytes;
}

/**
 * Learns each assistant message of a training file as the answer to the user message before it. Throws
 * JsonLineError for a line that is not JSON.
 *
 * @param learnLong lets a worker thread learn from a long line
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
    else if (message.role === "assistant") lesson.addAnswer({ prompt, answer: message.text });
  }
  return lesson;
}

class GrowingLesson implements Lesson {
  readonly learned: LearnedAnswer[] = [];
  tokens = 0;
  #characters = 0;

  add({ learned, tokens }: Lesson): void {
    this.tokens += tokens;
    for (const answer of learned) this.addAnswer(answer);
  }

  /** Adds an answer unless it is empty or exceeds the limits. */
  addAnswer(learned: LearnedAnswer): void {
    const { prompt, answer } = learned;
    const characters = this.#characters + prompt.length + answer.length;
    const fits = this.learned.length < MAX_LEARNED_ANSWERS && characters <= MAX_LEARNED_CHARACTERS;
    if (answer === "" || prompt === "" || !fits) return;
    this.#characters = characters;
    this.learned.push(learned);
  }
}
