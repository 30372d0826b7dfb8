import type { Database } from "../../../db/client.ts";
import { readSandboxLearned } from "../../../db/queries/sandbox-tunings.ts";
import type { LearnedAnswer } from "./learned-answers.ts";

/** Maximum number of cached models. Each can occupy a megabyte of text and its words. */
const MAX_MODELS_IN_MEMORY = 16;
const MARK = ":ft:";

/** Returns the name of a tuned model. */
export function tunedModelName(base: string, tuningId: string): string {
  return `${base}${MARK}${tuningId}`;
}

/** Returns the base model and the training in a tuned model's name. Returns undefined for another name. */
export function partsOfTunedName(name: string): { base: string; tuningId: string } | undefined {
  const mark = name.indexOf(MARK);
  if (mark === -1) return undefined;
  return { base: name.slice(0, mark), tuningId: name.slice(mark + MARK.length) };
}

/** Reads the learned answers of the sandbox's tuned models from the database. */
export class SandboxTunedModels {
  readonly #sql: Database;
  /**
   * Learned answers by training id, least recently used first. Never stale, because they do not change until
   * they are deleted.
   */
  readonly #cache = new Map<string, readonly LearnedAnswer[]>();

  constructor(sql: Database) {
    this.#sql = sql;
  }

  /** Returns the learned answers of a model, or undefined if there is no such model. */
  async find(tuningId: string): Promise<readonly LearnedAnswer[] | undefined> {
    const answers = this.#cache.get(tuningId) ?? (await this.#read(tuningId));
    if (answers === undefined) return undefined;
    this.#cache.delete(tuningId);
    this.#cache.set(tuningId, answers);
    for (const oldest of this.#cache.keys()) {
      if (this.#cache.size <= MAX_MODELS_IN_MEMORY) break;
      this.#cache.delete(oldest);
    }
    return answers;
  }

  forget(tuningId: string): void {
    this.#cache.delete(tuningId);
  }

  async #read(tuningId: string): Promise<readonly LearnedAnswer[] | undefined> {
    const json = await readSandboxLearned(this.#sql, tuningId);
    return json === undefined ? undefined : JSON.parse(json);
  }
}
