import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readlinkSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DiskStorage } from "../../src/platform/storage/disk.ts";
import { knownFolder } from "../support/known-folder.ts";
import { until } from "../support/until.ts";

const folder = mkdtempSync(join(tmpdir(), "gateway-descriptors-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const FILES = 50;

/** Descriptors of this process that lead into the folder. */
function openHere(): number {
  return readdirSync("/proc/self/fd").filter((descriptor) => {
    try {
      return readlinkSync(`/proc/self/fd/${descriptor}`).startsWith(folder);
    } catch {
      return false;
    }
  }).length;
}

test.skipIf(process.platform !== "linux")(
  "a stored file is closed when its stream is collected unread, and the process goes on",
  async () => {
    const storage = new DiskStorage(folder, knownFolder());
    const key = "obj_0123456789abcdef0123456789abcdef";
    const writer = storage.write(key);
    await writer.write(new Uint8Array(10));
    await writer.finish();
    for (let i = 0; i < FILES; i++) await storage.read(key);
    expect(openHere()).toBeGreaterThan(0);
    await until("most are closed", () => {
      Bun.gc(true);
      return openHere() < FILES / 2;
    });
  },
);
