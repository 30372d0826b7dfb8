import {
  appendFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  unlinkSync,
} from "node:fs";
import { join } from "node:path";

const SUFFIX = ".jsonl";

/** Notes of an earlier process. */
export interface LeftNotes<Note> {
  /** As its file was named. */
  readonly name: string;
  readonly notes: readonly Note[];
  readonly writtenAtMs: number;
  discard(): void;
}

/**
 * Notes that outlive the process that takes them: each is in the file when `add` returns, and there until
 * the last of them is removed. A kill loses none; a machine that loses its power may lose the latest.
 */
export class NoteFile<Note> {
  readonly #folder: string;
  readonly #name: string;
  readonly #open = new Set<string>();

  constructor(folder: string, name: string) {
    this.#folder = folder;
    this.#name = name;
  }

  /** Throws where the disk refuses it. */
  add(id: string, note: Note): void {
    if (this.#open.has(id)) return;
    if (this.#open.size === 0) mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    appendFileSync(this.#path, `${JSON.stringify(note)}\n`, { mode: 0o600 });
    this.#open.add(id);
  }

  /** Nobody needs it any more. */
  remove(id: string): void {
    if (this.#open.delete(id) && this.#open.size === 0) unlinkSync(this.#path);
  }

  /** Notes in the files of others. */
  left(): LeftNotes<Note>[] {
    const own = `${this.#name}${SUFFIX}`;
    return namesIn(this.#folder)
      .filter((file) => file.endsWith(SUFFIX) && file !== own)
      .flatMap((file) => {
        const path = join(this.#folder, file);
        try {
          const left: LeftNotes<Note> = {
            name: file.slice(0, -SUFFIX.length),
            notes: notesOf<Note>(readFileSync(path, "utf8")),
            writtenAtMs: statSync(path).mtimeMs,
            discard: () => rmSync(path, { force: true }),
          };
          return [left];
        } catch (error) {
          // Its owner, or another process of the folder, has removed it meanwhile.
          if ((error as { code?: string }).code === "ENOENT") return [];
          throw error;
        }
      });
  }

  get #path(): string {
    return join(this.#folder, `${this.#name}${SUFFIX}`);
  }
}

/** A line that was cut off, or lost with the power of its machine, is none. */
function notesOf<Note>(text: string): Note[] {
  return text.split("\n").flatMap((line) => {
    try {
      return [JSON.parse(line) as Note];
    } catch {
      return [];
    }
  });
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    if ((error as { code?: string }).code === "ENOENT") return [];
    throw error;
  }
}
