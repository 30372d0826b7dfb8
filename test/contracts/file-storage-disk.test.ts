import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DiskStorage } from "../../src/platform/storage/disk.ts";
import { knownFolder } from "../support/known-folder.ts";
import { fileStorageContract } from "./file-storage.ts";

fileStorageContract("disk", async () => {
  const folder = await mkdtemp(join(tmpdir(), "gateway-storage-"));
  return {
    storage: new DiskStorage(join(folder, "files"), knownFolder()),
    async countEverything() {
      const entries = await readdir(folder, { recursive: true, withFileTypes: true });
      return entries.filter((entry) => entry.isFile() && entry.name !== ".storage-id").length;
    },
    stop: () => rm(folder, { recursive: true }),
  };
});
