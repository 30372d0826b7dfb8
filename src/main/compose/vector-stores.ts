import { Extraction } from "../../documents/extraction.ts";
import { DocumentFault } from "../../documents/text-sink.ts";
import type {
  DocumentTexts,
  SentDocument,
} from "../../inference/endpoints/chat-completions/file-parser.ts";
import {
  PaidTextEmbedding,
  type PaidTextEmbeddingDependencies,
} from "../../inference/endpoints/embeddings/text-embedding.ts";
import { Indexing } from "../../jobs/vector-stores/indexing.ts";
import { VectorStores } from "../../jobs/vector-stores/vector-stores.ts";
import { clientClosed, GatewayError, overloaded } from "../../lib/errors.ts";
import { allButOne, FairSemaphore } from "../../lib/fair-share.ts";
import type { Base } from "./base.ts";
import type { ClusterNode } from "./cluster-node.ts";
import type { FileParts } from "./files.ts";
import type { Part } from "./lifecycle.ts";

export interface VectorStoreParts extends Part {
  readonly stores: VectorStores;
  /** Reads the documents of chats, in the same processes as files. */
  readonly documents: DocumentTexts;
}

/** Composes vector stores, and this instance's work on indexing their files. */
export function composeVectorStores(
  options: Base &
    PaidTextEmbeddingDependencies & { readonly node: ClusterNode; readonly files: FileParts },
): VectorStoreParts {
  const { config, sql, background, changes, files } = options;
  const { ownership, unowned } = options.node;
  const embedding = new PaidTextEmbedding(options);
  const sweep = (): void => void unowned.sweep(indexing.kind);
  const extraction = new Extraction();
  const indexing: Indexing = new Indexing({
    ...options,
    sql: background,
    files: files.library,
    ownership,
    extraction,
    embedding,
    onRoom: sweep,
  });
  unowned.register(indexing);
  changes.on("vector-store-work", sweep);
  return {
    stores: new VectorStores({ sql, embeddingModel: config.vectorStoreModel, embedding }),
    documents: documentTexts(extraction),
    stop: () => indexing.stop(),
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
