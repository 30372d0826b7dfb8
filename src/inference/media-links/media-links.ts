import type { Database } from "../../../db/client.ts";
import {
  beginMediaLinks,
  findMediaLink,
  insertMediaLinks,
  type NewMediaLink,
} from "../../../db/queries/media-links.ts";
import { GatewayError } from "../../lib/errors.ts";
import {
  asStorageFailure,
  type ByteRange,
  type FileStorage,
  ObjectMissingError,
} from "../../platform/storage/interface.ts";

export const MEDIA_PATH = "/v1/media";

/** What a model has made. */
export interface NewMedia {
  /** As the bytes themselves tell. */
  readonly contentType: string;
  readonly bytes: Uint8Array;
}

export interface StoredMedia extends Omit<NewMediaLink, "id"> {
  /** Throws 404 where it is gone since, 503. */
  read(range: ByteRange): Promise<ReadableStream<Uint8Array>>;
}

interface MediaLinksDependencies {
  readonly sql: Database;
  readonly storage: FileStorage;
  onError(error: unknown): void;
}

/** Twice what cannot be guessed; hex, because it names the bytes in the store. */
const RANDOM_BYTES = 32;
const MEDIA_ID = /^media_[0-9a-f]{64}$/;
const WRITE_BYTES = 1024 * 1024;

/**
 * What models have made, behind links that need no key and are good for an hour. The row of a link is there
 * before its bytes; both are removed by the cleaning of files (src/jobs/files/file-cleaning.ts).
 */
export class MediaLinks {
  readonly #dependencies: MediaLinksDependencies;

  constructor(dependencies: MediaLinksDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Resolves with the ids, in their order, when all bytes are durable. Throws 503 where the store fails, or
   * this process was paused for so long that they have expired.
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
    const written = await Promise.allSettled(
      media.map(({ bytes }, at) => this.#write(ids[at]!, bytes)),
    );
    const failed = written.find((one) => one.status === "rejected");
    if (failed !== undefined) throw asStorageFailure(failed.reason);
    if ((await beginMediaLinks(sql, ids)) === ids.length) return ids;
    // Their rows may be gone, and then nothing else would find the bytes.
    await Promise.all(ids.map((id) => this.#remove(id)));
    throw new GatewayError("overloaded", "The links could not be made in time; try again.", {
      retryAfterSeconds: 1,
    });
  }

  /** Throws 404 where there is no such link, or its time is up. */
  async find(id: string): Promise<StoredMedia> {
    const { sql, storage } = this.#dependencies;
    const link = MEDIA_ID.test(id) ? await findMediaLink(sql, id) : undefined;
    if (link === undefined) throw notFound();
    return {
      ...link,
      read: (range) =>
        storage.read(id, range).catch(async (error: unknown) => {
          const isGone = error instanceof ObjectMissingError && !(await findMediaLink(sql, id));
          throw isGone ? notFound() : asStorageFailure(error);
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
  return new GatewayError("media_not_found", "There is no such link, or its hour is over.");
}
