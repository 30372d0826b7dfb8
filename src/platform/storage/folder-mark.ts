import { link, mkdir, open, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { newId } from "../../lib/ids.ts";
import { StorageError } from "./interface.ts";

/** The id of the folder with the files, as recorded in the database. */
export interface KnownFolder {
  /** Resolves with the recorded id, or undefined before the first file. */
  read(): Promise<string | undefined>;
  /** Records this id if there is none yet. Resolves with the recorded id. */
  claim(id: string): Promise<string>;
}

const NAME = ".storage-id";
const MAX_ID_CHARACTERS = 80;
const FOLDER_MODE = 0o700;
const FILE_MODE = 0o600;

/**
 * Recognises the folder with a database's files by an id in it that the database records. Without
 * it, two instances with separate folders, an unmounted disk, or a database restored next to an
 * empty folder would look like lost files. A removal in the wrong folder would leave the file in
 * the right one. The id is written to the folder before it is recorded. Instances that start at the
 * same time in a shared folder then claim the same id, and of instances with separate folders one
 * wins.
 *
 * In a wrong folder, reads and removals fail with the reason. New files can be written to it,
 * unless this process has seen the right folder at that path before.
 */
export class FolderMark {
  readonly #root: string;
  readonly #database: KnownFolder;
  #recordedId: string | undefined;
  #wasOurs = false;

  constructor(root: string, database: KnownFolder) {
    this.#root = root;
    this.#database = database;
  }

  /** Checks the folder. Throws StorageError if the database's files are in another folder. */
  async assertOurs(): Promise<void> {
    this.#recordedId ??= await this.#database.read();
    if (this.#recordedId !== undefined) await this.#assertMark(this.#recordedId);
  }

  /**
   * Records this folder if the database has none yet. To be called before a write. Throws
   * StorageError if this was the right folder and no longer is.
   */
  async claim(): Promise<void> {
    this.#recordedId ??= await this.#database.read();
    this.#recordedId ??= await this.#database.claim(await this.#mark());
    try {
      await this.#assertMark(this.#recordedId);
    } catch (error) {
      if (this.#wasOurs) throw error;
    }
  }

  async #assertMark(recordedId: string): Promise<void> {
    const mark = await readFolderMark(this.#root);
    if (mark !== recordedId) throw new StorageError(wrongFolder(this.#root, mark, recordedId));
    this.#wasOurs = true;
  }

  /** Returns the id in the folder. Writes an id if there is none. */
  async #mark(): Promise<string> {
    const existing = await readFolderMark(this.#root);
    if (existing !== undefined) return existing;
    const id = newId("sto");
    try {
      await mkdir(this.#root, { recursive: true, mode: FOLDER_MODE });
      await writeOnce(join(this.#root, NAME), id);
    } catch (error) {
      throw new StorageError("cannot mark the folder of stored files", error);
    }
    return (await readFolderMark(this.#root)) ?? id;
  }
}

/** Returns the id in a folder, or undefined if there is none. Throws StorageError. */
export async function readFolderMark(root: string): Promise<string | undefined> {
  try {
    const text = await readFile(join(root, NAME), "utf8");
    return text.trim().slice(0, MAX_ID_CHARACTERS) || undefined;
  } catch (error) {
    const { code } = error as { code?: unknown };
    if (code === "ENOENT" || code === "ENOTDIR") return undefined;
    throw new StorageError("cannot read the mark of the folder of stored files", error);
  }
}

/** Returns the one-line message about a wrong folder, with the remedy. */
export function wrongFolder(root: string, mark: string | undefined, recordedId: string): string {
  const state = mark === undefined ? "has no id" : `has the id ${mark}`;
  return `${root} is not the folder of the database's files: it ${state}, but theirs has the id ${recordedId}. Share that folder among all instances, or set S3_BUCKET; if the files were moved here, or are lost, write ${recordedId} to ${join(root, NAME)}`;
}

/** Creates a file atomically, unless it exists. */
async function writeOnce(path: string, text: string): Promise<void> {
  const unfinished = `${path}.${crypto.randomUUID()}`;
  const file = await open(unfinished, "wx", FILE_MODE);
  try {
    await file.writeFile(`${text}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  try {
    await link(unfinished, path);
  } catch (error) {
    const { code } = error as { code?: unknown };
    if (code === "EEXIST") return;
    // Some network file systems have no links. Two instances that start there at the same time can
    // write different ids; the one whose id was replaced then gets the error of a wrong folder.
    await rename(unfinished, path);
  } finally {
    await rm(unfinished, { force: true });
  }
}
