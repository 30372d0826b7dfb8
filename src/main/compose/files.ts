import { join } from "node:path";
import { claimFileFolder, readFileFolderId } from "../../../db/queries/files.ts";
import { MediaLinks } from "../../inference/media-links/media-links.ts";
import { FileCleaning } from "../../jobs/files/file-cleaning.ts";
import { DownloadLinks, FileLibrary } from "../../jobs/files/file-library.ts";
import { FileUploads } from "../../jobs/files/file-uploads.ts";
import { JobFiles } from "../../jobs/files/job-files.ts";
import type { Clock } from "../../lib/clock.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import { DiskStorage } from "../../platform/storage/disk.ts";
import type { KnownFolder } from "../../platform/storage/folder-mark.ts";
import type { FileStorage } from "../../platform/storage/interface.ts";
import { S3Storage } from "../../platform/storage/s3.ts";
import type { Base } from "./base.ts";
import type { Part } from "./lifecycle.ts";

export interface FileParts extends Part {
  readonly uploads: FileUploads;
  readonly library: FileLibrary;
  /** Reads and writes files for jobs, which take longer than a request. */
  readonly jobFiles: JobFiles;
  /** Generated media, as links that are valid for an hour. */
  readonly media: MediaLinks;
}

/** Composes stored files, and their clean-up. */
export function composeFiles(base: Base): FileParts {
  const { config, sql, background, instance, keyring, clock, onError } = base;
  const storage = createStorage(config, clock, {
    read: () => readFileFolderId(background),
    claim: (id) => claimFileFolder(background, id),
  });
  const cleaning = new FileCleaning({ sql: background, storage, clock, onError });
  const cleanSoon = (): void => cleaning.cleanSoon();
  const uploads = new FileUploads({ sql: background, storage, instance, clock, onError });
  const links = new DownloadLinks(keyring);
  return {
    uploads,
    library: new FileLibrary({ sql, storage, links, clock, onDeleted: cleanSoon }),
    jobFiles: new JobFiles({ sql: background, storage, uploads, onReleased: cleanSoon }),
    media: new MediaLinks({ sql, storage, onError }),
    start() {
      // Logged at the start, although the first use of files may be much later.
      storage.assertOurs().catch(onError);
      cleaning.start();
    },
    async stop() {
      uploads.close();
      await cleaning.close();
    },
  };
}

/** Returns the storage for the bytes of files: the bucket, or the folder. */
export function createStorage(
  { s3, dataDir }: Pick<GatewayConfig, "s3" | "dataDir">,
  clock: Clock,
  database: KnownFolder,
): FileStorage {
  return s3 === undefined
    ? new DiskStorage(join(dataDir, "files"), database)
    : new S3Storage(s3, clock);
}
