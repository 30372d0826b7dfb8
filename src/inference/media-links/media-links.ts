import type { Database } from "../../../db/client.ts";
import {
  beginMediaLinks,
  findMediaLink,
  insertMediaLinks,
  type NewMediaLink,
} from "../../../db/queries/media-links.ts";
import { GatewayError, overloaded } from "../../lib/errors.ts";
import {
  asStorageFailure,
  type ByteRange,
  type FileStorage,
  ObjectMissingError,
} from "../../platform/storage/interface.ts";

export const MEDIA_PATH = "/v1/media";

/** A media file that a model has generated. */
export interface NewMedia {
  /** The content type, detected from the bytes. */
  readonly contentType: string;
  readonly bytes: Uint8Array;
}

export interface StoredMedia extends Omit<NewMediaLink, "id"> {
  /** Returns the bytes. Throws 404 if the link has expired in the meantime, and 503 if the store fails. */
  read(range: ByteRange): Promise<ReadableStream<Uint8Array>>;
}

interface MediaLinksDependencies {
  readonly sql: Database;
  readonly storage: FileStorage;
  onError(error: unknown): void;
}

/**
 * The random part of an id, in bytes: twice the length that cannot be guessed. Written in hex, because the id
 * is also the name in the store.
 */
const RANDOM_BYTES = 32;
const MEDIA_ID = /^media_[0-9a-f]{64}$/;
const WRITE_BYTES = 1024 * 1024;

/**
 * Generated media with links that need no key and expire after an hour. The row of a link is written before
 * its bytes. The file cleaning removes both (src/jobs/files/file-cleaning.ts).
 */
export class MediaLinks {
  readonly #dependencies: MediaLinksDependencies;

  constructor(dependencies: MediaLinksDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Resolves with the ids, in order, when all bytes are durable. Throws 503 if the store fails, or if the
   * links have expired because this process was paused.
   */
  async store(organizationId: string, media: readonly NewMedia[]): Promise<readonly string[]> {
    const { sql } = this.#dependencies;
    const links = media.map(({ contentType, bytes }) => ({
      id: newMediaId(),
      contentType,
      bytes: bytes.byteLength,
    }));
    const ids = links.map(({ id }) => id);
    await insertMediaLinks(sql, organizationId, links);
    const writes = await Promise.allSettled(
      media.map(({ bytes }, at) => this.#write(ids[at]!, bytes)),
    );
    const failed = writes.find((result) => result.status === "rejected");
    if (failed !== undefined) throw asStorageFailure(failed.reason);
    if ((await beginMediaLinks(sql, ids)) === ids.length) return ids;
    // The rows of the links may have been deleted. Then nothing else would delete the bytes.
    await Promise.all(ids.map((id) => this.#remove(id)));
    throw overloaded("The links could not be created in time; try again.");
  }

  /** Returns the media of a link. Throws 404 if there is no such link, or if it has expired. */
  async find(id: string): Promise<StoredMedia> {
    const { sql, storage } = this.#dependencies;
    const link = MEDIA_ID.test(id) ? await findMediaLink(sql, id) : undefined;
    if (link === undefined) throw notFound();
    return {
      ...link,
      read: (range) =>
        storage.read(id, range).catch(async (error: unknown) => {
          const hasExpired = error instanceof ObjectMissingError && !(await findMediaLink(sql, id));
          throw hasExpired ? notFound() : asStorageFailure(error);
        }),
    };
  }

  async #write(id: string, bytes: Uint8Array): Promise<void> {
    const writer = this.#dependencies.storage.write(id);
    try {
      for (let at = 0; at < bytes.byteLength; at += WRITE_BYTES) {
        await writer.write(bytes.subarray(at, at + WRITE_BYTES));
      }
      await writer.finish();
    } catch (error) {
      await writer.abort();
      throw error;
    }
  }

  async #remove(id: string): Promise<void> {
    await this.#dependencies.storage.remove(id).catch(this.#dependencies.onError);
  }
}

function newMediaId(): string {
  return `media_${Buffer.from(crypto.getRandomValues(new Uint8Array(RANDOM_BYTES))).toString("hex")}`;
}

function notFound(): GatewayError {
  return new GatewayError("media_not_found", "There is no such link, or it has expired.");
}
