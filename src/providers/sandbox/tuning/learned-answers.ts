/** One thing that a training file taught: what was said, and what the assistant is to answer. */
export interface LearnedAnswer {
  readonly prompt: string;
  readonly answer: string;
}

/** Beyond these a file teaches nothing more: what was learned is kept in the database and in memory. */
export const MAX_LEARNED_ANSWERS = 2_000;
export const MAX_LEARNED_CHARACTERS = 1_000_000;

const WORD = /[\p{L}\p{M}\p{N}]{1,64}/gu;

/**
 * Answers from what was learned: a prompt of the file with its answer, another with the answer of the
 * prompt that shares the largest part of its words. Undefined where it shares none.
 */
export class LearnedAnswers {
  readonly #learned: readonly LearnedAnswer[];
  readonly #byPrompt: ReadonlyMap<string, string>;
  #wordSets: readonly ReadonlySet<string>[] | undefined;

  constructor(learned: readonly LearnedAnswer[]) {
    this.#learned = learned;
    // Of two answers to one prompt the later stands, as the later one would have been trained last.
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

/** Of all words in either, the part that is in both (Jaccard's index). */
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
