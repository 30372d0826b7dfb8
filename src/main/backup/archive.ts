import type { AppliedMigration } from "../../../db/migrate.ts";
import type { CopiedTable, SequenceState } from "../../../db/queries/table-copies.ts";

/*
 * An archive is a tar file of zstd pieces and JSON, with one line behind the end of the tar:
 *
 *   head.json                          Head: what is needed before anything is restored
 *   tables/<table>/<number>.zst        rows as COPY writes them, cut anywhere; a table behind those it refers to
 *   tables/<table>/end.json            Ending: what the pieces amount to
 *   files/<storage key>/<number>.zst   bytes of a stored file
 *   files/<storage key>/end.json
 *   manifest.json                      Manifest: what there is
 *
 * The line has the SHA-256 of everything before it, so a change or a cut anywhere is found before anything is read.
 */

export const FORMAT = 1;
/** Of a table or a file, before compression. */
export const PIECE_BYTES = 2 * 1024 * 1024;
/** Of one member; zstd makes what cannot be compressed a little longer. */
export const MAX_MEMBER_BYTES = 64 * 1024 * 1024;

export interface Head {
  readonly format: number;
  /** Of the gateway. */
  readonly version: string;
  readonly createdAt: string;
  readonly postgres: string;
  readonly migrations: readonly AppliedMigration[];
  readonly tables: readonly CopiedTable[];
  readonly hasFiles: boolean;
  /** What proves a master key to be the right one, as the table `master_key` has it; null where none was used. */
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
  /** Files whose bytes the storage did not have: the first of them, by their storage keys. */
  readonly missingFiles: readonly string[];
}

/** The archive cannot be taken as it is. The message is one line. */
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

export async function* untilAborted(
  chunks: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  for await (const chunk of chunks) {
    if (signal.aborted) throw new Error("interrupted");
    yield chunk;
  }
}
