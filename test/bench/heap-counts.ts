/*
 * Loaded into a gateway before its own program: on SIGUSR2 it writes how many objects of each type its heap
 * holds into the file that HEAP_COUNTS_FILE names.
 */
import { heapStats } from "bun:jsc";
import { renameSync, writeFileSync } from "node:fs";

const path = process.env.HEAP_COUNTS_FILE;
process.on("SIGUSR2", () => {
  writeFileSync(`${path}.new`, JSON.stringify(heapStats().objectTypeCounts));
  renameSync(`${path}.new`, `${path}`);
});
