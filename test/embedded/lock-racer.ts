import { lockDataFolder } from "../../db/data-folder-lock.ts";

/**
 * Claims the folder of its first argument at the instant of its second (Unix ms), says how that went,
 * and keeps what it has until its input ends.
 */
const [dataDir = "", atMs = ""] = process.argv.slice(2);
while (performance.timeOrigin + performance.now() < Number(atMs));
try {
  lockDataFolder(dataDir, 50);
  console.log("won");
} catch {
  console.log("refused");
}
await Bun.stdin.text();
