import type { Ownership, UnownedWork } from "../../actors/runtime/ownership.ts";
import type { Database } from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import type { FileLibrary } from "../files/file-library.ts";
import { Indexing } from "../vector-stores/indexing.ts";
import { Extraction } from "../vector-stores/text/extraction.ts";
import { VectorStores } from "../vector-stores/vector-stores.ts";

export interface VectorStoreParts {
  readonly stores: VectorStores;
  /** Files are to be indexed, so it was reported. */
  onWork(): void;
  close(): Promise<void>;
}

/** Vector stores, and this instance's part in indexing their files. */
export function composeVectorStores(options: {
  readonly sql: Database;
  /** The same, for what may take its time. */
  readonly background: Database;
  readonly instance: InstanceIdentity;
  readonly ownership: Ownership;
  readonly unowned: UnownedWork;
  readonly files: FileLibrary;
  onError(error: unknown): void;
}): VectorStoreParts {
  const { sql, background, unowned } = options;
  const sweep = (): void => void unowned.sweep(indexing.kind);
  const extraction = new Extraction();
  const indexing = new Indexing({ ...options, sql: background, extraction, onRoom: sweep });
  unowned.register({
    kind: indexing.kind,
    findWork: (limit) => indexing.findWork(limit),
    start: (lease) => indexing.start(lease),
  });
  return {
    stores: new VectorStores(sql),
    onWork: sweep,
    close: () => indexing.stop(),
  };
}
