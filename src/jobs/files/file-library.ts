import { createHmac, hkdfSync, timingSafeEqual } from "node:crypto";
import type { Database } from "../../../db/client.ts";
import {
  deleteFile,
  type FileListing,
  findFile,
  findFileById,
  listFiles,
} from "../../../db/queries/files.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { FileRecord } from "../../lib/file-record.ts";
import type { Keyring } from "../../lib/keyring.ts";
import {
  asStorageFailure,
  type ByteRange,
  type FileStorage,
  ObjectMissingError,
  type SignedAddress,
} from "../../platform/storage/interface.ts";

interface FileLibraryDependencies {
  readonly sql: Database;
  readonly storage: FileStorage;
  readonly links: DownloadLinks;
  readonly clock: Clock;
  /** Called after a deletion. */
  onDeleted(): void;
}

const FILE_ID = /^file_[0-9a-f]{32}$/;

/** The address from which a file can be downloaded without a key: in the store, or at this gateway with a proof. */
type DownloadAddress =
  | { readonly kind: "store"; readonly url: string; readonly expires: number }
  | { readonly kind: "gateway"; readonly proof: LinkProof };

/** The files of organizations (spec 4.2), for requests. */
export class FileLibrary {
  readonly #dependencies: FileLibraryDependencies;

  constructor(dependencies: FileLibraryDependencies) {
    this.#dependencies = dependencies;
  }

  list(listing: FileListing): Promise<{ files: FileRecord[]; hasMore: boolean }> {
    return listFiles(this.#dependencies.sql, listing);
  }

  /** Returns a file. Throws 404 if the file does not exist. */
  async find(organizationId: string, fileId: string): Promise<FileRecord> {
    assertFileId(fileId);
    return (await findFile(this.#dependencies.sql, organizationId, fileId)) ?? notFound();
  }

  /**
   * Returns the file that a download link names. Throws 404 if the link is invalid or the file no longer
   * exists.
   */
  async findByLink(fileId: string, proof: LinkProof): Promise<FileRecord> {
    const { sql, links, clock } = this.#dependencies;
    if (!links.isValid(fileId, proof, clock.nowMs())) notFound();
    return (await findFileById(sql, fileId)) ?? notFound();
  }

  /**
   * Returns the content or a part of it. Empty if the content does not exist yet. Throws 404 if the file was
   * just deleted, and 503 if the store cannot be reached.
   */
  async read(file: FileRecord, range?: ByteRange): Promise<ReadableStream<Uint8Array>> {
    if (file.storageKey === null) return new Blob([]).stream();
    try {
      // The range includes the size, so that a store with missing bytes is detected.
      const whole = { start: 0, end: file.bytes };
      return await this.#dependencies.storage.read(file.storageKey, range ?? whole);
    } catch (error) {
      if (!(error instanceof ObjectMissingError)) throw asStorageFailure(error);
      // Throws 404 if the file was just deleted. Otherwise the store has lost its bytes.
      await this.find(file.organizationId, file.id);
      throw error;
    }
  }

  /**
   * Deletes a file. Current reads continue to their end. Throws 404 if the file does not exist.
   *
   * @param sql a database that records the act, if it is an administrative one
   */
  async remove(
    organizationId: string,
    fileId: string,
    sql = this.#dependencies.sql,
  ): Promise<void> {
    const { onDeleted } = this.#dependencies;
    assertFileId(fileId);
    if (!(await deleteFile(sql, organizationId, fileId))) notFound();
    onDeleted();
  }

  /** Returns an address from which the content can be downloaded for an hour without a key. */
  async downloadAddress(
    file: FileRecord,
    address: Omit<SignedAddress, "expiresInSeconds">,
  ): Promise<DownloadAddress> {
    const { storage, links, clock } = this.#dependencies;
    const proof = links.sign(file.id, clock.nowMs());
    if (file.storageKey === null) return { kind: "gateway", proof };
    const expiresInSeconds = linkSeconds(file, clock.nowMs());
    const url = await storage.signedUrl(file.storageKey, { ...address, expiresInSeconds });
    return url === undefined
      ? { kind: "gateway", proof }
      : { kind: "store", url, expires: Math.floor(clock.nowMs() / 1_000) + expiresInSeconds };
  }
}

/**
 * Returns the lifetime of a link to the store in seconds. The store does not know when the file expires. At
 * least 1.
 */
function linkSeconds({ expiresAtMs }: FileRecord, nowMs: number): number {
  if (expiresAtMs === null) return LINK_LIFETIME_SECONDS;
  const left = Math.floor((expiresAtMs - nowMs) / 1_000);
  return Math.max(1, Math.min(LINK_LIFETIME_SECONDS, left));
}

/** Throws 404 if the id is invalid. A path can contain any text, even text that the database does not accept. */
function assertFileId(text: string): void {
  if (!FILE_ID.test(text)) notFound();
}

function notFound(): never {
  throw new GatewayError("file_not_found", "There is no such file.");
}

/** Lifetime of download links (spec 8). */
const LINK_LIFETIME_SECONDS = 60 * 60;
const KEY_PURPOSE = "model-gateway file download links";

interface LinkProof {
  /** Unix seconds. */
  readonly expires: number;
  /** Hex. */
  readonly signature: string;
}

/**
 * Signs downloads that need no API key (HMAC-SHA256). The signing key is derived from the master key (HKDF,
 * RFC 5869), so every instance has it, and it opens nothing else. Signatures of any configured master key are
 * valid.
 */
export class DownloadLinks {
  readonly #keyring: Keyring;
  /** Signing keys by master key. */
  readonly #signingKeys = new Map<Uint8Array, Uint8Array>();

  constructor(keyring: Keyring) {
    this.#keyring = keyring;
  }

  sign(fileId: string, nowMs: number): LinkProof {
    const expires = Math.floor(nowMs / 1_000) + LINK_LIFETIME_SECONDS;
    const signature = this.#mac(this.#keyring.sealingKey, fileId, expires).toString("hex");
    return { expires, signature };
  }

  isValid(fileId: string, proof: LinkProof, nowMs: number): boolean {
    const signature = Buffer.from(proof.signature, "hex");
    const isGenuine = this.#keyring.keys.some((masterKey) => {
      const expected = this.#mac(masterKey, fileId, proof.expires);
      return signature.length === expected.length && timingSafeEqual(signature, expected);
    });
    return isGenuine && nowMs < proof.expires * 1_000;
  }

  #mac(masterKey: Uint8Array, fileId: string, expires: number): Buffer {
    const key = this.#signingKey(masterKey);
    return createHmac("sha256", key).update(`${fileId}\n${expires}`).digest();
  }

  #signingKey(masterKey: Uint8Array): Uint8Array {
    const derived = this.#signingKeys.get(masterKey);
    if (derived !== undefined) return derived;
    const key = new Uint8Array(hkdfSync("sha256", masterKey, "", KEY_PURPOSE, 32));
    this.#signingKeys.set(masterKey, key);
    return key;
  }
}
