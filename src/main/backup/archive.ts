import type { AppliedMigration } from "../../../db/migrate.ts";
import type { CopiedTable, SequenceState } from "../../../db/queries/table-copies.ts";

/*
 * An archive is a tar file of zstd pieces and JSON, with one line after the end of the tar:
 *
 *   head.json                          Head: facts that a restore needs first
 *   tables/<table>/<number>.zst        rows in the format of COPY, cut anywhere; a table follows those it refers to
 *   tables/<table>/end.json            Ending: size and digest of the pieces together
 *   files/<storage key>/<number>.zst   bytes of a stored file
 *   files/<storage key>/end.json
 *   manifest.json                      Manifest: the list of contents
 *
 * The line has the SHA-256 of everything before it. So a changed or truncated archive is detected before anything is
 * restored.
 */

export const FORMAT = 1;
/** Bytes of a piece of a table or file, before compression. */
export const PIECE_BYTES = 2 * 1024 * 1024;
/** Bytes of one member. Above the size of a piece, because zstd makes incompressible data a little longer. */
export const MAX_MEMBER_BYTES = 64 * 1024 * 1024;

export interface Head {
  readonly format: number;
  /** Version of the gateway that made the archive. */
  readonly version: string;
  readonly createdAt: string;
  readonly postgres: string;
  readonly migrations: readonly AppliedMigration[];
  readonly tables: readonly CopiedTable[];
  readonly hasFiles: boolean;
  /** The proof of the right master key, as in the table `master_key`. Null if no key was used. */
  readonly masterKey: {
    readonly salt: string;
    readonly keyId: string;
    readonly proof: string;
    readonly previousKeyId: string | null;
  } | null;
}

export interface Ending {
  readonly bytes: number;
  readonly pieces: number;
  readonly sha256: string;
}

export interface Manifest {
  readonly tables: Readonly<Record<string, Ending>>;
  readonly sequences: readonly SequenceState[];
  readonly files: { readonly count: number; readonly bytes: number };
  /** Files whose bytes were missing in the storage: the storage keys of the first ones. */
  readonly missingFiles: readonly string[];
}

/** Thrown if an archive cannot be used. The message is one line. */
export class ArchiveError extends Error {
  override readonly name = "ArchiveError";
}

const PIECE_DIGITS = 6;

export function pieceName(item: string, number: number): string {
  return `${item}/${String(number).padStart(PIECE_DIGITS, "0")}.zst`;
}

const TRAILER_START = "\nmodel-gateway backup sha256 ";
const DIGEST_CHARACTERS = 64;

export const TRAILER = {
  bytes: TRAILER_START.length + DIGEST_CHARACTERS + 1,
  text: (digest: string) => `${TRAILER_START}${digest}\n`,
};

/** Yields the chunks. Throws if the signal has aborted. */
export async function* untilAborted(
  chunks: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  for await (const chunk of chunks) {
    if (signal.aborted) throw new Error("interrupted");
    yield chunk;
  }
}
