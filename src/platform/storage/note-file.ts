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

/** The notes that another process left in its file. */
export interface LeftNotes<Note> {
  /** The name of the process's file, without suffix. */
  readonly name: string;
  readonly notes: readonly Note[];
  readonly writtenAtMs: number;
  discard(): void;
}

/**
 * Notes that outlive their process. `add` returns after the note is in the file, and the file is deleted
 * with its last note. A kill loses no note; a power failure may lose the latest ones, as nothing is synced.
 */
export class NoteFile<Note> {
  readonly #folder: string;
  readonly #name: string;
  readonly #open = new Set<string>();

  constructor(folder: string, name: string) {
    this.#folder = folder;
    this.#name = name;
  }

  /** Adds a note. Throws if the file cannot be written. */
  add(id: string, note: Note): void {
    if (this.#open.has(id)) return;
    if (this.#open.size === 0) mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    appendFileSync(this.#path, `${JSON.stringify(note)}\n`, { mode: 0o600 });
    this.#open.add(id);
  }

  remove(id: string): void {
    if (this.#open.delete(id) && this.#open.size === 0) unlinkSync(this.#path);
  }

  /** Returns the notes in the files of other processes. */
  left(): LeftNotes<Note>[] {
    const currentFile = `${this.#name}${SUFFIX}`;
    return namesIn(this.#folder)
      .filter((file) => file.endsWith(SUFFIX) && file !== currentFile)
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
          // Its owner or another reader has removed the file in the meantime.
          if ((error as { code?: string }).code === "ENOENT") return [];
          throw error;
        }
      });
  }

  get #path(): string {
    return join(this.#folder, `${this.#name}${SUFFIX}`);
  }
}

/** Returns the notes of a file. Skips lines that a crash has cut off. */
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
