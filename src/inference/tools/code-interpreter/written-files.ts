import type { NamedFile } from "./frames.ts";
import { WORK_FOLDER } from "./python-text.ts";

/** The used part of Pyodide's file system, which is in memory. */
export interface FileSystem {
  readdir(path: string): string[];
  lstat(path: string): { readonly mode: number; readonly size: number; readonly mtime: Date };
  isDir(mode: number): boolean;
  isFile(mode: number): boolean;
  readFile(path: string): Uint8Array;
  writeFile(path: string, bytes: Uint8Array): void;
}

const PICTURE = /\.(?:png|jpe?g|gif|webp)$/i;
const MAX_PICTURES = 8;
/** Maximum number of entries that are checked after a run. A program can create any number. */
const MAX_ENTRIES = 1_000;

/** Tracks the files of the work folder: given files, and files that a run has written. */
export class WrittenFiles {
  readonly #files: FileSystem;
  readonly #maxPictureBytes: number;
  /** Time and size of each file after the last run. */
  readonly #states = new Map<string, string>();

  constructor(files: FileSystem, maxPictureBytes: number) {
    this.#files = files;
    this.#maxPictureBytes = maxPictureBytes;
  }

  add({ name, bytes }: NamedFile): void {
    const path = `${WORK_FOLDER}/${name}`;
    this.#files.writeFile(path, bytes);
    this.#states.set(path, stateOf(this.#files.lstat(path)));
  }

  /** Returns the files that the last run has written: pictures with their bytes, and the names of other files. */
  collect(): { readonly pictures: readonly NamedFile[]; readonly others: readonly string[] } {
    const pictures: NamedFile[] = [];
    const others: string[] = [];
    let bytes = 0;
    for (const { path, size } of this.#changed()) {
      const name = path.slice(WORK_FOLDER.length + 1);
      const isPicture = PICTURE.test(path) && pictures.length < MAX_PICTURES;
      if (isPicture && bytes + size <= this.#maxPictureBytes) {
        bytes += size;
        pictures.push({ name, bytes: this.#files.readFile(path) });
      } else others.push(`${name} (${size} bytes)`);
    }
    return { pictures, others };
  }

  #changed(): { readonly path: string; readonly size: number }[] {
    const changed: { path: string; size: number }[] = [];
    const folders = [WORK_FOLDER];
    let entries = 0;
    for (let folder = folders.shift(); folder !== undefined; folder = folders.shift()) {
      for (const name of this.#files.readdir(folder).sort()) {
        if (name === "." || name === "..") continue;
        entries += 1;
        if (entries > MAX_ENTRIES) return changed;
        const path = `${folder}/${name}`;
        const status = this.#files.lstat(path);
        if (this.#files.isDir(status.mode)) folders.push(path);
        if (!this.#files.isFile(status.mode)) continue;
        if (this.#states.get(path) !== stateOf(status)) changed.push({ path, size: status.size });
        this.#states.set(path, stateOf(status));
      }
    }
    return changed;
  }
}

function stateOf({ mtime, size }: { readonly mtime: Date; readonly size: number }): string {
  return `${mtime.getTime()} ${size}`;
}
