import type { Ownership, UnownedWork } from "../../../actors/runtime/ownership.ts";
import type { Database } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import { Extraction } from "../../documents/extraction.ts";
import { DocumentFault } from "../../documents/text-sink.ts";
import { usableKey } from "../../http/authentication.ts";
import type {
  DocumentTexts,
  SentDocument,
} from "../../inference/endpoints/chat-completions/file-parser.ts";
import {
  PaidTextEmbedding,
  type PaidTextEmbeddingDependencies,
} from "../../inference/endpoints/embeddings/text-embedding.ts";
import type { FileLibrary } from "../../jobs/files/file-library.ts";
import type { TextEmbedding } from "../../jobs/vector-stores/embedding.ts";
import { Indexing } from "../../jobs/vector-stores/indexing.ts";
import { VectorStores } from "../../jobs/vector-stores/vector-stores.ts";
import { clientClosed, GatewayError, overloaded } from "../../lib/errors.ts";
import { allButOne, FairSemaphore } from "../../lib/fair-share.ts";
import type { ChangeFeed } from "../../platform/cluster/change-feed.ts";
import type { GatewayConfig } from "../../platform/config.ts";

type ConnectOptions = Pick<PaidTextEmbeddingDependencies, "calls" | "inFlight"> &
  Parameters<typeof usableKey>[0];

export interface VectorStoreParts {
  readonly stores: VectorStores;
  /** Reads the documents of chats, in the same processes as files. */
  readonly documents: DocumentTexts;
  /** Receives the paid calls. From then on, texts can be embedded. */
  connect(options: ConnectOptions): void;
  close(): Promise<void>;
}

/** Composes vector stores, and this instance's work on indexing their files. */
export function composeVectorStores(options: {
  readonly config: Pick<GatewayConfig, "vectorStoreModel">;
  readonly sql: Database;
  /** The same pool as `sql`, for statements that may take long. */
  readonly background: Database;
  readonly instance: InstanceIdentity;
  readonly ownership: Ownership;
  readonly unowned: UnownedWork;
  readonly changes: ChangeFeed;
  readonly files: FileLibrary;
  onError(error: unknown): void;
}): VectorStoreParts {
  const { config, sql, background, unowned, changes } = options;
  const { promise: embedding, resolve } = Promise.withResolvers<TextEmbedding>();
  const sweep = (): void => void unowned.sweep(indexing.kind);
  const extraction = new Extraction();
  const indexing = new Indexing({
    ...options,
    sql: background,
    extraction,
    embedding,
    onRoom: sweep,
  });
  unowned.register({
    kind: indexing.kind,
    findWork: (limit) => indexing.findWork(limit),
    start: (lease) => indexing.start(lease),
  });
  changes.on("vector-store-work", sweep);
  return {
    stores: new VectorStores({ sql, embeddingModel: config.vectorStoreModel, embedding }),
    connect({ calls, inFlight, ...keys }) {
      const usable = (keyId: string) => usableKey(keys, keyId);
      resolve(new PaidTextEmbedding({ calls, inFlight, usableKey: usable }));
    },
    documents: documentTexts(extraction),
    close: () => indexing.stop(),
  };
}

const DOCUMENTS_AT_A_TIME = 3;
const MAX_WAITING_DOCUMENTS = 256;
const MAX_WAITING_DOCUMENTS_OF_ONE = 64;
const MAX_DOCUMENT_CHARACTERS = 1_000_000;
const MAX_DOCUMENT_MS = 30_000;

/** Limits the documents of chats that are read at the same time. */
export function createDocumentSemaphore(): FairSemaphore {
  return new FairSemaphore({
    most: DOCUMENTS_AT_A_TIME,
    mostOfOne: allButOne(DOCUMENTS_AT_A_TIME),
    maxWaiting: MAX_WAITING_DOCUMENTS,
    maxWaitingOfOne: MAX_WAITING_DOCUMENTS_OF_ONE,
    refusal: () => overloaded("Too many documents are waiting to be read."),
  });
}

/** Returns a reader for documents of chats. It reads a few at a time, and organizations share it. */
function documentTexts(extraction: Extraction): DocumentTexts {
  const slots = createDocumentSemaphore();
  const options = { isHtml: false, maxCharacters: MAX_DOCUMENT_CHARACTERS };
  const read = async ({ path, bytes }: SentDocument, signal: AbortSignal): Promise<string> => {
    const inTime = AbortSignal.timeout(MAX_DOCUMENT_MS);
    try {
      return await extraction.pageText(bytes, options, AbortSignal.any([signal, inTime]));
    } catch (error) {
      if (signal.aborted) throw clientClosed(error);
      if (!(error instanceof DocumentFault) && !inTime.aborted) throw error;
      const why = inTime.aborted
        ? "The document takes too long to read."
        : (error as Error).message;
      throw new GatewayError("invalid_body", `Request body field "${path}": ${why}`, {
        param: path,
        cause: error,
      });
    }
  };
  return {
    async read(owner, documents, signal) {
      const texts: string[] = [];
      for (const one of documents) {
        const release = await slots.acquire(owner, signal).catch((error: unknown) => {
          throw signal.aborted ? clientClosed(error) : error;
        });
        texts.push(await read(one, signal).finally(release));
      }
      return texts;
    },
  };
}
