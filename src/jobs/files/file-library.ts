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
  /** Something was deleted. */
  onDeleted(): void;
}

const FILE_ID = /^file_[0-9a-f]{32}$/;

/** Where a file can be fetched without a key: at the store, or here with a proof. */
type DownloadPlace =
  | { readonly kind: "store"; readonly url: string; readonly expires: number }
  | { readonly kind: "gateway"; readonly proof: LinkProof };

/** The files of organizations (spec 4.2), for those who look at them. */
export class FileLibrary {
  readonly #dependencies: FileLibraryDependencies;

  constructor(dependencies: FileLibraryDependencies) {
    this.#dependencies = dependencies;
  }

  list(listing: FileListing): Promise<{ files: FileRecord[]; hasMore: boolean }> {
    return listFiles(this.#dependencies.sql, listing);
  }

  /** Throws 404. */
  async find(organizationId: string, fileId: string): Promise<FileRecord> {
    assertFileId(fileId);
    return (await findFile(this.#dependencies.sql, organizationId, fileId)) ?? notFound();
  }

  /** The file that a download link names. Throws 404 where the link is no good, or the file is gone. */
  async findByLink(fileId: string, proof: LinkProof): Promise<FileRecord> {
    const { sql, links, clock } = this.#dependencies;
    if (!links.isValid(fileId, proof, clock.nowMs())) notFound();
    return (await findFileById(sql, fileId)) ?? notFound();
  }

  /** The content or a part of it, empty where there is none yet. Throws 404, 503. */
  async read(file: FileRecord, range?: ByteRange): Promise<ReadableStream<Uint8Array>> {
    if (file.storageKey === null) return new Blob([]).stream();
    try {
      // The size is in the range, so that a store which lost some is found out.
      const whole = { start: 0, end: file.bytes };
      return await this.#dependencies.storage.read(file.storageKey, range ?? whole);
    } catch (error) {
      if (!(error instanceof ObjectMissingError)) throw asStorageFailure(error);
      // Deleted a moment ago; or else the store has lost it.
      await this.find(file.organizationId, file.id);
      throw error;
    }
  }

  /** Throws 404. What reads the file goes on to its end. */
  async remove(organizationId: string, fileId: string): Promise<void> {
    const { sql, onDeleted } = this.#dependencies;
    assertFileId(fileId);
    if (!(await deleteFile(sql, organizationId, fileId))) notFound();
    onDeleted();
  }

  /** Where the content can be fetched for an hour without a key. */
  async place(
    file: FileRecord,
    address: Omit<SignedAddress, "expiresInSeconds">,
  ): Promise<DownloadPlace> {
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

/** How long a link to the store is good, which does not know when the file expires. At least a second. */
function linkSeconds({ expiresAtMs }: FileRecord, nowMs: number): number {
  if (expiresAtMs === null) return LINK_LIFETIME_SECONDS;
  const left = Math.floor((expiresAtMs - nowMs) / 1_000);
  return Math.max(1, Math.min(LINK_LIFETIME_SECONDS, left));
}

/** What comes in a path may be any text, such as one that no database takes. */
function assertFileId(text: string): void {
  if (!FILE_ID.test(text)) notFound();
}

function notFound(): never {
  throw new GatewayError("file_not_found", "There is no such file.");
}

/** Spec 8. */
const LINK_LIFETIME_SECONDS = 60 * 60;
const KEY_PURPOSE = "model-gateway file download links";

interface LinkProof {
  /** Unix seconds. */
  readonly expires: number;
  /** Hex. */
  readonly signature: string;
}

/**
 * Signs downloads that need no API key (HMAC-SHA256), with a key of its own that comes from the master key
 * (HKDF, RFC 5869), so that every instance knows it and it opens nothing else. What any known master key
 * signed is valid.
 */
export class DownloadLinks {
  readonly #keyring: Keyring;
  /** By the master key that each comes from. */
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
    const given = Buffer.from(proof.signature, "hex");
    const isGenuine = this.#keyring.keys.some((masterKey) => {
      const expected = this.#mac(masterKey, fileId, proof.expires);
      return given.length === expected.length && timingSafeEqual(given, expected);
    });
    return isGenuine && nowMs < proof.expires * 1_000;
  }

  #mac(masterKey: Uint8Array, fileId: string, expires: number): Buffer {
    const key = this.#signingKey(masterKey);
    return createHmac("sha256", key).update(`${fileId}\n${expires}`).digest();
  }

  #signingKey(masterKey: Uint8Array): Uint8Array {
    const known = this.#signingKeys.get(masterKey);
    if (known !== undefined) return known;
    const key = new Uint8Array(hkdfSync("sha256", masterKey, "", KEY_PURPOSE, 32));
    this.#signingKeys.set(masterKey, key);
    return key;
  }
}
