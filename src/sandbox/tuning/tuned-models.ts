import type { Database } from "../../../db/client.ts";
import { readSandboxLearned } from "../../../db/queries/sandbox-tunings.ts";
import type { LearnedAnswer } from "./learned-answers.ts";

/** Each can hold a megabyte of text and its words. */
const MAX_MODELS_IN_MEMORY = 16;
const MARK = ":ft:";

/** The name of a tuned model. */
export function tunedModelName(base: string, tuningId: string): string {
  return `${base}${MARK}${tuningId}`;
}

/** The base model and the training in a tuned model's name; undefined for another name. */
export function partsOfTunedName(name: string): { base: string; tuningId: string } | undefined {
  const mark = name.indexOf(MARK);
  if (mark === -1) return undefined;
  return { base: name.slice(0, mark), tuningId: name.slice(mark + MARK.length) };
}

/** Reads from the database what the sandbox's tuned models have learned. */
export class SandboxTunedModels {
  readonly #sql: Database;
  /** Least recently used first. Never stale: what was learned does not change until it is deleted. */
  readonly #known = new Map<string, readonly LearnedAnswer[]>();

  constructor(sql: Database) {
    this.#sql = sql;
  }

  /** Undefined if there is no such model. */
  async find(tuningId: string): Promise<readonly LearnedAnswer[] | undefined> {
    const known = this.#known.get(tuningId) ?? (await this.#read(tuningId));
    if (known === undefined) return undefined;
    this.#known.delete(tuningId);
    this.#known.set(tuningId, known);
    for (const oldest of this.#known.keys()) {
      if (this.#known.size <= MAX_MODELS_IN_MEMORY) break;
      this.#known.delete(oldest);
    }
    return known;
  }

  forget(tuningId: string): void {
    this.#known.delete(tuningId);
  }

  async #read(tuningId: string): Promise<readonly LearnedAnswer[] | undefined> {
    const json = await readSandboxLearned(this.#sql, tuningId);
    return json === undefined ? undefined : JSON.parse(json);
  }
}
