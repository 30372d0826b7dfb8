import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DiskStorage } from "../../src/storage/disk.ts";
import { fileStorageContract } from "./file-storage.ts";

fileStorageContract("disk", async () => {
  const folder = await mkdtemp(join(tmpdir(), "gateway-storage-"));
  return {
    storage: new DiskStorage(join(folder, "files")),
    async countEverything() {
      const entries = await readdir(folder, { recursive: true, withFileTypes: true });
      return entries.filter((entry) => entry.isFile()).length;
    },
    stop: () => rm(folder, { recursive: true }),
  };
});
