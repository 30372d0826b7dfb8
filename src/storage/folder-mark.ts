import { link, mkdir, open, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { newId } from "../lib/ids.ts";
import { StorageError } from "./interface.ts";

/** What the database knows of the folder in which its files lie. */
export interface KnownFolder {
  /** Its id; undefined before the first file. */
  read(): Promise<string | undefined>;
  /** Makes it this one where there is none yet; resolves with the one that counts. */
  claim(id: string): Promise<string>;
}

const NAME = ".storage-id";
const MAX_ID_CHARACTERS = 80;
const FOLDER_MODE = 0o700;
const FILE_MODE = 0o600;

/**
 * Tells the folder with a database's files from any other: it bears an id that the database knows. Two
 * instances with folders of their own, a disk that is not mounted, or a database restored beside an empty
 * folder would otherwise look like lost files; and what is removed in the wrong folder stays in the right
 * one. The folder is marked before the database learns of it, so that instances which begin at once in a
 * shared folder all claim the same id, and of those in folders of their own one.
 *
 * What lies in another folder is not found there, which is said; new files can be kept in it all the same,
 * unless it has taken the place of the right one under a running process.
 */
export class FolderMark {
  readonly #root: string;
  readonly #database: KnownFolder;
  #known: string | undefined;
  #wasOurs = false;

  constructor(root: string, database: KnownFolder) {
    this.#root = root;
    this.#database = database;
  }

  /** Throws StorageError where the database's files lie in another folder. */
  async assertOurs(): Promise<void> {
    this.#known ??= await this.#database.read();
    if (this.#known !== undefined) await this.#assertMark(this.#known);
  }

  /**
   * Before something is written: the first folder is the database's. Throws StorageError where it was this
   * one, and is not here any more.
   */
  async claim(): Promise<void> {
    this.#known ??= await this.#database.read();
    this.#known ??= await this.#database.claim(await this.#mark());
    try {
      await this.#assertMark(this.#known);
    } catch (error) {
      if (this.#wasOurs) throw error;
    }
  }

  async #assertMark(known: string): Promise<void> {
    const mark = await readFolderMark(this.#root);
    if (mark !== known) throw new StorageError(wrongFolder(this.#root, mark, known));
    this.#wasOurs = true;
  }

  /** The id that the folder bears, or bears from now on. */
  async #mark(): Promise<string> {
    const found = await readFolderMark(this.#root);
    if (found !== undefined) return found;
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

/** The id that a folder bears; undefined where it bears none. Throws StorageError. */
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

/** One line: what is wrong, and the ways out. */
export function wrongFolder(root: string, mark: string | undefined, known: string): string {
  const bears = mark === undefined ? "bears no id" : `bears the id ${mark}`;
  return `${root} is not the folder in which the database's files lie: it ${bears}, theirs is ${known}. Share that folder among all instances, or set S3_BUCKET; if the files were moved here, or are lost, put ${known} into ${join(root, NAME)}`;
}

/** Writes a file whole or not at all, unless somebody else has. */
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
    // Some network file systems have no links; two that begin at once there may part, and are then told.
    await rename(unfinished, path);
  } finally {
    await rm(unfinished, { force: true });
  }
}
